//! What failed commits left to do, and which messages are out of date.

use super::{Outbox, WorkerCommand, Write};
use crate::ids::WorkerId;
use crate::ledger::{Books, lifecycle};
use crate::queues::QueueRecord;
use crate::workers::Workers;
use std::collections::BTreeSet;

/// Batches that may hold what was decided before a hello: the one in flight, and the one that forms.
const BATCHES: u32 = 2;

/// What failed commits left to be written again, and how many batches may hold what is out of date.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Commits {
    /// Workers whose rows are not known to be durable.
    unsaved: BTreeSet<WorkerId>,
    /// Workers that are gone here and not yet in the store.
    unsaved_gone: BTreeSet<WorkerId>,
    /// Settings that a failed commit wrote, and that the store may have all the same.
    unsure_settings: BTreeSet<Setting>,
    /// Batches still to be released that may hold messages from before a hello.
    greetings: u32,
}

/// Something that an administrator sets, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Setting {
    Queue(String),
    Limit(String),
}

impl Commits {
    /// A worker said hello.
    pub(super) fn note_hello(&mut self) {
        self.greetings = BATCHES;
    }

    /// What was meant for the connection before the last hello is nothing for the one after it: a lease counts from a
    /// clock that may be another machine's. A wish for another hello holds. Reports that came behind the last one may
    /// have been dropped before the wish, and are repeated after the next.
    pub(super) fn drop_outdated(&mut self, batch: &mut Outbox, workers: &Workers) {
        if self.greetings == 0 {
            return;
        }
        self.greetings -= 1;
        batch.sends.retain(|send| {
            let is_resync = matches!(send.command, WorkerCommand::Resync);
            workers.get(send.worker).is_some_and(|w| is_resync || send.seq >= w.link.welcome_seq)
        });
    }

    /// These were not durable, or that is not known: what they wrote is written again.
    pub(super) fn note_unsaved(&mut self, writes: &[Write], books: &mut Books) {
        let Commits { unsaved, unsaved_gone, unsure_settings, .. } = self;
        for write in writes {
            match write {
                Write::WorkerGone(id) => _ = unsaved_gone.insert(*id),
                // The requests for these settings were answered with an error.
                Write::Queue(QueueRecord { name, .. }) | Write::QueueGone(name) => {
                    _ = unsure_settings.insert(Setting::Queue(name.clone()));
                }
                Write::Limit { name, .. } => _ = unsure_settings.insert(Setting::Limit(name.clone())),
                Write::History { signature, .. } => books.profiles.save_again(signature),
                Write::Turns(turns) => books.plan.queues.save_turns_again(turns),
                _ => {}
            }
            unsaved.extend(write.worker());
        }
    }

    /// Writes what is in force, so that no later engine finds something else in the store.
    pub(super) fn save_again(&mut self, books: &mut Books, out: &mut Outbox) {
        let gone = std::mem::take(&mut self.unsaved_gone);
        out.writes.extend(gone.into_iter().map(Write::WorkerGone));
        for setting in std::mem::take(&mut self.unsure_settings) {
            out.writes.push(match setting {
                Setting::Queue(name) => {
                    let queues = &books.plan.queues;
                    match queues.id(&name).map(|id| queues.get(id).record.clone()) {
                        Some(record) => Write::Queue(record),
                        None => Write::QueueGone(name),
                    }
                }
                Setting::Limit(name) => {
                    let limit = books.ledger.licences.limits().get(&name).cloned();
                    Write::Limit { name, limit }
                }
            });
        }
        // What was lost with a worker's earlier epochs was given back by the store and is lost again, in the batch that
        // raises the epoch.
        for id in std::mem::take(&mut self.unsaved) {
            let Some(worker) = books.plan.workers.get(id) else { continue };
            out.writes.push(Write::Worker(worker.stored()));
            lifecycle::lose_attempts(books, id, out);
        }
    }
}
