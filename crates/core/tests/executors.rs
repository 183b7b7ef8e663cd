//! Executors of other systems: what they get, what they do not, and in which order they are asked.

use crate::kit::{Farm, GIB, REQUEST, hello, spec, starts, step, task};
use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::Resources;
use windlass_core::engine::{Event, Hello, Reply, Settings, Submit};
use windlass_core::explain::{Advice, Change, Reason, Starts};
use windlass_core::job::{End, JobSpec, LaunchFault, StepSpec, TaskResult};
use windlass_core::load::pressure::LoadReport;
use windlass_core::tags::{EXECUTOR, Need};

fn executor(farm: &mut Farm, name: &str, gib: u64) {
    let attributes = [(EXECUTOR.to_owned(), BTreeSet::from(["x".to_owned()]))].into();
    farm.join(Hello { attributes, ..hello(name, Resources::new(6_400, gib * GIB)) });
}

/// It says how much is free, of which the booked is taken off already or not.
fn free(farm: &mut Farm, name: &str, bytes: u64, own: u64) {
    let worker = farm.engine.workers().by_name(name).unwrap().record.id;
    let report = LoadReport { memory_available: Some(bytes), memory_own: Some(own), ..LoadReport::default() };
    farm.hear(Event::Load { worker, report: Box::new(report) });
}

fn plain(memory: u64) -> JobSpec {
    spec("q", [step(1, Resources::new(100, memory))])
}

fn for_executor(memory: u64) -> JobSpec {
    let step = step(1, Resources::new(100, memory));
    spec("q", [StepSpec { needs: vec![Need::parse("executor=x")], ..step }])
}

/// Where what starts now starts.
fn starts_now(farm: &mut Farm) -> Vec<String> {
    farm.settle();
    let starts = starts(&farm.take()).into_iter();
    starts.map(|(worker, _)| farm.engine.workers().get(worker).unwrap().record.name.to_string()).collect()
}

/// The worker is left out for its own launches that came to nothing, and for no job's.
#[test]
fn a_launch_that_failed_counts_for_whom_its_reporter_blames() {
    let left_out = |fault: LaunchFault| {
        let mut farm = Farm::new(Settings::default());
        executor(&mut farm, "host", 64);
        for _ in 0..6 {
            let job = farm.accept(for_executor(GIB));
            farm.settle();
            let first = task(job, 0);
            if !farm.is_placed(first) {
                break;
            }
            let end = End::NotStarted { why: "no such program".to_owned(), fault };
            let by = farm.report(first);
            farm.tell(Event::Finished { by, result: TaskResult::bare(end) });
        }
        let worker = farm.engine.workers().by_name("host").unwrap();
        worker.health.out().is_some()
    };
    assert!(left_out(LaunchFault::Worker));
    assert!(!left_out(LaunchFault::Job));
    assert!(!left_out(LaunchFault::Unknown), "one user's jobs alone, of which none succeeded elsewhere");
}

#[test]
fn each_takes_only_its_own_kind_of_work() {
    let mut farm = Farm::new(Settings::default());
    executor(&mut farm, "host", 64);
    let reply = farm.submission(plain(GIB));
    let Reply::Submitted { unplaceable, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(unplaceable.len(), 1, "no worker of the farm is for it");
    assert_eq!(starts_now(&mut farm), [""; 0]);
    farm.worker("plain", Resources::new(6_400, 8 * GIB));
    assert_eq!(starts_now(&mut farm), ["plain"]);
    farm.accept(for_executor(GIB));
    assert_eq!(starts_now(&mut farm), ["host"]);
}

#[test]
fn what_it_says_is_free_counts_though_nothing_of_ours_runs_there() {
    let mut farm = Farm::new(Settings::default());
    executor(&mut farm, "host", 64);
    free(&mut farm, "host", 3 * GIB, 0);
    farm.accept(for_executor(4 * GIB));
    assert_eq!(starts_now(&mut farm), [""; 0], "something else holds the rest");
    free(&mut farm, "host", 9 * GIB, 0);
    assert_eq!(starts_now(&mut farm), ["host"]);
    // It goes on saying nine until it has seen what was booked, of which five are left.
    farm.accept(for_executor(6 * GIB));
    free(&mut farm, "host", 9 * GIB, 0);
    assert_eq!(starts_now(&mut farm), [""; 0]);
    free(&mut farm, "host", 9 * GIB, 4 * GIB);
    assert_eq!(starts_now(&mut farm), ["host"]);
    // What it said is not forgotten when it is old.
    farm.pass(60);
    farm.accept(for_executor(8 * GIB));
    assert_eq!(starts_now(&mut farm), [""; 0]);
}

#[test]
fn a_job_may_be_held_from_the_start() {
    let mut farm = Farm::new(Settings::default());
    executor(&mut farm, "host", 64);
    farm.take();
    let held = |request| Submit { held: true, ..Submit::new(request, for_executor(GIB)) };
    let request = farm.ask(|request| Event::Submit(Box::new(held(request))));
    let Reply::Submitted { job, .. } = farm.replies[&request] else { panic!("{:?}", farm.replies) };
    let out = farm.take();
    assert_eq!(out.writes.len(), 2, "in one batch with its row: {out:?}");
    assert_eq!(starts_now(&mut farm), [""; 0]);
    farm.hear(Event::Hold { request: REQUEST, job, held: false });
    assert_eq!(starts_now(&mut farm), ["host"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On any number of hosts each job goes where most is free, and the index is what the workers make.
    #[test]
    fn most_free_memory_comes_first(free_mib in prop::collection::vec(1u64..5_000, 1..60), jobs in 1usize..80) {
        let mut farm = Farm::new(Settings::default());
        for (number, mib) in free_mib.iter().enumerate() {
            let name = format!("h{number:02}");
            executor(&mut farm, &name, 8_192);
            free(&mut farm, &name, mib << 20, 0);
        }
        let mut left: Vec<(u64, String)> = (0..).zip(free_mib).map(|(n, mib)| (mib, format!("h{n:02}"))).collect();
        for _ in 0..jobs {
            farm.accept(for_executor(256 << 20));
            let best = left.iter_mut().filter(|(mib, _)| *mib >= 256).max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let expected = best.map(|(mib, name)| {
                *mib -= 256;
                name.clone()
            });
            prop_assert_eq!(starts_now(&mut farm), expected.into_iter().collect::<Vec<_>>());
        }
        prop_assert!(farm.engine.workers().is_consistent());
    }
}

#[test]
fn work_of_another_system_waits_for_one_of_its_hosts_and_no_tag_is_advised() {
    let mut farm = Farm::with_workers(Settings::default(), [Resources::new(400, 8 * GIB)]);
    let job = farm.submit(for_executor(GIB));
    let why = farm.why(task(job, 0));
    let connect = Change::Connect { system: "x".to_owned(), needs: Vec::new() };
    let connect = Advice { change: connect, starts: Starts::AtOnce };
    assert_eq!((&why.reason, &why.changes[..]), (&Reason::FitsNowhere, &[connect.clone()][..]));
    assert_eq!(connect.steps(), ["connect a provider of x, or register a machine and boot it"]);
    executor(&mut farm, "host", 64);
    assert!(!matches!(farm.why(task(job, 0)).reason, Reason::FitsNowhere));
}
