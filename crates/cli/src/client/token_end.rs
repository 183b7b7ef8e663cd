//! The warning that the user's token expires soon.

use crate::ui::message::message;
use crate::ui::quantity::{elapsed, now_ms};
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_api::client::token_ends_ms;

/// Whether this process has said so.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Says once that the token expires, if the server said that this is soon.
pub fn tell_token_end() {
    let Some(ends_ms) = token_ends_ms() else { return };
    if !TOLD.swap(true, Ordering::Relaxed) {
        let left = elapsed(ends_ms.saturating_sub(now_ms()));
        message!(
            "warning: your token expires in {left}; an administrator makes another one with 'windlass token create'"
        );
    }
}
