//! A farm of two shards.

use super::{Farm, cores, set_limit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::engine::{Event, FetchQuery, Outbox, Settings, WorkerCommand, Write};
use windlass_core::ids::ShardId;
use windlass_core::job::{JobRecord, JobSpec, JobState};
use windlass_core::licences::Limit;
use windlass_core::shards::Message;
use windlass_core::{JobId, TaskId, Time};

/// The engines of two shards, 1 and 2, and the messages between them.
pub struct Divided {
    pub farms: Vec<Farm>,
    pub accepted: BTreeMap<JobId, (Arc<JobSpec>, Time, ShardId)>,
    /// What was sent, for tests.
    pub sent: Vec<(ShardId, Message)>,
    pub writes: Vec<(usize, Write)>,
    pub starts: usize,
    /// Tasks that workers were told to kill and that have not ended, by the shard's place.
    pub killed: BTreeSet<(usize, TaskId)>,
}

pub const HOME: usize = 0;
pub const OTHER: usize = 1;

impl Divided {
    /// Shard 1 has one worker with `home_cores`. Shard 2 has a worker for each entry of `others`, with that many cores.
    pub fn new(home_cores: u32, others: &[u32]) -> Divided {
        let mut farms = Vec::new();
        for number in 1..=2_u64 {
            let shard = ShardId(number as u32);
            let mut farm = Farm::new(Settings { shard, ..Settings::default() });
            farm.hear(Event::Shards([ShardId(1), ShardId(2)].into()));
            let block = number * 1_000..number * 1_000 + 500;
            farm.hear(Event::Numbers { jobs: block.clone(), workers: block });
            farms.push(farm);
        }
        farms[HOME].worker("home", cores(home_cores));
        for (number, slots) in others.iter().enumerate() {
            farms[OTHER].worker(&format!("other{number}"), cores(*slots));
        }
        let (accepted, sent, writes) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut divided = Divided { farms, accepted, sent, writes, starts: 0, killed: BTreeSet::new() };
        divided.carry();
        divided
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        let job = self.farms[HOME].submit(spec);
        self.carry();
        job
    }

    /// Time passes, and messages are carried until there are none.
    pub fn pass(&mut self, seconds: u64) {
        self.farms.iter_mut().for_each(|farm| farm.pass(seconds));
        self.carry();
    }

    pub fn carry(&mut self) {
        for _ in 0..100 {
            for farm in &mut self.farms {
                farm.now = farm.now.after(110_000_000);
                farm.tell(Event::Tick);
            }
            let mut mail = Vec::new();
            for number in 0..self.farms.len() {
                let out = self.farms[number].take();
                self.note(number, &out, &mut mail);
                self.answer(number, &out);
            }
            if mail.is_empty() && self.farms.iter().all(|farm| farm.out.is_empty()) {
                return;
            }
            for (from, to, number, message) in mail {
                self.sent.push((from, message.clone()));
                let farm = &mut self.farms[to.0 as usize - 1];
                farm.tell(Event::Told { from, number, message, record: None });
            }
        }
        panic!("messages go to and fro without an end: {:?}", self.sent.iter().rev().take(20));
    }

    pub fn note(&mut self, number: usize, out: &Outbox, mail: &mut Vec<(ShardId, ShardId, u64, Message)>) {
        let from = ShardId(number as u32 + 1);
        self.starts += super::starts(out).len();
        for send in &out.sends {
            if let WorkerCommand::Kill { task, .. } = send.order {
                self.killed.insert((number, task));
            }
        }
        for write in &out.writes {
            self.writes.push((number, write.clone()));
            match write {
                Write::Tell { to, number, message } => mail.push((from, *to, *number, message.clone())),
                Write::Job { id, spec, created } => {
                    let spec = Arc::new(spec.without_bodies());
                    self.accepted.insert(*id, (spec, *created, from));
                }
                _ => {}
            }
        }
    }

    /// Answers what an engine reads of jobs.
    fn answer(&mut self, number: usize, out: &Outbox) {
        for fetch in &out.fetches {
            let FetchQuery::Jobs(jobs) = &fetch.wanted else { continue };
            let records = jobs.iter().filter_map(|id| {
                let (spec, created, home) = self.accepted.get(id)?;
                Some(JobRecord::new(*id, spec.clone(), *created, *home))
            });
            let records = Some(records.collect());
            self.farms[number].tell(Event::Fetched { number: fetch.number, records });
        }
    }

    pub fn set_limit(&mut self, name: &str, limit: Limit) {
        self.farms[HOME].hear(set_limit(name, limit));
        self.carry();
    }

    /// How many tasks run in each shard.
    pub fn running(&self) -> (usize, usize) {
        (self.farms[HOME].engine.attempts().len(), self.farms[OTHER].engine.attempts().len())
    }

    /// How many of a limit the home counts as taken.
    pub fn taken(&self, name: &str) -> u32 {
        self.farms[HOME].engine.licences().taken().get(name).copied().unwrap_or(0)
    }

    /// Ends all that runs until nothing does, and returns how many tasks ran at a time at most, and how many in the other
    /// shard at all.
    pub fn run_to_the_end(&mut self) -> (usize, usize) {
        let (mut most, mut in_other) = (0, 0);
        while self.running() != (0, 0) {
            let (home, other) = self.running();
            most = most.max(home + other);
            in_other += other;
            self.end_all(OTHER, 0);
            self.end_all(HOME, 0);
        }
        (most, in_other)
    }

    pub fn messages_of(&self, is_such: impl Fn(&Message) -> bool) -> usize {
        self.sent.iter().filter(|(_, message)| is_such(message)).count()
    }

    pub fn ended(&self, job: JobId) -> Option<JobState> {
        let ends = self.writes.iter().filter_map(|(number, write)| match write {
            Write::JobEnd { job: id, state, .. } if *id == job => Some((*number, *state)),
            _ => None,
        });
        let ends: Vec<_> = ends.collect();
        assert!(ends.len() <= 1 && ends.iter().all(|(number, _)| *number == HOME), "{ends:?}");
        ends.first().map(|(_, state)| *state)
    }

    /// All that runs in a shard ends.
    pub fn end_all(&mut self, number: usize, exit: i32) -> usize {
        let running: Vec<_> = self.farms[number].engine.attempts().map(|(task, _)| task).collect();
        running.iter().for_each(|task| self.farms[number].end(*task, exit));
        self.carry();
        running.len()
    }
}
