//! Requests about jobs that are not resident.

use std::collections::BTreeMap;
use windlass_core::engine::{Engine, Event, Fetch, Outbox, Reply, Settings, Submit};
use windlass_core::job::{JobRecord, JobSpec, StepSpec};
use windlass_core::{JobId, RequestId, Time};
use windlass_store::Memory;

/// An engine whose cache has one step, and a store whose answers the test delays.
struct Desk {
    engine: Engine,
    store: Memory,
    answers: BTreeMap<u64, Reply>,
    wanted: Vec<Fetch>,
}

impl Desk {
    fn new() -> Desk {
        Desk {
            engine: Engine::new(Settings { cache_steps: 1, ..Settings::default() }),
            store: Memory::default(),
            answers: BTreeMap::new(),
            wanted: Vec::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(Time(1), event, &mut out);
        assert!(self.store.apply(&out.writes).is_empty(), "{:?}", out.writes);
        self.engine.committed(&out);
        self.engine.check().unwrap();
        self.answers.extend(out.replies.into_iter().map(|(request, answer)| (request.0, answer)));
        self.wanted.extend(out.fetches);
    }

    fn submit(&mut self, request: u64, after: Vec<JobId>) {
        let step = StepSpec { name: "main".to_owned(), tasks: 1, ..StepSpec::default() };
        let outcomes = after.iter().filter_map(|id| Some((*id, self.store.job(*id)?.state))).collect();
        let spec = JobSpec { queue: "q".to_owned(), after, steps: vec![step], ..JobSpec::default() };
        let request = RequestId(request);
        let submit = Submit { outcomes, ..Submit::new(request, spec) };
        self.tell(Event::Submit(Box::new(submit)));
    }

    fn hold(&mut self, request: u64, job: JobId, held: bool) {
        self.tell(Event::Hold { request: RequestId(request), job, held });
    }

    /// The store's answer to the last fetch, as of now.
    fn read(&mut self) -> (u64, Vec<JobRecord>) {
        let fetch = self.wanted.pop().expect("something was asked for");
        (fetch.number, self.store.fetch(&fetch))
    }

    fn give(&mut self, (number, records): (u64, Vec<JobRecord>)) {
        self.tell(Event::Fetched { number, records: Some(records) });
    }
}

#[test]
fn a_job_after_two_parked_ones_waits_for_both_though_one_was_touched_meanwhile() {
    let mut desk = Desk::new();
    (1..=5).for_each(|request| desk.submit(request, Vec::new()));
    let (a, b) = (JobId(3), JobId(4));
    assert!(desk.engine.job(a).is_none() && desk.engine.job(b).is_none());

    desk.submit(6, vec![a, b]);
    let both = desk.read();
    // Before that answer arrives, one of the jobs is held, released and parked again.
    desk.hold(7, a, true);
    let one = desk.read();
    desk.give(one);
    desk.hold(8, a, false);
    assert!(desk.engine.job(a).is_none());
    desk.give(both);
    for _ in 0..3 {
        if !desk.answers.contains_key(&6) {
            let again = desk.read();
            desk.give(again);
        }
    }
    let answer = desk.answers.get(&6);
    assert!(matches!(answer, Some(Reply::Submitted { .. })), "{answer:?}, wanted {:?}", desk.wanted);
    let waits: Vec<JobId> = desk.engine.job(JobId(6)).unwrap().after.iter().copied().collect();
    assert_eq!(waits, [a, b]);
    // A job with dependents is not parked, because the next engine must know it.
    let parked: Vec<u64> = (1..=6).filter(|id| desk.store.parked(JobId(*id)).is_some()).collect();
    assert_eq!(parked, [2, 5]);
}

#[test]
fn a_read_that_failed_is_tried_again_after_a_while() {
    let mut desk = Desk::new();
    (1..=3).for_each(|request| desk.submit(request, Vec::new()));
    desk.tell(Event::Cancel { request: RequestId(4), job: JobId(3) });
    let (number, _) = desk.read();
    desk.tell(Event::Fetched { number, records: None });
    assert!(desk.wanted.is_empty() && !desk.answers.contains_key(&4));
    let mut out = Outbox::default();
    desk.engine.round(Time(1), 1, &mut out);
    assert!(out.fetches.is_empty());
    let at = desk.engine.next_wakeup().expect("it wakes to try again");
    assert_eq!(at, Time(1).after(windlass_core::bounds::READ_AGAIN_NS));
    desk.engine.handle(at, Event::Tick, &mut out);
    desk.wanted.extend(out.fetches);
    let found = desk.read();
    desk.give(found);
    assert_eq!(desk.answers.get(&4), Some(&Reply::Done));
}
