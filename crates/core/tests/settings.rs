//! What people may set and ask for: queues, limits and hints. What is refused, when it comes into force, and
//! that a
//! restored engine has them.

use windlass_core::bounds::{self, LIMITS_MAX, WEIGHT_MAX};
use windlass_core::engine::{Engine, Event, Outbox, Refusal, Reply, Settings, StoredState, Submit, Write};
use windlass_core::ids::RequestId;
use windlass_core::job::{JobSpec, StepSpec};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{BadSetting, QueueRecord};
use windlass_core::{JobId, Time};

const REQUEST: RequestId = RequestId(1);

fn queue(name: &str, weight: u32, quota_cpu: Option<u32>) -> QueueRecord {
    QueueRecord { weight, quota_cpu, ..QueueRecord::named(name) }
}

fn set_limit(name: &str, max: Option<u32>) -> Event {
    Event::SetLimit { request: REQUEST, name: name.to_owned(), limit: max.map(Limit::of) }
}

fn set_queue(queue: QueueRecord) -> Event {
    Event::SetQueue { request: REQUEST, queue }
}

fn handle(engine: &mut Engine, event: Event) -> Outbox {
    let mut out = Outbox::default();
    engine.handle(Time(1), event, &mut out);
    out
}

/// Why the event was refused; panics if it was not.
fn refused(engine: &mut Engine, event: Event) -> Refusal {
    let out = handle(engine, event);
    assert!(out.writes.is_empty(), "{:?}", out.writes);
    match out.replies.into_iter().next() {
        Some((REQUEST, Reply::Refused(refusal))) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_queue_counts_as_set_from_its_commit_on() {
    let mut engine = Engine::new(Settings::default());
    let batch = handle(&mut engine, set_queue(queue("a", 300, Some(250))));
    assert_eq!(batch.writes, [Write::Queue(queue("a", 300, Some(250)))]);
    assert_eq!(engine.queues().by_name().count(), 0, "a failed commit leaves nothing");
    engine.committed(&batch);
    let set = engine.queues().by_name().next().unwrap();
    assert_eq!((set.name(), set.share().weight(), set.record.quota_cpu), ("a", 300, Some(250)));
    assert_eq!(engine.next_wakeup(), Some(Time(1)), "what waited for it is looked at again");
}

#[test]
fn a_queue_is_removed_when_it_has_no_work() {
    let mut engine = Engine::new(Settings::default());
    let remove = || Event::RemoveQueue { request: REQUEST, name: "a".to_owned() };
    assert_eq!(refused(&mut engine, remove()), Refusal::NoQueue("a".to_owned()));
    let batch = handle(&mut engine, set_queue(queue("a", 300, Some(250))));
    engine.committed(&batch);
    let step = StepSpec { name: "s".to_owned(), tasks: 1, ..StepSpec::default() };
    for user in ["ann", "bob"] {
        let spec = JobSpec {
            queue: "a".to_owned(),
            user: user.to_owned(),
            steps: vec![step.clone()],
            ..JobSpec::default()
        };
        let batch = handle(&mut engine, Event::Submit(Box::new(Submit::new(REQUEST, spec))));
        engine.committed(&batch);
    }
    assert_eq!(refused(&mut engine, remove()), Refusal::QueueInUse("a".to_owned()));
    for job in [1, 2] {
        let batch = handle(&mut engine, Event::Cancel { request: REQUEST, job: JobId(job) });
        engine.committed(&batch);
    }
    let batch = handle(&mut engine, remove());
    assert!(batch.writes.contains(&Write::QueueGone("a".to_owned())), "{:?}", batch.writes);
    assert_eq!(engine.queues().by_name().count(), 1, "a failed commit leaves it");
    engine.committed(&batch);
    assert_eq!(engine.queues().by_name().count(), 0);
    engine.check().unwrap();
    // The next job makes it again, as one that was never set.
    let spec = JobSpec { queue: "a".to_owned(), steps: vec![step], ..JobSpec::default() };
    let batch = handle(&mut engine, Event::Submit(Box::new(Submit::new(REQUEST, spec))));
    engine.committed(&batch);
    assert_eq!(engine.queues().by_name().next().unwrap().record, QueueRecord::named("a"));
}

#[test]
fn a_limit_comes_changes_and_goes() {
    let mut engine = Engine::new(Settings::default());
    for (max, expected) in [(Some(3), vec![3]), (Some(0), vec![0]), (None, vec![])] {
        let batch = handle(&mut engine, set_limit("maya", max));
        engine.committed(&batch);
        assert_eq!(
            engine.licences().limits().values().filter_map(|limit| limit.max).collect::<Vec<_>>(),
            expected
        );
    }
    assert_eq!(refused(&mut engine, set_limit("maya", None)), Refusal::NoLimit("maya".to_owned()));
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    let mut engine = Engine::new(Settings::default());
    let mut bad = |event, expected: &str| assert_eq!(refused(&mut engine, event).to_string(), expected);
    bad(set_queue(queue("q", 0, None)), "weight must be from 1 to 10000, not 0");
    bad(set_queue(queue("q", WEIGHT_MAX + 1, None)), "weight must be from 1 to 10000, not 10001");
    let quota = "quota must be more than 0 cpus; pause the queue to let nothing run";
    bad(set_queue(queue("q", 1, Some(0))), quota);
    bad(set_queue(queue("", 1, None)), "the name of the queue has 0 bytes, and must have from 1 to 255");
    let long = "l".repeat(256);
    bad(set_limit(&long, Some(1)), "the name of the limit has 256 bytes, and must have from 1 to 255");
    let mut bad = |limit: Limit, expected: &str| {
        let event = Event::SetLimit { request: REQUEST, name: "l".to_owned(), limit: Some(limit) };
        assert_eq!(refused(&mut engine, event).to_string(), expected);
    };
    let busy = |exits: &[i32], back_off_ms| {
        let exits = exits.iter().copied().collect();
        Limit { busy: Some(Busy { exits, back_off_ms }), ..Limit::of(1) }
    };
    let nothing = "a limit needs max, per_worker or busy_exits; remove it to hold nothing back";
    bad(Limit::default(), nothing);
    let none = "per_worker must be more than 0; set max to 0 to let nothing start";
    bad(Limit { per_worker: Some(0), ..Limit::default() }, none);
    bad(busy(&[0], 100), "busy_exits must be from 1 to 255, not 0");
    bad(busy(&[1, 256], 100), "busy_exits must be from 1 to 255, not 256");
    let many: Vec<i32> = (1..=17).collect();
    bad(busy(&many, 100), "busy_exits has 17 codes, and may have 16");
    bad(busy(&[], 100), "back_off_ms is how long to wait after one of busy_exits: set these too");
    bad(busy(&[1], 99), "back_off_ms must be from 100 to 86400000, not 99");
    bad(busy(&[1], 86_400_001), "back_off_ms must be from 100 to 86400000, not 86400001");
    assert_eq!(busy(&many[..16], 100).check(), Ok(()));
    assert_eq!(queue("q", WEIGHT_MAX, Some(1)).check(), Ok(()));
    assert_eq!(queue("q", WEIGHT_MAX + 1, Some(0)).check(), Err(BadSetting::Weight(WEIGHT_MAX + 1)));
}

#[test]
fn a_restored_engine_has_queues_and_as_many_limits_as_a_farm_may() {
    let limits = (0..LIMITS_MAX).map(|n| (n.to_string(), Limit::of(1))).collect();
    let ground = StoredState { queues: vec![queue("a", 7, Some(1))], limits, ..StoredState::default() };
    let mut engine = Engine::restore(Settings::default(), ground);
    let set = engine.queues().by_name().next().unwrap();
    assert_eq!((set.share().weight(), set.record.quota_cpu), (7, Some(1)));
    assert!(matches!(refused(&mut engine, set_limit("more", Some(1))), Refusal::TooMany { .. }));
    let batch = handle(&mut engine, set_limit("7", Some(9)));
    engine.committed(&batch);
    assert_eq!(engine.licences().limits()["7"], Limit::of(9), "one that is there may change");
}

/// What is said of a job whose step is like this.
fn submitted(change: impl FnOnce(&mut StepSpec)) -> Reply {
    let mut step = StepSpec { name: "s".to_owned(), tasks: 1, ..StepSpec::default() };
    change(&mut step);
    let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
    let submit = Submit::new(REQUEST, spec);
    let mut out = handle(&mut Engine::new(Settings::default()), Event::Submit(Box::new(submit)));
    out.replies.remove(0).1
}

#[test]
fn hints_have_bounds() {
    let many = |n: usize| (0..n).map(|n| n.to_string());
    let caches = |n: usize| many(n).map(|key| (key, Some(bounds::CACHE_BYTES_MAX))).collect();
    let most = submitted(|step| {
        step.limits = many(bounds::LIMITS_PER_STEP_MAX).collect();
        step.hints.caches = caches(bounds::CACHES_PER_STEP_MAX);
        step.hints.shape = "s".repeat(bounds::SHAPE_BYTES_MAX);
        step.hints.deadline_ms = Some(bounds::DEADLINE_MS_MAX);
    });
    assert!(matches!(most, Reply::Submitted { .. }), "{most:?}");
    let refused = |change: &dyn Fn(&mut StepSpec), what: &str| match submitted(change) {
        Reply::Refused(refusal) => assert!(refusal.to_string().starts_with(what), "{refusal}"),
        other => panic!("{what}: {other:?}"),
    };
    refused(&|s| s.limits = many(bounds::LIMITS_PER_STEP_MAX + 1).collect(), "limits of a step: 17");
    refused(&|s| s.limits = ["l".repeat(256)].into(), "bytes of the name of a limit: 256");
    refused(&|s| s.hints.caches = caches(bounds::CACHES_PER_STEP_MAX + 1), "caches of a step: 1001");
    refused(&|s| s.hints.caches = [("k".repeat(256), None)].into(), "bytes of a cache key: 256");
    refused(
        &|s| s.hints.caches = [("k".to_owned(), Some(u64::MAX))].into(),
        "bytes of a cache: 18446744073709551615",
    );
    refused(&|s| s.hints.shape = "s".repeat(256), "bytes of a shape: 256");
    refused(&|s| s.hints.deadline_ms = Some(u64::MAX), "deadline_ms: 18446744073709551615");
}
