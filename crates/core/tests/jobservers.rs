//! Tasks with a jobserver: they are booked with the least, and their workers are told how they share the rest.

use crate::kit::{self, Farm, GIB, REQUEST, cores, hello, set_queue, spec, step, task};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::bounds::CPU_WEIGHT_MAX;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{
    CpuShare, Event, Held, HeldPhase, Hello, Inventory, NextBatch, Outbox, Processes, Refusal, Reply, Report,
    Settings, Submit, WorkerCommand,
};
use windlass_core::explain::{Reason, dry_run};
use windlass_core::ids::{AllocId, QueueId, StepKey};
use windlass_core::job::{ChunkSize, Chunks, End, Hints, JobSpec, Jobserver, StepSpec, TaskResult};
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::placement::Ineligible;
use windlass_core::queues::{QueueRecord, Queues, TurnSettings};
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, RequestId, Resources, TaskId, WorkerId};

const ONE: WorkerId = WorkerId(1);

/// Tasks with a jobserver, booked with a tenth of a core each.
fn builds(tasks: u32) -> StepSpec {
    with_jobserver(step(tasks, Resources::new(10, 0)))
}

fn with_jobserver(step: StepSpec) -> StepSpec {
    let hints = Hints { jobserver: Some(Jobserver::Auto), ..step.hints };
    StepSpec { hints, ..step }
}

/// One worker of this number of cores.
fn farm(cpus: u32) -> Farm {
    Farm::with_workers(Settings::default(), [Resources::new(cpus * 100, 64 * GIB)])
}

/// What the workers were told of shares since this was asked last: whole cpus, and the tasks with their weights.
fn told(farm: &mut Farm) -> Vec<(u32, Vec<(TaskId, u32)>)> {
    let sends = farm.take().sends.into_iter();
    let shares = sends.filter_map(|send| match send.command {
        WorkerCommand::ShareCpus { cpu, shares } => {
            Some((cpu / 100, shares.iter().map(|share| (share.task, share.weight)).collect()))
        }
        _ => None,
    });
    shares.collect()
}

fn booked_cpu(farm: &Farm) -> u32 {
    farm.engine.workers().get(ONE).expect("it is there").booked.sum().cpu
}

#[test]
fn one_alone_is_booked_with_the_least_and_shares_the_whole_worker() {
    let mut farm = farm(8);
    let wide = Hints { cpus_max: Some(1_600), ..builds(1).hints };
    let job = farm.submit(spec("q", [StepSpec { hints: wide, ..builds(1) }]));
    assert_eq!(booked_cpu(&farm), 10, "what is idle is never booked");
    let sends = farm.take().sends;
    let [start, shares] = &sends[sends.len() - 2..] else { panic!("{sends:?}") };
    assert!(matches!(&start.command, WorkerCommand::Start { request, .. } if request.cpu == 10));
    let all = CpuShare { task: task(job, 0), attempt: 1, weight: CPU_WEIGHT_MAX };
    assert_eq!(shares.command, WorkerCommand::ShareCpus { cpu: 800, shares: vec![all] });
    farm.end(task(job, 0), 0);
    assert!(told(&mut farm).is_empty(), "nothing is left to share");
    farm.engine.check_empty().expect("the job has ended");
}

#[test]
fn what_other_tasks_and_places_hold_is_not_shared() {
    let mut farm = farm(8);
    let build = farm.submit(spec("q", [builds(1)]));
    told(&mut farm);
    let of = |cpus: u32| vec![(cpus, vec![(task(build, 0), CPU_WEIGHT_MAX)])];
    let other = farm.submit(spec("other", [step(1, cores(3))]));
    assert_eq!(told(&mut farm), of(5));
    let place = PlaceRequest { queue: "q".to_owned(), amounts: cores(2), ..PlaceRequest::default() };
    farm.tell(Event::Alloc { request: REQUEST, place: Box::new(place) });
    assert_eq!(told(&mut farm), of(3));
    farm.tell(Event::Lend { task: task(other, 0) });
    assert_eq!(told(&mut farm), of(6), "what waits for jobs of its own uses none");
    farm.tell(Event::Reclaim { request: REQUEST, task: task(other, 0) });
    assert_eq!(told(&mut farm), of(3));
    farm.tell(Event::Lend { task: task(build, 0) });
    assert!(told(&mut farm).is_empty(), "its own part was shared already");
    farm.end(task(other, 0), 0);
    assert_eq!(told(&mut farm), of(6));
}

#[test]
fn workers_are_told_only_what_changed() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(8)]);
    let on = |name: &str, step: StepSpec| StepSpec { targets: [name.to_owned()].into(), ..step };
    farm.submit(spec("q", [on("w1", builds(1))]));
    assert_eq!(told(&mut farm).len(), 1);
    farm.submit(spec("q", [on("w2", step(4, cores(1)))]));
    farm.submit(spec("much", [step(1_000, cores(16))]));
    farm.tell(Event::Load { worker: ONE, report: Box::default() });
    farm.pass(10);
    assert!(told(&mut farm).is_empty(), "nothing of the first worker is booked otherwise");
    farm.submit(spec("q", [on("w1", step(1, cores(1)))]));
    assert_eq!(told(&mut farm).len(), 1);
}

#[test]
fn cpus_are_divided_by_the_weights_of_queues_and_users() {
    let mut farm = farm(16);
    let user_weights = [("ann".to_owned(), 300)].into();
    farm.tell(set_queue(QueueRecord { user_weights, ..QueueRecord::named("film") }));
    farm.tell(set_queue(QueueRecord { weight: 300, ..QueueRecord::named("game") }));
    let mut submit = |queue: &str, user: &str, tasks: u32| {
        farm.submit(JobSpec { user: user.to_owned(), ..spec(queue, [builds(tasks)]) })
    };
    let (ann, bob, cyn) = (submit("film", "ann", 2), submit("film", "bob", 1), submit("game", "cyn", 1));
    let mut parts =
        vec![(task(ann, 0), 93_750), (task(ann, 1), 93_750), (task(bob, 0), 62_500), (task(cyn, 0), 750_000)];
    assert_eq!(told(&mut farm).pop(), Some((16, parts.clone())));
    farm.end(task(bob, 0), 0);
    parts.remove(2);
    (parts[0].1, parts[1].1) = (125_000, 125_000);
    assert_eq!(told(&mut farm), [(16, parts.clone())], "a user of whom nothing runs there does not count");
    farm.tell(set_queue(QueueRecord { weight: 100, ..QueueRecord::named("game") }));
    parts.iter_mut().for_each(|(_, weight)| *weight *= 2);
    parts[2].1 = 500_000;
    assert_eq!(told(&mut farm), [(16, parts)], "at once, with the new weight");
}

#[test]
fn a_worker_is_told_again_after_each_hello_and_none_is_while_it_is_away() {
    let mut farm = farm(8);
    let job = farm.submit(spec("q", [builds(1)]));
    let all = vec![(8, vec![(task(job, 0), CPU_WEIGHT_MAX)])];
    assert_eq!(told(&mut farm), all);
    let held = Held { task: task(job, 0), attempt: 1, phase: HeldPhase::Running(kit::START) };
    let hello = |cpus: u32| Hello {
        inventory: Inventory { seq: 100, held: vec![held] },
        ..hello("w1", Resources::new(cpus * 100, 64 * GIB))
    };
    farm.join(hello(8));
    assert_eq!(told(&mut farm), all);
    farm.tell(Event::Lost { worker: ONE });
    farm.tell(set_queue(QueueRecord { weight: 7, ..QueueRecord::named("q") }));
    assert!(told(&mut farm).is_empty());
    farm.join(hello(4));
    assert_eq!(told(&mut farm), [(4, vec![(task(job, 0), CPU_WEIGHT_MAX)])], "it has fewer cpus now");
}

#[test]
fn what_a_failed_commit_would_have_told_is_told_after_the_hello_that_follows() {
    let mut farm = farm(8);
    let job = farm.submit(spec("q", [builds(1)]));
    told(&mut farm);
    farm.handle(Event::Submit(Box::new(Submit::new(REQUEST, spec("other", [step(1, cores(1))])))));
    farm.engine.round(farm.now, 10, &mut farm.pipeline.forming);
    let batch = farm.pipeline.next_batch(&mut farm.engine);
    let Some(NextBatch::Commit(lost)) = batch else { panic!("{batch:?}") };
    assert!(lost.sends.iter().any(|send| matches!(send.command, WorkerCommand::ShareCpus { cpu: 700, .. })));
    drop(lost);
    _ = farm.pipeline.failed(&mut farm.engine);
    let now = farm.now;
    farm.pipeline.reload(&mut farm.engine, now, Vec::new(), Vec::new());
    farm.commit();
    farm.settle();
    assert!(told(&mut farm).is_empty());
    let held = Held { task: task(job, 0), attempt: 1, phase: HeldPhase::Running(kit::START) };
    let inventory = Inventory { seq: 100, held: vec![held] };
    farm.join(Hello { inventory, ..hello("w1", Resources::new(800, 64 * GIB)) });
    assert_eq!(told(&mut farm), [(8, vec![(task(job, 0), CPU_WEIGHT_MAX)])], "the other job is gone");
}

#[test]
fn what_no_keeper_could_give_tokens_to_is_refused() {
    let chunks = Some(Chunks { block: 1, runs: Vec::new(), size: ChunkSize::Fixed(2) });
    let follower = StepSpec { name: "t".to_owned(), with: Some(0), ..step(1, cores(1)) };
    let cases = [
        (vec![StepSpec { nodes: Some(2), ..builds(2) }], "its tasks start together with others"),
        (vec![builds(1), follower.clone()], "its tasks start together with others"),
        (vec![step(1, cores(1)), with_jobserver(follower)], "its tasks start together with others"),
        (vec![StepSpec { chunks, ..builds(2) }], "one process runs several of its tasks"),
        (vec![StepSpec { is_external: true, ..builds(1) }], "the client that submitted it runs its tasks"),
        (vec![StepSpec { request: cores(0), ..builds(1) }], "its tasks book no cpu"),
    ];
    let mut farm = farm(8);
    for (steps, reason) in cases {
        let reply = farm.submission(spec("q", steps));
        let Reply::Refused(Refusal::BadJobserver { step, why }) = &reply else { panic!("{reply:?}") };
        assert!(why.starts_with(reason) && ["s", "t"].contains(&step.as_str()), "{step}: {why}");
    }
}

/// The jobservers and the hundredths of a core of a job's steps that leave it to their queue whether they have one.
fn settled(of_queue: Option<bool>, steps: Vec<StepSpec>) -> Vec<(bool, u32)> {
    let mut farm = farm(8);
    farm.tell(set_queue(QueueRecord { jobserver: of_queue, ..QueueRecord::named("q") }));
    let jobservers_open = (0..steps.len() as u16).collect();
    let submit = Submit { jobservers_open, ..Submit::new(REQUEST, spec("q", steps)) };
    let mut tried = submit.clone();
    tried.settle(farm.engine.queues());
    let request = farm.ask(|request| Event::Submit(Box::new(Submit { request, ..submit })));
    let Reply::Submitted { job, .. } = &farm.replies[&request] else { panic!("{:?}", farm.replies) };
    let found = farm.engine.job(*job).expect("it was taken in");
    assert_eq!(*found.spec, tried.spec.without_bodies(), "a dry run shows the same");
    let steps = found.spec.steps.iter();
    steps.map(|step| (step.hints.jobserver.is_some(), step.request.cpu)).collect()
}

#[test]
fn a_queue_gives_jobservers_to_steps_that_say_nothing_and_takes_them_from_builds() {
    let named = |name: &str, step: StepSpec| StepSpec { name: name.to_owned(), ..step };
    let steps = || vec![named("a", step(1, cores(2))), named("b", with_jobserver(step(1, cores(1))))];
    assert_eq!(settled(None, steps()), [(false, 200), (true, 10)], "a build begins at once");
    assert_eq!(settled(Some(true), steps()), [(true, 200), (true, 10)]);
    assert_eq!(settled(Some(false), steps()), [(false, 200), (false, 100)]);
    // What cannot have one goes without, and is not refused.
    let chunks = Some(Chunks { block: 1, runs: Vec::new(), size: ChunkSize::Fixed(2) });
    let learns = Hints { cpus_auto: true, ..Hints::default() };
    let unable = [
        StepSpec { nodes: Some(2), ..step(2, cores(1)) },
        StepSpec { chunks, ..step(2, cores(1)) },
        StepSpec { is_external: true, ..step(1, cores(1)) },
        StepSpec { hints: learns, ..step(1, cores(1)) },
        StepSpec { request: Resources::new(0, 1), ..step(1, cores(1)) },
    ];
    for step in unable {
        let cpu = step.request.cpu;
        assert_eq!(settled(Some(true), vec![step.clone()]), [(false, cpu)], "{step:?}");
        assert_eq!(settled(None, vec![with_jobserver(step.clone())])[0], (false, cpu), "{step:?}");
    }
}

#[test]
fn what_a_step_says_of_its_jobserver_stands_over_the_setting_of_its_queue() {
    let mut farm = farm(8);
    for (queue, jobserver) in [("on", true), ("off", false)] {
        farm.tell(set_queue(QueueRecord { jobserver: Some(jobserver), ..QueueRecord::named(queue) }));
    }
    let (plain, build) =
        (farm.submit(spec("on", [step(1, cores(1))])), farm.submit(spec("off", [builds(1)])));
    let has = |job: JobId| farm.engine.job(job).unwrap().spec.steps[0].hints.jobserver.is_some();
    assert_eq!((has(plain), has(build)), (false, true));
}

/// The only task of a job ends after 100 seconds, with this to say of its tokens.
fn end_after_100_s(farm: &mut Farm, job: JobId, token_cpu_ms: Option<u64>) {
    let started = farm.now;
    farm.now = farm.now.after(100 * NS_PER_S);
    let by = farm.report(task(job, 0));
    let (started, finished) = (Some(started), Some(farm.now));
    let (cpu_ms, peak_memory) = (Some(800_000), Some(GIB));
    let bare = TaskResult::bare(End::Exited(0));
    let result = TaskResult { started, finished, cpu_ms, token_cpu_ms, peak_memory, ..bare };
    farm.tell(Event::Finished { by, result });
}

#[test]
fn a_queue_is_charged_for_the_tokens_of_its_tasks() {
    let costs = |step: StepSpec, token_cpu_ms| {
        let mut farm = farm(8);
        let job = farm.submit(spec("q", [step]));
        end_after_100_s(&mut farm, job, token_cpu_ms);
        charged(&farm, "q")
    };
    assert_eq!(costs(builds(1), None), 10 * 100_000);
    assert_eq!(costs(builds(1), Some(0)), 10 * 100_000);
    assert_eq!(costs(builds(1), Some(300_000)), 310 * 100_000, "three tokens all the time");
    assert_eq!(costs(builds(1), Some(u64::MAX)), 800 * 100_000, "no more than the worker has");
    assert_eq!(costs(step(1, Resources::new(10, 0)), Some(300_000)), 10 * 100_000, "it has no jobserver");
}

/// Hundredths of a core times milliseconds.
fn charged(farm: &Farm, queue: &str) -> i128 {
    let queues = farm.engine.queues();
    queues.get(queues.id(queue).expect("it was used")).charged
}

#[test]
fn a_queue_is_charged_for_its_part_while_its_build_runs() {
    let mut farm = farm(8);
    let (red, began) = (farm.submit(spec("red", [builds(1)])), farm.now);
    assert!(charged(&farm, "red") <= 10 * 1_000, "half of two seconds of its booking");
    let by = farm.report(task(red, 0));
    farm.tell(Event::Started { by, at: began });
    farm.pass(2);
    assert_eq!(charged(&farm, "red"), 800 * 4_000, "what it ran of all cpus, and as much in advance");
    farm.submit(spec("blue", [builds(1)]));
    assert_eq!(charged(&farm, "red"), 800 * 4_000, "what is left of that lasts for twice the time");
    farm.pass(3);
    assert_eq!(charged(&farm, "red"), 800 * 4_000);
    farm.pass(2);
    assert_eq!(charged(&farm, "red"), 800 * 2_000 + 400 * 10_000, "half of the cpus since then");
    let by = farm.report(task(red, 0));
    let (started, finished) = (Some(began), Some(farm.now));
    let bare = TaskResult::bare(End::Exited(0));
    let result = TaskResult { started, finished, token_cpu_ms: Some(21_000), ..bare };
    farm.tell(Event::Finished { by, result });
    assert_eq!(charged(&farm, "red"), 310 * 7_000, "it was given three tokens all the time");
}

/// The keeper says that the only task of a job may run `share` processes and runs `used`.
fn says(farm: &mut Farm, job: JobId, share: u32, used: u32) {
    let said = Processes { share, used, is_held_back: false };
    farm.tell(Event::Processes { worker: ONE, task: task(job, 0), attempt: 1, said });
}

/// The keeper gives the rest to the one that wants it.
#[test]
fn a_queue_is_charged_for_what_its_build_uses_where_another_one_wants_more() {
    let mut farm = farm(8);
    let (red, blue) = (farm.submit(spec("red", [builds(1)])), farm.submit(spec("blue", [builds(1)])));
    for job in [red, blue] {
        let by = farm.report(task(job, 0));
        farm.tell(Event::Started { by, at: farm.now });
    }
    farm.pass(10);
    let (red_first, blue_first) = (charged(&farm, "red"), charged(&farm, "blue"));
    assert_eq!(red_first, blue_first, "half of the cpus each");
    says(&mut farm, red, 4, 2);
    says(&mut farm, blue, 6, 6);
    farm.pass(100);
    // Both were charged ahead for as long.
    let (red_more, blue_more) = (charged(&farm, "red") - red_first, charged(&farm, "blue") - blue_first);
    let ratio = blue_more as f64 / red_more as f64;
    assert!((2.0..=4.0).contains(&ratio), "two cpus and six: {red_more} and {blue_more}");
}

#[test]
fn a_build_that_was_lost_costs_its_queue_nothing() {
    let mut farm = farm(8);
    let red = farm.submit(spec("red", [builds(1)]));
    let by = farm.report(task(red, 0));
    farm.tell(Event::Started { by, at: farm.now });
    farm.pass(2);
    farm.submit(spec("blue", [builds(1)]));
    assert_eq!(charged(&farm, "red"), 800 * 4_000);
    let same = hello("w1", Resources::new(800, 64 * GIB));
    farm.join(Hello { incarnation: same.incarnation + 1, new_link: false, ..same });
    assert_eq!(farm.report(task(red, 0)).attempt, 2);
    assert!(charged(&farm, "red") <= 10 * 1_000 + 1, "what its next attempt is charged");
}

#[test]
fn what_a_task_used_of_what_was_left_is_not_booked_the_next_time() {
    let mut farm = farm(8);
    let auto = StepSpec { hints: Hints { cpus_auto: true, ..builds(1).hints }, ..builds(1) };
    let job = farm.submit(spec("q", [auto.clone()]));
    end_after_100_s(&mut farm, job, Some(700_000));
    let job = farm.submit(spec("q", [auto]));
    let class = farm.engine.class_of(StepKey { job, step: 0 }).expect("it is active");
    assert_eq!(class.request.cpu, 10);
}

/// Other programs use this part of the worker's eight cores, and tasks wait for them for all of the time.
fn say_busy(farm: &mut Farm, cpu_foreign: f64) {
    let stall = Stall { avg10: 100.0, ..Stall::default() };
    let cpu = Some(Pressure { some: Some(stall), full: None });
    let machine = Pressures { cpu, ..Pressures::default() };
    let report = LoadReport { machine, cpu_foreign: Some(cpu_foreign), ..LoadReport::default() };
    farm.tell(Event::Load { worker: ONE, report: Box::new(report) });
}

#[test]
fn busy_processors_hold_no_task_with_a_jobserver() {
    let mut farm = farm(8);
    farm.submit(spec("first", [step(1, cores(1))]));
    say_busy(&mut farm, 7.9);
    let other = farm.submit(spec("q", [step(1, cores(1))]));
    let build = farm.submit(spec("q", [builds(1)]));
    assert_eq!((farm.is_placed(task(other, 0)), farm.is_placed(task(build, 0))), (false, true));
}

/// A machine that others keep busy is idle for the farm, and pressure holds tasks from it. A build runs one process there,
/// and more by what is left.
#[test]
fn pressure_on_cpus_holds_no_task_with_a_jobserver_from_an_idle_worker() {
    let mut farm = farm(8);
    farm.worker("w2", cores(1));
    for _ in 0..5 {
        farm.pass(10);
        say_busy(&mut farm, 0.5);
        farm.tell(Event::Load { worker: WorkerId(2), report: Box::default() });
    }
    let other = farm.submit(spec("q", [step(1, cores(2))]));
    let why = farm.why(task(other, 0));
    assert_eq!(why.reason, Reason::Closed(Ineligible::UnderPressure("cpu")));
    let wide = StepSpec { request: Resources::new(200, 0), ..builds(1) };
    let build = farm.submit(spec("q", [wide]));
    assert!(farm.is_placed(task(build, 0)) && !farm.is_placed(task(other, 0)));
}

#[test]
fn a_worker_that_tokens_keep_busy_takes_other_tasks() {
    let mut farm = farm(8);
    farm.submit(spec("q", [builds(2)]));
    say_busy(&mut farm, 0.0);
    let other = farm.submit(spec("other", [step(8, cores(1))]));
    let placed = (0..8).filter(|index| farm.is_placed(task(other, *index))).count();
    assert_eq!(placed, 7, "all that is not booked");
}

/// Jobs of one build each, one after the other.
fn submit_builds(farm: &mut Farm, count: usize) -> Vec<JobId> {
    (0..count).map(|_| farm.submit(spec("q", [builds(1)]))).collect()
}

fn worker_of(farm: &Farm, job: JobId) -> WorkerId {
    farm.engine.attempt(task(job, 0)).expect("it is placed").worker
}

/// How many tasks run on each worker.
fn running(farm: &Farm) -> Vec<usize> {
    farm.engine.workers().iter().map(|worker| worker.booked.running().len()).collect()
}

#[test]
fn builds_spread_over_workers_and_the_next_one_goes_to_the_idle_worker() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(8), cores(8)]);
    let jobs = submit_builds(&mut farm, 6);
    assert_eq!(running(&farm), [2, 2, 2]);
    let idle = worker_of(&farm, jobs[1]);
    for job in jobs {
        if worker_of(&farm, job) == idle {
            farm.end(task(job, 0), 0);
        }
    }
    for job in submit_builds(&mut farm, 2) {
        assert_eq!(worker_of(&farm, job), idle);
    }
}

#[test]
fn a_build_goes_where_its_share_is_largest() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(4), cores(16)]);
    submit_builds(&mut farm, 3);
    assert_eq!(running(&farm), [0, 3], "a third of the large worker is more than all of the small one");
    submit_builds(&mut farm, 2);
    assert_eq!(running(&farm), [1, 4]);
    // What other tasks hold is not shared.
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(8)]);
    let on = |name: &str, step: StepSpec| StepSpec { targets: [name.to_owned()].into(), ..step };
    farm.submit(spec("q", [on("w1", step(6, cores(1)))]));
    farm.submit(spec("q", [on("w2", builds(2))]));
    submit_builds(&mut farm, 1);
    assert_eq!(running(&farm), [6, 3], "a third of eight cpus is more than the two that are left");
}

#[test]
fn other_tasks_go_where_no_build_uses_the_cpus() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(8), cores(8)]);
    let on = |name: &str, step: StepSpec| StepSpec { targets: [name.to_owned()].into(), ..step };
    farm.submit(spec("q", [on("w1", builds(1))]));
    farm.submit(spec("q", [step(8, cores(1))]));
    assert_eq!(running(&farm), [1, 8]);
    farm.submit(spec("q", [step(1, cores(1))]));
    assert_eq!(running(&farm), [2, 8], "what a build uses is still room");
}

#[test]
fn a_dry_run_says_where_it_would_start_and_tells_nobody() {
    let mut farm = farm(8);
    farm.submit(spec("other", [step(1, Resources::new(790, 0))]));
    let before = farm.engine.clone();
    let wanted = spec("q", [builds(2)]);
    let said = dry_run(farm.engine.clone(), farm.now, Submit::new(RequestId(0), wanted.clone()), None);
    let said = said.expect("it would be accepted");
    assert_eq!(farm.engine, before);
    assert_eq!((said.steps[0].starts.get(&ONE), said.steps[0].waiting), (Some(&1), 1));
    let job = farm.submit(wanted);
    let (waits, why) = said.steps[0].first_waiting.as_ref().expect("one waits");
    assert_eq!((*waits, &why.reason), (task(job, 1), &farm.why(task(job, 1)).reason));
}

/// What a worker was told last, as its keeper has it.
type Told = BTreeMap<WorkerId, (u32, Vec<CpuShare>)>;

/// Takes in what was sent. A keeper that says hello is told all again, and no worker is told a thing twice.
fn take_in(told: &mut Told, out: Outbox) {
    for send in out.sends {
        match send.command {
            WorkerCommand::Registered { .. } => _ = told.remove(&send.worker),
            WorkerCommand::ShareCpus { cpu, shares } => {
                let before = told.insert(send.worker, (cpu, shares.clone()));
                assert_ne!(before, Some((cpu, shares)), "worker {} knows that", send.worker);
            }
            _ => {}
        }
    }
}

/// Each connected worker on which a task with a jobserver runs was told of all of these, and of the cpus that no other
/// task and no place holds. `lent` are the tasks that lend.
fn assert_told(farm: &Farm, told: &Told, lent: &BTreeSet<TaskId>) {
    for worker in farm.engine.workers().iter().filter(|worker| worker.link.connected) {
        let (mut builds, mut others_cpu) = (Vec::new(), 0);
        let here = farm.engine.attempts().filter(|(_, attempt)| attempt.worker == worker.record.id);
        for (task, attempt) in here.filter(|(_, attempt)| !attempt.queued) {
            let job = farm.engine.job(task.job).expect("its job is active");
            let step = &job.spec.steps[usize::from(job.step_of(task.index))];
            if step.hints.jobserver.is_some() {
                builds.push((task, attempt.number));
            } else if !lent.contains(&task) {
                others_cpu += attempt.request.cpu;
            }
        }
        others_cpu += worker.booked.places().values().map(|place| place.cpu).sum::<u32>();
        if builds.is_empty() {
            continue;
        }
        let (cpu, shares) = told.get(&worker.record.id).expect("it was told");
        assert_eq!(*cpu, worker.record.capacity.cpu.saturating_sub(others_cpu));
        assert_eq!(shares.iter().map(|share| (share.task, share.attempt)).collect::<Vec<_>>(), builds);
        let sum: u32 = shares.iter().map(|share| share.weight).sum();
        let rounded = builds.len() as u32;
        assert!(sum.abs_diff(CPU_WEIGHT_MAX) < rounded, "{shares:?}");
    }
}

/// What happens to a farm: a number for what, and two for whom and how much.
fn happen(farm: &mut Farm, lent: &mut BTreeSet<TaskId>, (what, whom, much): (u8, u8, u8)) {
    let running: Vec<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
    let chosen = running.get(usize::from(whom) % running.len().max(1)).copied();
    let queue = ["red", "blue"][usize::from(whom) % 2];
    let number = whom % 3;
    match (what, chosen) {
        (0, _) => {
            // The first worker has four cores.
            let capacity = Resources::new([200, 400, 800][usize::from(number)], 64 * GIB);
            farm.join(hello(&format!("w{number}"), capacity));
        }
        (1, _) => {
            let worker = WorkerId(1 + u64::from(number));
            if farm.engine.workers().get(worker).is_some() {
                farm.tell(Event::Lost { worker });
            }
        }
        (2..=4, _) => {
            let step = if what == 2 { step(u32::from(much % 4) + 1, cores(1)) } else { builds(2) };
            let user = format!("user{}", much % 3);
            farm.submit(JobSpec { user, ..spec(queue, [StepSpec { retries: 1, ..step }]) });
        }
        (5, _) => {
            let weight = 1 + u32::from(much) * 39;
            let user_weights = [("user1".to_owned(), 1 + u32::from(whom))].into();
            farm.tell(set_queue(QueueRecord { weight, user_weights, ..QueueRecord::named(queue) }));
        }
        (6, _) => {
            let place =
                PlaceRequest { queue: queue.to_owned(), amounts: cores(1), ..PlaceRequest::default() };
            farm.tell(Event::Alloc { request: REQUEST, place: Box::new(place) });
        }
        (7, _) => farm.tell(Event::Release { alloc: AllocId(u64::from(much % 8) + 1) }),
        (8, Some(task)) => {
            farm.tell(Event::Lend { task });
            lent.insert(task);
        }
        (9, Some(task)) => {
            farm.tell(Event::Reclaim { request: REQUEST, task });
            lent.remove(&task);
        }
        (10, Some(task)) => farm.tell(Event::Cancel { request: REQUEST, job: task.job }),
        (11, Some(task)) => {
            let Report { worker, attempt, .. } = farm.report(task);
            let (share, used) = (u32::from(much % 5) + 1, u32::from(whom % 6));
            let said = Processes { share, used, is_held_back: much % 7 == 0 };
            farm.tell(Event::Processes { worker, task, attempt, said });
        }
        (_, Some(task)) => {
            lent.remove(&task);
            farm.end(task, i32::from(much % 3 == 0));
        }
        (_, None) => farm.pass(u64::from(much)),
    }
}

/// The weight of a queue, and of each of its users with the number of that user's tasks.
fn queue_of_users() -> impl Strategy<Value = (u32, Vec<(u32, usize)>)> {
    (1_u32..=10_000, prop::collection::vec((1_u32..=10_000, 1_usize..4), 1..4))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The farm checks after each batch that the books say the same as a walk over the attempts.
    #[test]
    fn what_workers_were_told_is_right_after_any_events(
        history in prop::collection::vec((0_u8..14, any::<u8>(), any::<u8>()), 1..60),
    ) {
        let (mut farm, mut told, mut lent) = (farm(4), Told::new(), BTreeSet::new());
        for happens in history {
            happen(&mut farm, &mut lent, happens);
            take_in(&mut told, farm.take());
            lent.retain(|task| farm.is_placed(*task));
            assert_told(&farm, &told, &lent);
        }
    }

    #[test]
    fn parts_are_in_the_proportion_of_the_weights(queues in prop::collection::vec(queue_of_users(), 1..5)) {
        let mut all = Queues::new(TurnSettings::default());
        let (mut tasks, mut expected): (Vec<QueueId>, Vec<f64>) = (Vec::new(), Vec::new());
        let of_queues: u32 = queues.iter().map(|(weight, _)| weight).sum();
        for (number, (weight, users)) in queues.iter().enumerate() {
            let name = format!("q{number}");
            let user_weights = users.iter().enumerate().map(|(user, (weight, _))| (format!("u{user}"), *weight));
            let user_weights = user_weights.collect();
            all.set(&QueueRecord { weight: *weight, user_weights, ..QueueRecord::named(&name) });
            let of_users: u32 = users.iter().map(|(weight, _)| weight).sum();
            for (user, (user_weight, count)) in users.iter().enumerate() {
                let part = all.intern_for(&name, &format!("u{user}"));
                let ideal = f64::from(*weight) / f64::from(of_queues) * f64::from(*user_weight)
                    / f64::from(of_users)
                    / *count as f64;
                tasks.extend(std::iter::repeat_n(part, *count));
                expected.extend(std::iter::repeat_n(ideal * f64::from(CPU_WEIGHT_MAX), *count));
            }
        }
        let weights = all.cpu_weights(&tasks);
        prop_assert_eq!(weights.len(), tasks.len());
        for (weight, ideal) in weights.iter().zip(expected) {
            prop_assert!((f64::from(*weight) - ideal).abs() <= 1.0 && *weight >= 1, "{} for {}", weight, ideal);
        }
    }
}
