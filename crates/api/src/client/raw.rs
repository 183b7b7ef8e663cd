//! Requests as their callers write them, and answers as they come.

use super::failure::ClientError;
use super::servers::Patience;
use super::{Client, parts};
use futures_util::Stream;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;

/// A request as its caller writes it.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// The method, such as `GET`.
    pub method: Method,
    /// The whole path, which may have a query.
    pub path: String,
    /// Parameters behind the path, after those that the path has.
    pub query: Vec<(String, String)>,
    /// The body, as JSON; `None` is none.
    pub body: Option<Vec<u8>>,
}

/// What stands before the body of an answer.
#[derive(Clone, Debug)]
pub struct RawHead {
    /// Version and status, such as `HTTP/1.1 200 OK`.
    pub status: String,
    /// Names and values, in their order.
    pub headers: Vec<(String, String)>,
}

impl RawHead {
    /// True if the body is one JSON value.
    pub fn is_json(&self) -> bool {
        let json = |(name, value): &(String, String)| {
            name == CONTENT_TYPE.as_str() && value.starts_with("application/json")
        };
        self.headers.iter().any(json)
    }
}

impl RawRequest {
    /// How long the answer may take where there is another server to ask. Some requests are answered once something has
    /// happened.
    fn patience(&self) -> Patience {
        let path = self.path.split('?').next().unwrap_or_default();
        if path.ends_with("/wait") || path.ends_with("/shutdown") {
            Patience::Event
        } else {
            Patience::Answer
        }
    }
}

impl Client {
    /// Makes a request. The body of the answer is read as it comes; an answer that is not a success is an error.
    pub async fn raw(
        &self,
        asked: &RawRequest,
    ) -> Result<(RawHead, impl Stream<Item = Result<Vec<u8>, ClientError>> + use<>), ClientError> {
        let mut request = self.request(asked.method.clone(), &asked.path).query(&asked.query);
        if let Some(body) = &asked.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let is_repeatable = asked.method == Method::GET || asked.method == Method::PUT;
        let call = self.call(request, is_repeatable, asked.patience())?;
        let (server, response) = self.servers.open(&call).await?;
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let head = RawHead {
            status: format!("{:?} {}", response.version(), response.status()),
            headers: headers.collect(),
        };
        Ok((head, parts(server.address.clone(), response, None)))
    }
}
