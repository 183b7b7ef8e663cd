//! What a process says to systemd: that it is ready, and again and again that it is well. systemd starts another
//! where it no longer does. Where nobody asked for it, nothing is said.

use sd_notify::NotifyState;
use std::time::Duration;
use windlass_server::Handle;

/// Says that this process does what it was started for.
pub fn ready() {
    say(NotifyState::Ready);
}

/// Says as long as it is so that a server's engine answers.
pub async fn watch_server(handle: Handle) {
    let Some(pause) = pause() else { return };
    loop {
        tokio::time::sleep(pause).await;
        // A request goes through the engine's queue like all others.
        if matches!(tokio::time::timeout(pause, handle.query(|_| ())).await, Ok(Ok(()))) {
            say(NotifyState::Watchdog);
        }
    }
}

/// Says as long as it is so that this runtime turns.
pub async fn watch_runtime() {
    let Some(pause) = pause() else { return };
    loop {
        tokio::time::sleep(pause).await;
        say(NotifyState::Watchdog);
    }
}

/// A third of the time after which systemd takes this process for dead.
fn pause() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 3)
}

fn say(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("cannot tell systemd how this process is: {error}");
    }
}
