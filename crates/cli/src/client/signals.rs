//! Signals during a run: the first Ctrl-C cancels its job, the second exits without waiting.

use crate::system::StopSignals;
use crate::ui::error::{BROKEN_PIPE, CliError, FAILED, HUNG_UP};
use crate::ui::message::message;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use windlass_api::client::Client;

/// Attempts, one per second, to cancel a job while no server answers.
const CANCEL_TRIES: u32 = 60;

/// Whether a signal or a closed pipe asked the run to stop; cheap to clone.
#[derive(Clone)]
pub struct Stop {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// The exit code of the first request to stop; 0 until there is one.
    code: AtomicI32,
    job: OnceLock<u64>,
    /// Notified by the writing thread when standard output is closed.
    broken: Notify,
    /// True once the server is being asked to cancel.
    canceling: AtomicBool,
    mode: Mode,
}

/// The relation of this process to the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It submitted the job, which it cancels when it is stopped.
    Owning,
    /// It submitted the job, and the server is in this process: the job cannot outlive it.
    Foreground,
    /// It only shows the job.
    Watching,
}

impl Shared {
    fn new(client: Client, mode: Mode) -> Self {
        Shared {
            client,
            code: AtomicI32::new(0),
            job: OnceLock::new(),
            broken: Notify::new(),
            canceling: AtomicBool::new(false),
            mode,
        }
    }
}

impl Stop {
    /// Catches signals from now on, so that none is lost between the submission and its answer.
    pub fn listen(client: Client, foreground: bool) -> Result<Self, CliError> {
        let signals =
            StopSignals::catch().map_err(|error| anyhow::Error::new(error).context("catch signals"))?;
        let mode = if foreground { Mode::Foreground } else { Mode::Owning };
        let shared = Arc::new(Shared::new(client, mode));
        tokio::spawn(watch(shared.clone(), signals));
        Ok(Stop { shared })
    }

    /// Catches no signals: they end the process as by default.
    pub fn never(client: Client) -> Self {
        Stop { shared: Arc::new(Shared::new(client, Mode::Watching)) }
    }

    /// Sets the job once it is submitted. An earlier request to stop cancels it.
    pub fn set_job(&self, job: u64) {
        let _ = self.shared.job.set(job);
        if self.code().is_some() {
            cancel(&self.shared);
        }
    }

    /// The exit code of the request to stop; `None` if there is none.
    pub fn code(&self) -> Option<i32> {
        Some(self.shared.code.load(Ordering::SeqCst)).filter(|code| *code != 0)
    }

    /// Called by the writer when standard output fails. A closed pipe cancels the job, because its output is not wanted
    /// any more. After other errors, such as a full disk, the job goes on.
    pub fn on_broken(&self) -> impl FnOnce(&io::Error) + Send + use<> {
        let shared = self.shared.clone();
        move |error| {
            let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
            match shared.mode {
                Mode::Owning | Mode::Foreground if is_pipe => shared.broken.notify_one(),
                Mode::Owning | Mode::Foreground => {
                    message!("note: cannot write to standard output ({error}); the job goes on");
                }
                Mode::Watching if is_pipe => std::process::exit(BROKEN_PIPE),
                Mode::Watching => {
                    message!("error: cannot write to standard output: {error}");
                    std::process::exit(FAILED);
                }
            }
        }
    }
}

async fn watch(shared: Arc<Shared>, mut signals: StopSignals) {
    loop {
        let code = tokio::select! {
            code = signals.next() => code,
            () = shared.broken.notified() => BROKEN_PIPE,
        };
        if code == HUNG_UP && shared.mode == Mode::Owning {
            leave(&shared, code);
        }
        if shared.code.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            if code == BROKEN_PIPE {
                continue;
            }
            // A second signal: exit without waiting for the server.
            std::process::exit(code);
        }
        match shared.job.get() {
            Some(job) if code != BROKEN_PIPE => {
                message!("cancelling job {job}; Ctrl-C again exits at once");
            }
            None => {
                message!("waits for the server's answer; Ctrl-C again exits at once");
            }
            Some(_) => {}
        }
        if shared.job.get().is_some() {
            cancel(&shared);
        }
    }
}

/// Exits when the terminal is closed, and leaves the job running.
fn leave(shared: &Shared, code: i32) -> ! {
    if let Some(job) = shared.job.get() {
        message!("job {job} goes on; 'windlass job wait {job}' waits for it");
    }
    std::process::exit(code)
}

/// Asks the server to cancel the job, and retries while no server answers.
fn cancel(shared: &Arc<Shared>) {
    if shared.canceling.swap(true, Ordering::SeqCst) {
        return;
    }
    let shared = shared.clone();
    tokio::spawn(async move {
        let Some(job) = shared.job.get().copied() else { return };
        for _ in 0..CANCEL_TRIES {
            match shared.client.act(job, "cancel").await {
                Err(error) if error.is_temporary() => tokio::time::sleep(Duration::from_secs(1)).await,
                // A job that has ended meanwhile need not be cancelled.
                Ok(_) | Err(_) => return,
            }
        }
        message!("note: job {job} could not be cancelled, because no server answers; it may go on");
        if shared.mode == Mode::Owning {
            std::process::exit(shared.code.load(Ordering::SeqCst));
        }
    });
}
