//! The end of the server, for what waits.

use tokio::sync::watch;

/// Comes when the server ends.
pub(crate) async fn ended(closing: &mut watch::Receiver<bool>) {
    _ = closing.wait_for(|closing| *closing).await;
}
