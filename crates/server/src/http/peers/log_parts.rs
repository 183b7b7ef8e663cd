//! Output of tasks from another server: read from the owner part by part, because an answer is one row.

use super::one_part::{PART_ATTEMPT_HEADER, PART_NEXT_HEADER};
use super::unanswered::{PATIENCE, unanswered};
use crate::http::App;
use crate::peers::{RequestClient, RequestHead};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use futures_util::stream;
use std::io;
use std::sync::Arc;
use windlass_api::LOG_OFFSET_HEADER;

/// The output, as a stream of its parts.
pub(super) async fn read(
    app: App,
    request_client: Arc<RequestClient>,
    head: RequestHead,
) -> axum::response::Response {
    let first = match request_client.ask(&head, b"", PATIENCE).await {
        Ok(first) if first.status().is_success() => first,
        Ok(other) => return other.map(Body::from).into_response(),
        Err(why) => return unanswered(why).into_response(),
    };
    let mut response = Response::builder().header("content-type", "application/octet-stream");
    if let Some(begins) = first.headers().get(LOG_OFFSET_HEADER) {
        response = response.header(LOG_OFFSET_HEADER, begins);
    }
    let parts = LogParts { app, request_client, next: next_head(&head, first.headers()), head };
    let rest = stream::try_unfold(parts, |mut parts| async move {
        Ok::<_, io::Error>(parts.next().await?.map(|bytes| (bytes, parts)))
    });
    let first = stream::iter([Ok::<Bytes, io::Error>(first.into_body())]);
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    response.body(body).unwrap_or_default()
}

struct LogParts {
    app: App,
    request_client: Arc<RequestClient>,
    head: RequestHead,
    /// The request for the next part; `None` at the end.
    next: Option<RequestHead>,
}

impl LogParts {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(head) = &self.next {
            let answer = tokio::select! {
                answer = self.request_client.ask(head, b"", PATIENCE) => answer.map_err(io::Error::other)?,
                () = self.app.handle.ends() => {
                    // The client that follows connects again, and asks for the rest.
                    return Err(io::Error::other("the server is ending"));
                }
            };
            if !answer.status().is_success() {
                return Err(io::Error::other("the task's output cannot be read any more"));
            }
            self.next = next_head(&self.head, answer.headers());
            if !answer.body().is_empty() {
                return Ok(Some(answer.into_body()));
            }
        }
        Ok(None)
    }
}

/// The request for the part after the one with these headers; `None` if that was the last one.
fn next_head(head: &RequestHead, headers: &HeaderMap) -> Option<RequestHead> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let (next, attempt) = (number(PART_NEXT_HEADER)?, number(PART_ATTEMPT_HEADER)?);
    let (path, query) = head.uri.split_once('?').unwrap_or((&head.uri, ""));
    let kept = query.split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && name != "offset" && name != "attempt"
    });
    let kept: String = kept.map(|pair| format!("&{pair}")).collect();
    let uri = format!("{path}?offset={next}&attempt={attempt}{kept}");
    Some(RequestHead { uri, ..head.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;
    use axum::http::HeaderValue;

    fn after(uri: &str, headers: &[(&'static str, &'static str)]) -> Option<String> {
        let head = RequestHead {
            method: "GET".to_owned(),
            uri: uri.to_owned(),
            content_type: None,
            user: "ann".to_owned(),
            role: Role::User,
            worker: None,
            token: None,
            session: None,
            peer: "unix".to_owned(),
            key: None,
            one_part: true,
        };
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        next_head(&head, &headers.collect()).map(|head| head.uri)
    }

    #[test]
    fn the_next_part_is_of_the_same_attempt_and_stream() {
        let told = [(PART_NEXT_HEADER, "70"), (PART_ATTEMPT_HEADER, "2")];
        assert_eq!(after("/log", &told).unwrap(), "/log?offset=70&attempt=2");
        let uri = "/log?offset=-5&stream=stderr&follow=true";
        assert_eq!(after(uri, &told).unwrap(), "/log?offset=70&attempt=2&stream=stderr&follow=true");
        assert_eq!(after(uri, &told[1..]), None, "it was the last");
    }
}
