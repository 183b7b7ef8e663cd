//! What Ctrl-C and its like do to a run: the first cancels its job, the second gives up on waiting.

use crate::error::{BROKEN_PIPE, CliError, FAILED};
use crate::output::talk;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use windlass_api::client::Client;

/// How long a cancel is tried again while no server answers.
const CANCEL_TRIES: u32 = 60;

/// Whether somebody asked the run to stop; cheap to clone.
#[derive(Clone)]
pub struct Stop {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// The exit code that the first request to stop asks for; 0 until there is one.
    code: AtomicI32,
    job: OnceLock<u64>,
    /// Standard output went away; woken from the thread that writes.
    broken: Notify,
    /// The server is being asked; once is enough.
    canceling: AtomicBool,
    mode: Mode,
}

/// What this process is to the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It submitted the job, which ends with it unless it is left behind.
    Owning,
    /// As before, and the server lives in this process: the job cannot be left behind.
    Foreground,
    /// It only looks.
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
    /// Catches the signals from now on, so that none falls between the submission and its answer.
    pub fn listen(client: Client, foreground: bool) -> Result<Self, CliError> {
        let catch = |kind| signal(kind).map_err(|error| anyhow::Error::new(error).context("catch signals"));
        let (interrupt, terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        let hangup = catch(SignalKind::hangup())?;
        let mode = if foreground { Mode::Foreground } else { Mode::Owning };
        let shared = Arc::new(Shared::new(client, mode));
        tokio::spawn(watch(shared.clone(), interrupt, terminate, hangup));
        Ok(Stop { shared })
    }

    /// Catches nothing: signals end the process as they would any other.
    pub fn never(client: Client) -> Self {
        Stop { shared: Arc::new(Shared::new(client, Mode::Watching)) }
    }

    /// Names the job, once there is one. A request to stop that came earlier applies to it.
    pub fn set_job(&self, job: u64) {
        let _ = self.shared.job.set(job);
        if self.code().is_some() {
            cancel(&self.shared);
        }
    }

    /// The exit code that a request to stop asks for.
    pub fn code(&self) -> Option<i32> {
        Some(self.shared.code.load(Ordering::SeqCst)).filter(|code| *code != 0)
    }

    /// What the writer calls when standard output refuses. A job whose output nobody reads any more
    /// is not wanted; one whose output has no room on a disk is.
    pub fn on_broken(&self) -> impl FnOnce(&io::Error) + Send + use<> {
        let shared = self.shared.clone();
        move |error| {
            let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
            match shared.mode {
                Mode::Owning | Mode::Foreground if is_pipe => shared.broken.notify_one(),
                Mode::Owning | Mode::Foreground => {
                    talk!("note: standard output takes no more ({error}); the job goes on");
                }
                Mode::Watching if is_pipe => std::process::exit(BROKEN_PIPE),
                Mode::Watching => {
                    talk!("error: cannot write to standard output: {error}");
                    std::process::exit(FAILED);
                }
            }
        }
    }
}

async fn watch(shared: Arc<Shared>, mut interrupt: Signal, mut terminate: Signal, mut hangup: Signal) {
    loop {
        let code = tokio::select! {
            _ = interrupt.recv() => 128 + libc::SIGINT,
            _ = terminate.recv() => 128 + libc::SIGTERM,
            _ = hangup.recv() => 128 + libc::SIGHUP,
            () = shared.broken.notified() => BROKEN_PIPE,
        };
        if code == 128 + libc::SIGHUP && shared.mode == Mode::Owning {
            leave(&shared, code);
        }
        if shared.code.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            if code == BROKEN_PIPE {
                continue;
            }
            // The server has been asked already, or never will be: it finishes what it was told.
            std::process::exit(code);
        }
        match shared.job.get() {
            Some(job) if code != BROKEN_PIPE => {
                talk!("cancelling job {job}; once more to leave without waiting for it");
            }
            None => talk!("stopping as soon as the server has answered; once more to leave at once"),
            Some(_) => {}
        }
        if shared.job.get().is_some() {
            cancel(&shared);
        }
    }
}

/// The terminal is gone, the job is not.
fn leave(shared: &Shared, code: i32) -> ! {
    if let Some(job) = shared.job.get() {
        talk!("job {job} goes on; 'windlass job wait {job}' waits for it");
    }
    std::process::exit(code)
}

/// Asks the server to cancel, for as long as nobody answers.
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
                // A job that has ended meanwhile cannot be cancelled, and need not be.
                Ok(_) | Err(_) => return,
            }
        }
        talk!("note: job {job} could not be cancelled, no server takes the request; it may go on");
        if shared.mode == Mode::Owning {
            std::process::exit(shared.code.load(Ordering::SeqCst));
        }
    });
}
