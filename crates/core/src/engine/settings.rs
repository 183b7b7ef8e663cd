//! Queues and limits as somebody sets them. They come into force with their commit, so that a failed one
//! leaves nothing to take back.

use super::{Engine, Outbox, Refusal, Reply, WorkerCommand, Write};
use crate::bounds::LIMITS_MAX;
use crate::ids::{RequestId, TaskId, WorkerId};
use crate::licences::Limit;
use crate::queues::{QueueRecord, check_name};

/// Something that somebody sets, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Setting {
    Queue(String),
    Limit(String),
}

impl Engine {
    pub(super) fn set_queue(&mut self, request: RequestId, queue: QueueRecord, out: &mut Outbox) {
        let checked = queue.check().map_err(Refusal::from);
        if checked.is_ok() && queue.paused.is_some() {
            self.recall_queue(&queue.name, out);
        }
        answer(request, checked.map(|()| Write::Queue(queue)), out);
    }

    /// Asks for the attempts of a queue that wait in backlogs.
    fn recall_queue(&mut self, name: &str, out: &mut Outbox) {
        let of_queue =
            |task: TaskId| self.ledger.jobs.get(&task.job).is_some_and(|job| job.spec.queue == name);
        let queued = self.ledger.attempts.iter().filter(|(task, attempt)| attempt.queued && of_queue(**task));
        let queued: Vec<_> = queued.map(|(task, attempt)| (*task, attempt.number, attempt.worker)).collect();
        self.recall(queued, out);
    }

    /// Asks workers for attempts that have not started: the task, the attempt's number, the worker.
    pub(super) fn recall(&mut self, queued: Vec<(TaskId, u32, WorkerId)>, out: &mut Outbox) {
        for (task, attempt, worker) in queued {
            if let Some(attempt) = self.ledger.attempts.get_mut(&task) {
                attempt.recalled = true;
            }
            self.send(worker, WorkerCommand::Recall { task, attempt }, out);
        }
    }

    pub(super) fn set_limit(
        &mut self,
        request: RequestId,
        name: String,
        limit: Option<Limit>,
        out: &mut Outbox,
    ) {
        let checked = self.check_limit(&name, limit.as_ref());
        if checked.is_ok() {
            self.write_tried_again(&name, out);
        }
        answer(request, checked.map(|()| Write::Limit { name, limit }), out);
    }

    fn check_limit(&self, name: &str, limit: Option<&Limit>) -> Result<(), Refusal> {
        let limits = self.licences.limits();
        let known = limits.contains_key(name);
        let Some(limit) = limit else {
            return if known { Ok(()) } else { Err(Refusal::NoLimit(name.to_owned())) };
        };
        check_name("the name of the limit", name)?;
        limit.check()?;
        if !known && limits.len() >= LIMITS_MAX {
            let (is, max) = (LIMITS_MAX as u64 + 1, LIMITS_MAX as u64);
            return Err(Refusal::TooMany { what: "limits of the farm", is, max });
        }
        Ok(())
    }

    /// Takes in what is durable now.
    pub(super) fn come_into_force(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Queue(queue) => self.plan.queues.set(queue),
                Write::Limit { name, limit } => {
                    self.licences.set(name, limit.as_ref());
                    self.cap_workers(name);
                    self.try_again(name);
                }
                _ => continue,
            }
            self.plan.request_round();
        }
    }

    /// A commit failed, or its outcome is unknown. The requests for these settings were answered with an error.
    pub(super) fn note_unsure_settings(&mut self, writes: &[Write]) {
        self.unsure_settings.extend(writes.iter().filter_map(|write| match write {
            Write::Queue(queue) => Some(Setting::Queue(queue.name.clone())),
            Write::Limit { name, .. } => Some(Setting::Limit(name.clone())),
            _ => None,
        }));
    }

    /// Writes what is in force, so that no later engine finds something else in the store.
    pub(super) fn save_settings_again(&mut self, out: &mut Outbox) {
        for setting in std::mem::take(&mut self.unsure_settings) {
            out.writes.push(match setting {
                Setting::Queue(name) => {
                    let known = self.plan.queues.id(&name).map(|id| self.plan.queues.get(id).record.clone());
                    Write::Queue(known.unwrap_or_else(|| QueueRecord::named(&name)))
                }
                Setting::Limit(name) => {
                    let limit = self.licences.limits().get(&name).cloned();
                    Write::Limit { name, limit }
                }
            });
        }
    }
}

fn answer(request: RequestId, done: Result<Write, Refusal>, out: &mut Outbox) {
    let answer = match done {
        Ok(write) => {
            out.writes.push(write);
            Reply::Done
        }
        Err(refusal) => Reply::Refused(refusal),
    };
    out.answers.push((request, answer));
}
