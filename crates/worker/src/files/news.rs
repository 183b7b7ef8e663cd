//! What the agent says while it makes an attempt's files ready or keeps its outputs: a text for people, at most once a
//! second.

use super::server::FileCall;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use windlass_api::wire::{Progress, report};
use windlass_core::resources::Bytes;

/// The pause between two texts about one attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes a report on to the server.
pub type Tell = Box<dyn Fn(report::What) + Send + Sync>;

/// Says how far a phase of an attempt is.
pub struct PhaseNews<'a> {
    tell: &'a Tell,
    call: &'a FileCall,
    phase: &'static str,
    /// The keeper has just said that the phase begins.
    last: Mutex<Instant>,
}

impl<'a> PhaseNews<'a> {
    /// Of a phase that begins now.
    pub fn new(tell: &'a Tell, call: &'a FileCall, phase: &'static str) -> PhaseNews<'a> {
        PhaseNews { tell, call, phase, last: Mutex::new(Instant::now()) }
    }

    /// Says how many of all bytes are done.
    pub fn say(&self, done: u64, all: u64) {
        let mut last = self.last.lock();
        if last.elapsed() < PAUSE {
            return;
        }
        *last = Instant::now();
        (self.tell)(progress(self.call, Some(format!("{}: {} of {}", self.phase, Bytes(done), Bytes(all)))));
    }
}

/// A phase is over, so that its text does not stand beside what the task says of itself.
pub fn phase_is_over(tell: &Tell, call: &FileCall) {
    tell(progress(call, None));
}

fn progress(call: &FileCall, status: Option<String>) -> report::What {
    report::What::Progress(Progress {
        task: Some(call.task.into()),
        epoch: call.epoch,
        percent: None,
        status,
    })
}
