//! The calls of clients.

mod system;

use super::server::{Cuebot, unary};
use axum::Router;
use std::sync::Arc;

/// Adds the paths of clients.
pub(crate) fn routes(router: Router<Arc<Cuebot>>) -> Router<Arc<Cuebot>> {
    router.route("/cue.CueInterface/GetSystemStats", unary(system::stats))
}
