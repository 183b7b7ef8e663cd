//! Events of tasks that run in other shards than the first. Each shard's owner writes them as rows; the owner of the first
//! shard reads them, adds what it alone knows, and tells them like its own: to the listeners here, and by
//! [`relay`](super::relay) to those of the servers that stand by. So each event has one way to each listener.

use super::relay::{EventRow, next};
use crate::away;
use crate::handle::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use windlass_api::{Counts, ServerEvent};
use windlass_core::ids::ShardId;
use windlass_core::{Engine, JobId};
use windlass_store::{Ownership, ShardEvents, StoreError};

/// After a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows that are read at a time.
const ROWS_MAX: usize = 64;
/// Jobs of which it is looked at once how many tasks run in other shards.
const JOBS_MAX: usize = 1_000;
/// Bits of a row's number that count the rows of one owner. The bits above are its epoch.
const COUNT_BITS: u32 = 32;

/// Writes what happens in a shard, until its engine ends here.
pub(crate) async fn tell(handle: Handle) {
    let Some(Ownership { shard, epoch, .. }) = handle.store().ownership() else { return };
    let (shard, mut number) = (*shard, (*epoch as i64) << COUNT_BITS);
    let mut events = Some(handle.subscribe());
    let mut row = EventRow::default();
    loop {
        tokio::select! {
            () = handle.ends() => return,
            event = next(&mut events), if row.has_room() => row.add(&event),
            () = tokio::time::sleep_until(row.due.unwrap_or_else(Instant::now)), if row.due.is_some() => {
                // A number is used once: whether a write that failed was made is not known.
                number += 1;
                let events = std::mem::take(&mut row).lines;
                let told = handle.store().tell_shard_events(ShardEvents { shard, number, events }).await;
                if let Err(error) = told {
                    tracing::warn!("clients are not told what happens in shard {shard}: {error}");
                    row.add(&ServerEvent::Lagged);
                    row.due = Some(Instant::now() + PAUSE);
                }
            }
        }
    }
}

/// Events of the other shards, for the listeners of the first one's owner.
pub(super) struct ShardInbound {
    handle: Handle,
    /// The rows that were read last, by shard; `None` until they are known.
    after: Option<BTreeMap<ShardId, i64>>,
    /// The listeners' events have counts of what runs in other shards.
    knows_away: bool,
}

impl ShardInbound {
    /// From now on.
    pub async fn new(handle: Handle) -> ShardInbound {
        let after = handle.store().last_shard_events().await.ok();
        ShardInbound { handle, after, knows_away: false }
    }

    /// Reads what is new and tells the listeners.
    pub async fn read(&mut self) -> Result<(), StoreError> {
        let store = self.handle.store();
        if self.handle.listeners() == 0 || self.after.is_none() {
            let last = store.last_shard_events().await?;
            if self.handle.listeners() > 0 {
                self.handle.events().tell(ServerEvent::Lagged);
            }
            // Rows that are gone leave their last number unknown, and numbers only rise.
            let after = self.after.get_or_insert_default();
            for (shard, number) in last {
                let known = after.entry(shard).or_insert(number);
                *known = (*known).max(number);
            }
            self.knows_away = false;
            self.handle.events().forget_away();
            return Ok(());
        }
        if !self.knows_away {
            let has_some = |engine: &Engine| {
                let away =
                    engine.jobs().filter(|job| job.steps.iter().any(|step| !step.delegated.is_empty()));
                away.map(|job| job.id).take(JOBS_MAX).collect::<BTreeSet<_>>()
            };
            if let Ok(jobs) = self.handle.query(has_some).await {
                self.counts(jobs).await?;
                self.knows_away = true;
            }
        }
        while let Some(after) = &mut self.after {
            let rows = self.handle.store().shard_events(after, ROWS_MAX).await?;
            let count = rows.len();
            let (mut events, mut has_missed) = (Vec::new(), false);
            for row in rows {
                // A number that is left out is a row that is gone, or was never written.
                has_missed |= after.insert(row.shard, row.number).is_none_or(|last| row.number > last + 1);
                // A later release may have events that this one does not know.
                events.extend(
                    row.events.lines().map(|line| serde_json::from_str(line).unwrap_or(ServerEvent::Lagged)),
                );
            }
            if has_missed {
                self.handle.events().tell(ServerEvent::Lagged);
            }
            self.tell(events).await;
            if count < ROWS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// What jobs of this shard count, with what of them runs in others. Later events of theirs count that too.
    async fn counts(&self, jobs: BTreeSet<JobId>) -> Result<BTreeMap<u64, Counts>, StoreError> {
        let look = move |engine: &Engine| {
            let known = jobs.iter().filter_map(|id| engine.job(*id));
            known.map(|job| (job.id, job.counts(), away::delegated(job))).collect::<Vec<_>>()
        };
        let known = self.handle.query(look).await.unwrap_or_default();
        let delegated = known.iter().map(|(id, _, delegated)| (*id, delegated));
        let running = away::running(self.handle.store(), delegated).await?;
        let mut counts = BTreeMap::new();
        for (id, own, _) in known {
            let running = running.get(&id).copied().unwrap_or(0);
            self.handle.events().set_away(id, running);
            counts.insert(id.0, away::counted(own, running).into());
        }
        Ok(counts)
    }

    /// Of a job only its home knows how many tasks are in which state.
    async fn tell(&self, events: Vec<ServerEvent>) {
        let jobs = events.iter().filter_map(|event| match event {
            ServerEvent::Tasks(event) => Some(JobId(event.job)),
            _ => None,
        });
        // Where they cannot be read, events keep the counts of their own shard: nothing reads these events again.
        let mut counts = self.counts(jobs.collect()).await.unwrap_or_default();
        for event in events {
            match event {
                ServerEvent::Tasks(mut event) => {
                    if !counts.contains_key(&event.job)
                        && let Ok(Some(ended)) = self.handle.store().job(JobId(event.job)).await
                        && let Some(found) = ended.counts
                    {
                        counts.insert(event.job, found.into());
                    }
                    event.counts = counts.get(&event.job).copied().unwrap_or(event.counts);
                    self.handle.events().tell(ServerEvent::Tasks(event));
                }
                // What becomes of a job its home says.
                ServerEvent::Job(_) => {}
                event @ (ServerEvent::Worker(_) | ServerEvent::Lagged) => self.handle.events().tell(event),
            }
        }
    }
}
