//! The life of a server in this process: the signals that stop it, and whether its tasks outlive it.

use tokio::signal::unix::{SignalKind, signal};

/// Whether tasks outlive the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Tasks outlive the server.
    OfItsOwn,
    /// Tasks end with this process.
    OfThisRun,
}

/// Resolves on SIGTERM or SIGINT.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
