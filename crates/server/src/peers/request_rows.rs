//! The rows of requests and of answers to them. Each begins with a line of JSON, its head; the body
//! follows as it is.

use crate::auth::{Caller, Rights, Role};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a head. The head of a request over TCP is smaller.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Headers that are about the connection, and not about what is asked or answered.
const OF_THE_CONNECTION: [HeaderName; 5] =
    [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::TRAILER, header::UPGRADE];

/// A request without its body. The server that wrote the row has found out the caller, and vouches for that by its
/// signature.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RequestHead {
    pub method: String,
    pub uri: String,
    pub content_type: Option<String>,
    pub user: String,
    pub role: Role,
    pub worker: Option<String>,
    /// The id of the token, where other servers know it. Its record says then who asks, and not this head.
    pub token: Option<String>,
    /// The id of the session by which the board acted.
    pub session: Option<String>,
    /// The client's address as that server saw it, or `unix`.
    pub peer: String,
    /// Of a request that changes something: by this key it is done once. The server has made it that the client asked.
    pub key: Option<String>,
    /// A part of an output file is wanted, and not all of it.
    pub one_part: bool,
}

impl RequestHead {
    pub fn caller(&self) -> Caller {
        let RequestHead { user, role, worker, token, .. } = self.clone();
        Caller { user, role, worker, token, rights: Rights::default() }
    }
}

#[derive(Serialize, Deserialize)]
struct AnswerHead {
    headers: Vec<(String, String)>,
}

/// Bytes that are not what a server of this release writes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRow {
    #[error("it has no head")]
    NoHead,
    #[error("its head is not understood: {0}")]
    Head(#[from] serde_json::Error),
    #[error("its head is not HTTP: {0}")]
    Http(#[from] axum::http::Error),
    #[error("its status is not HTTP's: {0}")]
    Status(i32),
}

pub(crate) fn pack_request(head: &RequestHead, body: &[u8]) -> Vec<u8> {
    pack(head, body)
}

/// The request of a row, as a handler takes it, but for the caller.
pub(crate) fn unpack_request(row: &[u8]) -> Result<(RequestHead, Request<Body>), BadRow> {
    let (head, body) = unpack::<RequestHead>(row)?;
    let mut request = Request::builder().method(head.method.as_str()).uri(head.uri.as_str());
    if let Some(kind) = &head.content_type {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    Ok((head, request.body(Body::from(Bytes::copy_from_slice(body)))?))
}

pub(crate) fn pack_answer(headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    let kept = headers.iter().filter(|(name, _)| !OF_THE_CONNECTION.contains(name));
    // A value that is not text is left out.
    let headers = kept.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
    pack(&AnswerHead { headers: headers.collect() }, body)
}

pub(crate) fn unpack_answer(status: i32, row: Vec<u8>) -> Result<Response<Bytes>, BadRow> {
    let known = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let (head, body) = unpack::<AnswerHead>(&row)?;
    let mut response = Response::builder().status(known.ok_or(BadRow::Status(status))?);
    for (name, value) in &head.headers {
        response = response.header(name, value);
    }
    let begins = row.len() - body.len();
    Ok(response.body(Bytes::from(row).slice(begins..))?)
}

fn pack(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    let mut row = serde_json::to_vec(head).expect("strings always serialize");
    row.push(b'\n');
    row.extend_from_slice(body);
    row
}

fn unpack<T: DeserializeOwned>(row: &[u8]) -> Result<(T, &[u8]), BadRow> {
    let end = row.iter().take(HEAD_BYTES_MAX).position(|byte| *byte == b'\n').ok_or(BadRow::NoHead)?;
    Ok((serde_json::from_slice(&row[..end])?, &row[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    fn head() -> RequestHead {
        RequestHead {
            method: "POST".to_owned(),
            uri: "/api/v1/jobs?x=%0A".to_owned(),
            content_type: Some("application/json".to_owned()),
            user: "ann\nbob".to_owned(),
            role: Role::User,
            worker: None,
            token: Some("t1".to_owned()),
            session: None,
            peer: "10.0.0.9:5".to_owned(),
            key: Some("k".to_owned()),
            one_part: false,
        }
    }

    #[test]
    fn a_request_comes_out_as_it_went_in() {
        let row = pack_request(&head(), b"{\n}\0");
        let (found, request) = unpack_request(&row).unwrap();
        assert_eq!(found, head());
        assert_eq!((request.method().as_str(), request.uri().to_string()), ("POST", head().uri));
        assert_eq!(request.extensions().get::<Caller>(), None, "a row alone makes nobody a caller");
    }

    #[test]
    fn an_answer_comes_out_without_the_headers_of_its_connection() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("99"));
        let answer = unpack_answer(404, pack_answer(&headers, b"a\nb")).unwrap();
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (404, &b"a\nb"[..]));
        assert_eq!(answer.headers().len(), 1);
        assert!(matches!(unpack_answer(7, pack_answer(&headers, b"")), Err(BadRow::Status(7))));
    }

    #[test]
    fn rows_that_are_no_requests_are_refused() {
        let broken = |change: fn(&mut RequestHead)| {
            let mut head = head();
            change(&mut head);
            unpack_request(&pack_request(&head, b"")).is_err()
        };
        assert!(broken(|head| head.method = "GET /".to_owned()));
        assert!(broken(|head| head.uri = "a b".to_owned()));
        assert!(broken(|head| head.content_type = Some("\u{1}".to_owned())));
        assert!(matches!(unpack_request(b"{}"), Err(BadRow::NoHead)));
        assert!(matches!(unpack_request(b"{}\n"), Err(BadRow::Head(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut row in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200usize) {
            _ = unpack_request(&row);
            _ = unpack_answer(200, row.clone());
            let whole = pack_request(&head(), &row);
            _ = unpack_request(&whole[..cut.min(whole.len())]);
            row.splice(0..0, *b"{\"headers\":[[\"a\",\"b\"]]}\n");
            prop_assert!(unpack_answer(200, row).is_ok());
        }
    }
}
