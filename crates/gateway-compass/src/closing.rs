//! The end of the server, for tasks that wait for something else at the same time.

use tokio::sync::watch;

/// Returns when the server ends.
pub(crate) async fn ended(closing: &mut watch::Receiver<bool>) {
    _ = closing.wait_for(|closing| *closing).await;
}
