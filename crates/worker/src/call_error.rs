//! What a failed call over gRPC says, and who says it.

use std::error::Error;
use tonic::Status;

/// Whether the server said it. A status with a source was made here, of a connection that broke.
pub fn is_said(status: &Status) -> bool {
    status.source().is_none()
}

/// An error with its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
