//! The gateway that a server starts.

use crate::app::{App, Compass};
use crate::files::Files;
use crate::http;
use crate::options::{CompassError, CompassOptions};
use crate::paths;
use axum::http::Method;
use std::sync::Arc;
use windlass_server::{Front, Gateway, Starting};

/// Bytes of a submission, with the files that it brings.
const SUBMISSION_BYTES_MAX: usize = 24 << 20;

/// Compass CI's interface, to be handed to a server.
pub struct CompassGateway {
    files: Arc<Files>,
}

impl CompassGateway {
    /// Opens the directory of files.
    pub fn new(options: CompassOptions) -> Result<CompassGateway, CompassError> {
        if let Some(url) = options.url.as_ref().filter(|url| !is_url(url)) {
            return Err(CompassError::Url(url.clone()));
        }
        Ok(CompassGateway { files: Arc::new(Files::open(options)?) })
    }
}

impl Gateway for CompassGateway {
    fn name(&self) -> &'static str {
        "Compass CI"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        Box::pin(async move {
            let files = self.files.clone();
            let compass = Compass::start(front.clone(), files.clone()).await?;
            Ok(http::routes().with_state(App { handle: front.handle().clone(), front, compass, files }))
        })
    }

    fn owns(&self, path: &str) -> bool {
        paths::is_open(path)
    }

    fn body_bytes_max(&self) -> usize {
        SUBMISSION_BYTES_MAX
    }

    fn reads_body(&self, path: &str) -> bool {
        paths::is_file(path)
    }

    fn takes_token_in_body(&self, path: &str) -> bool {
        paths::takes_token_in_body(path)
    }

    fn takes_password(&self, method: &Method, path: &str) -> bool {
        paths::takes_password(method, path)
    }

    fn is_report(&self, path: &str) -> bool {
        paths::is_report(path)
    }

    fn token_in<'a>(&self, start: &'a [u8]) -> Option<&'a str> {
        paths::token_in(start)
    }
}

/// True for the beginning of a URL: a scheme and a host, in one word.
fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty()) && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}
