//! Attempts with files: each runs in a directory of its own. The agent makes the directory, and keeps what is to be kept
//! of it when the attempt has ended. This module asks for both and never waits: the keeper goes on with everything else.
//!
//! - A directory is made while its attempt waits for room. An attempt whose turn comes before that holds its room, and
//!   the others go on in their order.
//! - The result of an attempt is held back until its outputs are kept, and its room with it: the engine has that booked
//!   until the result comes.
//! - Both questions are asked again after every hello, because an agent that is gone answers nothing.
//! - A kill and the end of the lease wait for no answer. An answer that comes later changes nothing, and a directory that
//!   no attempt needs is given back.

use super::attempt::{EndedAttempt, FilesPlace, Waiting};
use super::{Tasks, chunk};
use crate::keeper::env::{Refused, refuse};
use crate::keeper::link::Link;
use crate::protocol::{Body, FromKeeper, TaskRef, ToKeeper, WireEnd};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The variable that tells a task's processes its directory.
const VARIABLE: &str = "WINDLASS_FILES";
/// Pause before directories are asked for again, after the agent could not make one for a reason that passes.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Tasks {
    /// Asks the agent, after its hello, for all that it has not answered. What running attempts were said to do before they
    /// ran is taken back: the server may not have heard that they started.
    pub(super) fn ask_about_files(&mut self, link: &mut Link) {
        self.ask_for_directories(link);
        for (task, running) in self.running.iter().filter(|(_, running)| running.place.is_some()) {
            tell_phase(*task, running.epoch, None, link);
        }
        for (task, ended) in &self.collecting {
            ended.ask(*task, link);
        }
    }

    /// Asks for the directories of all attempts that wait for one.
    pub(super) fn ask_for_directories(&mut self, link: &mut Link) {
        self.ask_at = None;
        for waiting in self.waiting.iter().filter(|waiting| waiting.awaits_directory()) {
            waiting.ask(link);
            if waiting.parked {
                waiting.tell_it_prepares(link);
            }
        }
    }

    /// Takes in what the agent says of an attempt's files.
    pub(super) fn hear_of_files(&mut self, message: ToKeeper, link: &mut Link) {
        match message {
            ToKeeper::Prepared { task, epoch, directory: Some(directory), stdin, .. } => {
                self.take_directory((task, epoch), directory, stdin, link);
            }
            ToKeeper::Prepared { task, epoch, why, job_at_fault, passing, .. } => {
                let is_it = |waiting: &Waiting| waiting.is(task, epoch) && waiting.awaits_directory();
                if !self.waiting.iter().any(is_it) {
                    return;
                }
                let why = why.unwrap_or_else(|| "its worker did not make its directory".to_owned());
                if passing {
                    tell_phase(task, epoch, Some(format!("waits for its files: {why}")), link);
                    self.ask_at.get_or_insert_with(|| Instant::now() + ASK_AGAIN);
                } else {
                    self.unqueue(task, (WireEnd::NotStarted(why), job_at_fault), link);
                }
            }
            ToKeeper::Collected { task, epoch, why, job_at_fault } => {
                if self.collecting.get(&task).is_none_or(|ended| ended.epoch != epoch) {
                    return;
                }
                let Some(mut ended) = self.collecting.remove(&task) else { return };
                if let Some(why) = why {
                    ended.lose_outputs(why, job_at_fault);
                }
                self.let_go(task, ended, link);
            }
            _ => {}
        }
    }

    /// An attempt has its directory. One that is over by now gives it back.
    fn take_directory(
        &mut self,
        (task, epoch): (TaskRef, u64),
        directory: String,
        stdin: Option<String>,
        link: &mut Link,
    ) {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.task == task) {
            if waiting.epoch == epoch && waiting.awaits_directory() {
                let outputs = waiting.body.files.is_some_and(|files| files.outputs);
                waiting.place = Some(FilesPlace { directory, stdin, outputs });
            }
        } else if !self.running.contains_key(&task) && !self.collecting.contains_key(&task) {
            link.send(&FromKeeper::Discard { directory });
        }
    }

    /// Reports an attempt of which no process is left, or has its outputs kept first.
    pub(super) fn report_end(&mut self, task: TaskRef, ended: EndedAttempt, link: &mut Link) {
        if ended.is_to_collect() {
            ended.ask(task, link);
            self.collecting.insert(task, ended);
        } else {
            self.let_go(task, ended, link);
        }
    }

    /// A kill of an attempt whose outputs are being kept. One that was cancelled before goes on: the server repeats a kill
    /// of what it takes to be running.
    pub(super) fn stop_collecting(&mut self, task: TaskRef, link: &mut Link) {
        if self.collecting.get(&task).is_some_and(|ended| ended.result.end != WireEnd::Canceled) {
            self.give_up_outputs(task, WireEnd::Canceled, link);
        }
    }

    /// Keeps no outputs for any attempt any more, because the lease has run out.
    pub(super) fn fence_collecting(&mut self, link: &mut Link) {
        let tasks: Vec<TaskRef> = self.collecting.keys().copied().collect();
        for task in tasks {
            self.give_up_outputs(task, WireEnd::Fenced, link);
        }
    }

    /// Reports an attempt without its outputs. One that succeeded ends so instead.
    fn give_up_outputs(&mut self, task: TaskRef, end: WireEnd, link: &mut Link) {
        let Some(mut ended) = self.collecting.remove(&task) else { return };
        if ended.result.end == WireEnd::Exited(0) {
            ended.result.end = end;
        }
        self.let_go(task, ended, link);
    }

    fn let_go(&mut self, task: TaskRef, ended: EndedAttempt, link: &mut Link) {
        let EndedAttempt { epoch, held, riders, place, result, .. } = ended;
        self.booked.sub(&held);
        for (task, result) in chunk::parts(task, &riders, result) {
            self.finish(task, epoch, result, link);
        }
        if let Some(place) = place {
            place.discard(link);
        }
    }
}

impl Waiting {
    fn is(&self, task: TaskRef, epoch: u64) -> bool {
        (self.task, self.epoch) == (task, epoch)
    }

    /// Whether it cannot start because it has no directory yet. One that is refused here needs none.
    pub(super) fn awaits_directory(&self) -> bool {
        self.body.files.is_some() && self.body.refused.is_none() && self.place.is_none()
    }

    pub(super) fn ask(&self, link: &mut Link) {
        let user = self.body.run_as.clone();
        link.send(&FromKeeper::Prepare { task: self.task, epoch: self.epoch, step: self.step, user });
    }

    /// Says why it does not start although it has room.
    pub(super) fn tell_it_prepares(&self, link: &mut Link) {
        tell_phase(self.task, self.epoch, Some("preparing its files".to_owned()), link);
    }
}

impl FilesPlace {
    /// The body of a task that runs there.
    pub(super) fn body(&self, body: &Body) -> Body {
        let mut body = body.clone();
        body.cwd = Path::new(&self.directory).join(&body.cwd).to_string_lossy().into_owned();
        body.env.insert(VARIABLE.to_owned(), self.directory.clone());
        body
    }

    /// Opens the standard input; `None` if it is empty. The file is the agent's, and opening it waits for nothing.
    pub(super) fn open_stdin(&self) -> Result<Option<Rc<File>>, Refused> {
        let Some(path) = &self.stdin else { return Ok(None) };
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let file = options.open(path).map_err(|e| refuse("open its standard input", e))?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(Refused::Worker(format!("cannot read its standard input: '{path}' is not a file")));
        }
        Ok(Some(Rc::new(file)))
    }

    /// Tells the agent that no attempt needs the directory any more.
    pub(super) fn discard(self, link: &mut Link) {
        link.send(&FromKeeper::Discard { directory: self.directory });
    }
}

impl EndedAttempt {
    /// Whether outputs are to be kept. Of one that was fenced the server takes none: it may run elsewhere by now.
    fn is_to_collect(&self) -> bool {
        let keeps = self.place.as_ref().is_some_and(|place| place.outputs);
        keeps && self.result.started.is_some() && self.result.end != WireEnd::Fenced
    }

    fn ask(&self, task: TaskRef, link: &mut Link) {
        let Some(FilesPlace { directory, .. }) = &self.place else { return };
        link.send(&FromKeeper::Collect { task, epoch: self.epoch, directory: directory.clone() });
        tell_phase(task, self.epoch, Some("keeping its outputs".to_owned()), link);
    }

    /// Its outputs could not be kept. That is the end of one that succeeded. One that failed by itself did so for its own
    /// reason.
    fn lose_outputs(&mut self, why: String, job_at_fault: bool) {
        let result = &mut self.result;
        if result.end == WireEnd::Exited(0) {
            (result.end, result.job_at_fault) = (WireEnd::OutputsLost(why), job_at_fault);
            return;
        }
        let said = result.message.take().map(|said| format!("{said}; ")).unwrap_or_default();
        result.message = Some(format!("{said}its outputs could not be kept: {why}"));
    }
}

/// Says what an attempt does before or after its command runs; `None` takes back what was said.
fn tell_phase(task: TaskRef, epoch: u64, status: Option<String>, link: &mut Link) {
    link.send(&FromKeeper::Progress { task, epoch, percent: None, status });
}

#[cfg(test)]
mod tests;
