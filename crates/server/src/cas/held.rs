//! Answers that hold their share of a budget until all of them was sent, or nobody wants them any more.

use crate::user_budget::UserShare;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

struct HeldBody {
    body: Body,
    _shares: Vec<UserShare>,
}

/// The same body. Its trailers come, too, which a stream of its bytes would not have.
pub(super) fn held(body: Body, shares: Vec<UserShare>) -> Body {
    Body::new(HeldBody { body, _shares: shares })
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
