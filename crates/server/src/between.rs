//! What the shell of a farm that is divided does besides: it brings the messages of other shards to the engine, leases
//! numbers for it, and says what became of jobs that only the store knows. The engine forgets nothing that it was told, so
//! all this may come twice, or late.

use crate::background::Background;
use crate::bodies::{self, steps_of};
use crate::handle::Unavailable;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windlass_core::JobId;
use windlass_core::engine::{Engine, Event, Write};
use windlass_core::ids::ShardId;
use windlass_core::job::JobRecord;
use windlass_core::shards::Message;
use windlass_store::{MAIL, Mail, MailPlace, StepBodies, Store, StoreError};

/// How often messages are looked for whose notice was lost, and shards that were added.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Numbers that are leased at a time. Those that are left when an engine ends are lost, so there are few of them.
const NUMBERS: u64 = 256;
/// Numbers that are left when more are leased: more than jobs are accepted while the store answers.
const NUMBERS_MIN: u64 = 128;
/// Jobs of other shards that are looked up in one look.
const AWAITED_MAX: usize = 64;
/// Jobs that are read with a page of messages. The engine holds each of them afterwards.
const JOBS_MAX: usize = 256;

/// A look into the store, and what it makes happen.
pub(crate) type Look = Pin<Box<dyn Future<Output = Found> + Send>>;

/// What a look brought.
#[derive(Default)]
pub(crate) struct Found {
    events: Vec<Event>,
    mail: Vec<Mail>,
    /// Where the next page of messages begins; `None` if all were read.
    mail_after: Option<MailPlace>,
    /// What the store has of jobs of which messages bring tasks; `None` before it was asked.
    jobs: Option<BTreeMap<JobId, JobRecord>>,
    /// What these tasks run, where that is small.
    pub bodies: StepBodies,
}

impl Found {
    /// The jobs of which messages bring tasks and that the engine has not. The messages end after [`JOBS_MAX`] of them, and the
    /// others are on the next page.
    pub fn jobs_to_read(&mut self, engine: &Engine) -> BTreeSet<JobId> {
        let mut jobs = BTreeSet::new();
        if self.jobs.is_some() {
            return jobs;
        }
        for (at, mail) in self.mail.iter().enumerate() {
            let Message::Delegate { job, .. } = mail.message else { continue };
            if engine.job(job).is_some() || jobs.contains(&job) {
                continue;
            }
            if jobs.len() == JOBS_MAX {
                let last = &self.mail[at - 1];
                self.mail_after = Some(MailPlace { from: last.from, number: last.number });
                self.mail.truncate(at);
                break;
            }
            jobs.insert(job);
        }
        jobs
    }

    /// Reads these jobs in one go. An engine that asks for each of them when the turn of its message comes waits for a commit and
    /// a read each time. Where this fails, it does.
    pub async fn read(mut self, jobs: BTreeSet<JobId>, store: Store) -> Found {
        let records = store.records(jobs).await.unwrap_or_default();
        let steps = steps_of(records.iter());
        self.bodies = store.small_bodies(steps, bodies::TINY_BYTES).await.unwrap_or_default();
        self.jobs = Some(records.into_iter().map(|record| (record.id, record)).collect());
        self
    }
}

/// When to look next, and what was seen before.
pub(crate) struct Between {
    /// The shards of the farm as the engine knows them. Empty where the farm is not divided: nothing is looked for then.
    shards: BTreeSet<ShardId>,
    /// When all was looked for last. A notification makes it look for messages alone.
    looked: Instant,
    /// The job whose state is looked up next.
    awaited_from: JobId,
    /// A message may have come since the first page was read.
    is_woken: bool,
    /// Where the next page of messages begins; `None` if the last look read all that there were.
    mail_after: Option<MailPlace>,
    /// The last look failed, which was said.
    is_away: Arc<AtomicBool>,
}

impl Between {
    /// For an engine with these other shards.
    pub fn new(own: ShardId, peers: &BTreeSet<ShardId>) -> Between {
        let mut shards = peers.clone();
        if !peers.is_empty() {
            shards.insert(own);
        }
        Between {
            shards,
            looked: Instant::now(),
            awaited_from: JobId(0),
            is_woken: true,
            mail_after: None,
            is_away: Arc::default(),
        }
    }

    /// The numbers that the engine begins with; none where the farm is not divided.
    pub async fn first_numbers(&self, store: &Store) -> Result<Option<Event>, StoreError> {
        if self.shards.is_empty() {
            return Ok(None);
        }
        let (jobs, workers) = store.lease_numbers(NUMBERS).await?;
        Ok(Some(Event::Numbers { jobs, workers }))
    }

    /// A message may have come.
    pub fn wake(&mut self) {
        self.is_woken = true;
    }

    /// When to look next, in nanoseconds from now; `None` where there is nothing to look for.
    pub fn wait_ns(&self) -> Option<u64> {
        let left = LOOK_EVERY.saturating_sub(self.looked.elapsed());
        (!self.shards.is_empty()).then_some(left.as_nanos() as u64)
    }

    /// Begins to look, if it is time to.
    pub fn look(&mut self, engine: &Engine, store: &Store, background: &Background) -> Option<Look> {
        if self.shards.is_empty() {
            return None;
        }
        let (jobs, workers) = engine.numbers_left();
        let needs_numbers = jobs.min(workers) < NUMBERS_MIN;
        let is_late = self.looked.elapsed() >= LOOK_EVERY;
        // After a failure it waits for the next second.
        let is_due = (self.is_woken || self.mail_after.is_some() || needs_numbers)
            && !self.is_away.load(Ordering::Relaxed);
        if !is_late && !is_due {
            return None;
        }
        let mail_after = self.mail_after.take();
        // A message that came meanwhile may be on a page before this one.
        self.is_woken &= mail_after.is_some();
        let heard = self.shards.iter().map(|shard| (*shard, engine.heard(*shard))).collect();
        let mut seen = BeforeLook { shards: None, heard, mail_after, awaited: Vec::new(), needs_numbers };
        if is_late {
            self.looked = Instant::now();
            seen.shards = Some(self.shards.clone());
            seen.awaited = self.next_awaited(engine);
        }
        let (store, is_away) = (store.clone(), self.is_away.clone());
        Some(background.run(async move {
            let found = seen.look(&store).await;
            let was_away = is_away.swap(found.is_err(), Ordering::Relaxed);
            match found {
                Ok(found) => found,
                Err(error) => {
                    if !was_away {
                        tracing::error!("messages of other shards wait: {}", Unavailable::from_store(&error));
                    }
                    Found::default()
                }
            }
        }))
    }

    /// Some of the jobs that the engine waits for, one after the other.
    fn next_awaited(&mut self, engine: &Engine) -> Vec<JobId> {
        let all = engine.awaited_elsewhere();
        let from = self.awaited_from;
        let next: Vec<JobId> =
            all.range(from..).chain(all.range(..from)).copied().take(AWAITED_MAX).collect();
        self.awaited_from = next.last().map_or(from, |last| JobId(last.0 + 1));
        next
    }

    /// Takes in what a look brought; returns what of it is for the engine.
    pub fn takes(&mut self, found: Found) -> Vec<Event> {
        let mut events = found.events;
        for event in &events {
            if let Event::Shards(shards) = event {
                self.shards = shards.clone();
            }
        }
        self.mail_after = found.mail_after;
        let mut jobs = found.jobs.unwrap_or_default();
        events.extend(found.mail.into_iter().map(|Mail { from, number, message }| {
            let record = message.job().and_then(|job| jobs.remove(&job)).map(Box::new);
            Event::Told { from, number, message, record }
        }));
        events
    }

    /// Tells the shards for which a durable batch has messages. Where that fails, they look by themselves.
    pub fn tell(&self, store: &Store, background: &Background, writes: &[Write]) {
        let receivers = writes.iter().filter_map(|write| match write {
            Write::Tell { to, .. } => Some(*to),
            _ => None,
        });
        let receivers: BTreeSet<ShardId> = receivers.collect();
        if receivers.is_empty() {
            return;
        }
        let receivers: Vec<String> = receivers.iter().map(ShardId::to_string).collect();
        let store = store.clone();
        background.detach(async move { _ = store.notify(MAIL, &receivers.join(",")).await });
    }
}

/// What the engine knows when a look begins.
struct BeforeLook {
    /// `None` where it is not looked whether there are more.
    shards: Option<BTreeSet<ShardId>>,
    /// The last messages that took effect, by sender.
    heard: BTreeMap<ShardId, u64>,
    /// Where the page of messages begins.
    mail_after: Option<MailPlace>,
    /// Jobs of other shards, or ended ones, that jobs of this one come after.
    awaited: Vec<JobId>,
    needs_numbers: bool,
}

impl BeforeLook {
    async fn look(self, store: &Store) -> Result<Found, StoreError> {
        let mut events = Vec::new();
        if self.needs_numbers {
            let (jobs, workers) = store.lease_numbers(NUMBERS).await?;
            events.push(Event::Numbers { jobs, workers });
        }
        if let Some(known) = self.shards {
            let shards = store.farm_shards().await?;
            if shards.len() > known.len() {
                events.push(Event::Shards(shards));
            }
        }
        let is_new = |mail: &Mail| self.heard.get(&mail.from).is_none_or(|heard| *heard < mail.number);
        let mut page = store.mail(self.mail_after).await?;
        page.mail.retain(is_new);
        let mut states = BTreeMap::new();
        for id in self.awaited {
            states.insert(id, store.job(id).await?.map(|job| job.state));
        }
        if !states.is_empty() {
            events.push(Event::EndedElsewhere(states));
        }
        Ok(Found { events, mail: page.mail, mail_after: page.next, ..Found::default() })
    }
}
