//! Notifies systemd that a process is ready, and regularly that it is alive. systemd restarts a process that stops
//! doing so. Without systemd nothing is sent.

use sd_notify::NotifyState;
use std::time::Duration;
use windlass_server::Handle;

/// Notifies systemd that this process is ready.
pub fn ready() {
    say(NotifyState::Ready);
}

/// Notifies systemd as long as the server's engine answers.
pub async fn watch_server(handle: Handle) {
    let Some(pause) = pause() else { return };
    loop {
        tokio::time::sleep(pause).await;
        // The query goes through the engine's queue like all others.
        if matches!(tokio::time::timeout(pause, handle.query(|_| ())).await, Ok(Ok(()))) {
            say(NotifyState::Watchdog);
        }
    }
}

/// Notifies systemd as long as this runtime makes progress.
pub async fn watch_runtime() {
    let Some(pause) = pause() else { return };
    loop {
        tokio::time::sleep(pause).await;
        say(NotifyState::Watchdog);
    }
}

/// A third of the time after which systemd takes this process for dead; `None` without a watchdog.
fn pause() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 3)
}

fn say(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
