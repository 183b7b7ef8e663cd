//! A farm of several shards: work moves to a shard with room and comes home, by few messages.

mod kit;

use kit::divided::{Divided, HOME, OTHER};
use kit::{Farm, cores, set_queue, spec, step, task};
use proptest::prelude::*;
use std::sync::Arc;
use windlass_core::JobId;
use windlass_core::engine::{Event, Hello, Outbox, Reply, Settings, StoredState, WorkerCommand, Write};
use windlass_core::explain::Reason;
use windlass_core::ids::ShardId;
use windlass_core::job::{
    End, FailFast, Hints, JobRecord, JobSpec, JobState, RunningCap, StepSpec, Stop, TaskResult, TaskState,
    Tries,
};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::QueueRecord;
use windlass_core::ranges::RangeSet;
use windlass_core::shards::{Mail, Message, TriedTasks};

#[test]
fn work_goes_to_a_shard_with_room_and_its_ends_come_home() {
    let mut divided = Divided::new(1, &[2]);
    let second = StepSpec {
        name: "t".to_owned(),
        depends: vec![windlass_core::job::Dependency {
            on: 0,
            kind: windlass_core::job::DependencyKind::Step,
        }],
        ..step(1, cores(1))
    };
    let job = divided.submit(spec("q", [step(3, cores(1)), second]));
    assert!(divided.farms[HOME].is_placed(task(job, 0)));
    assert!(divided.farms[OTHER].is_placed(task(job, 1)) && divided.farms[OTHER].is_placed(task(job, 2)));
    let why = divided.farms[HOME].why(task(job, 1));
    assert!(matches!(why.reason, Reason::Delegated { shard: ShardId(2), .. }), "{why:?}");
    assert_eq!(divided.end_all(OTHER, 0), 2);
    assert_eq!(divided.farms[HOME].engine.job(job).unwrap().state_of(1), TaskState::Succeeded);
    assert!(divided.farms[OTHER].engine.job(job).is_none(), "nothing of it is left there");
    assert_eq!(divided.end_all(HOME, 0), 1);
    // The last step may run in either shard.
    assert_eq!(divided.end_all(OTHER, 0) + divided.end_all(HOME, 0), 1);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
    let is_of_job = |write: &Write| {
        let rows = ["Job", "JobHeld", "JobStop", "JobEnd", "JobRetry", "Done", "Delegated"];
        rows.iter().any(|row| format!("{write:?}").starts_with(&format!("{row} ")))
    };
    let by_guest = divided.writes.iter().find(|(number, write)| *number == OTHER && is_of_job(write));
    assert_eq!(by_guest, None, "only its home writes rows of a job");
    divided.farms.iter().for_each(|farm| farm.engine.check_empty().unwrap());
}

#[test]
fn a_million_tasks_are_few_messages() {
    let mut divided = Divided::new(1, &[64, 64]);
    divided.farms.iter_mut().for_each(|farm| farm.checks = false);
    let before = divided.sent.len();
    let job = divided.submit(spec("q", [step(1_000_000, cores(1))]));
    assert_eq!(divided.starts, 1 + 128, "all room is used");
    let sent = divided.sent.len() - before;
    assert!(sent <= 5, "{sent} messages: {:?}", divided.sent);
    // Tasks of 10 ms: from now on it is known how short they are.
    for _ in 0..4 {
        divided.end_all(OTHER, 0);
    }
    let sent = divided.messages_of(|message| matches!(message, Message::Delegate { .. }));
    assert!(sent <= 8, "{sent} messages sent tasks");
    let returns = divided.messages_of(|message| matches!(message, Message::Return { .. }));
    assert!(returns <= 10, "{returns} messages returned tasks");
    assert!(divided.farms[HOME].engine.job(job).unwrap().steps[0].succeeded.len() >= 128);
    divided.farms.iter().for_each(Farm::check);
}

#[test]
fn what_no_worker_there_could_run_returns_and_is_not_sent_again() {
    let mut divided = Divided::new(1, &[4]);
    divided.submit(spec("q", [step(1, cores(1))]));
    let need = windlass_core::tags::Need { key: "gpu".to_owned(), any_of: Default::default() };
    let special = StepSpec { needs: vec![need], ..step(2, cores(1)) };
    let job = divided.submit(spec("q", [special]));
    divided.pass(1);
    let sent =
        divided.messages_of(|message| matches!(message, Message::Delegate { job: id, .. } if *id == job));
    assert_eq!(sent, 1);
    assert_eq!(divided.farms[HOME].why(task(job, 0)).reason, Reason::FitsNowhere);
    assert_eq!(divided.farms[HOME].engine.job(job).unwrap().steps[0].ready.len(), 2, "they are at home");
}

#[test]
fn a_cancel_kills_what_runs_in_another_shard() {
    let mut divided = Divided::new(1, &[4]);
    let job = divided.submit(spec("q", [step(4, cores(1))]));
    divided.farms[HOME].ask(|request| Event::Cancel { request, job });
    let killed = |out: &Outbox| {
        out.sends.iter().filter(|send| matches!(send.order, WorkerCommand::Kill { .. })).count()
    };
    assert_eq!(killed(&divided.farms[HOME].out), 1);
    let out = divided.farms[HOME].take();
    let orders = out.writes.iter().find_map(|write| match write {
        Write::Tell { number, message, .. } => Some((*number, message.clone())),
        _ => None,
    });
    let (number, message) = orders.expect("the other shard is told");
    divided.farms[OTHER].tell(Event::Told { from: ShardId(1), number, message, record: None });
    assert_eq!(killed(&divided.farms[OTHER].out), 3);
    assert_eq!(divided.ended(job), None, "three tasks run still");
    divided.end_all(OTHER, 130);
    divided.end_all(HOME, 130);
    assert_eq!(divided.ended(job), Some(JobState::Canceled));
}

#[test]
fn a_failure_elsewhere_stops_a_job_that_fails_fast() {
    let mut divided = Divided::new(1, &[1]);
    let job = divided.submit(JobSpec { fail_fast: FailFast::Finish, ..spec("q", [step(9, cores(1))]) });
    assert_eq!(divided.end_all(OTHER, 1), 1);
    assert!(divided.farms[HOME].engine.job(job).unwrap().stop.is_some());
    assert_eq!(divided.end_all(HOME, 0), 1);
    assert_eq!(divided.ended(job), Some(JobState::Failed));
}

#[test]
fn a_task_whose_client_is_at_home_stays_at_home() {
    let mut divided = Divided::new(1, &[8]);
    let external = StepSpec { is_external: true, ..step(3, cores(1)) };
    divided.submit(spec("q", [external]));
    divided.pass(1);
    assert_eq!(divided.messages_of(|message| matches!(message, Message::Delegate { .. })), 0);
}

/// Shard 1 does not know the workers of shard 2, so only of steps that stay in shard 1 it can say that none could run them.
#[test]
fn a_step_that_other_shards_may_run_is_not_called_unplaceable() {
    let mut divided = Divided::new(1, &[8]);
    let gang = StepSpec { nodes: Some(2), ..step(2, cores(4)) };
    let external = StepSpec { is_external: true, ..step(1, cores(4)) };
    for (steps, expected) in [(step(1, cores(4)), 0), (gang, 0), (external, 1)] {
        let reply = divided.farms[HOME].submission(spec("q", [steps]));
        let Reply::Submitted { unplaceable, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(unplaceable.len(), expected);
    }
}

/// A step whose tasks each take a core and one of the limit `lic`.
fn limited(tasks: u32) -> StepSpec {
    StepSpec { limits: ["lic".to_owned()].into(), ..step(tasks, cores(1)) }
}

#[test]
fn what_waits_beyond_the_room_at_home_goes_before_the_home_is_full() {
    let mut divided = Divided::new(20, &[20, 20]);
    let farm = &mut divided.farms[HOME];
    let second = StepSpec { name: "t".to_owned(), ..step(15, cores(1)) };
    let job = farm.accept(spec("q", [step(15, cores(1)), second]));
    farm.now = farm.now.after(1_000_000_000);
    assert_eq!(farm.engine.round(farm.now, 4, &mut farm.pipeline.forming), 4);
    let away = |farm: &Farm| -> u32 {
        farm.engine.job(job).unwrap().steps.iter().map(|step| step.delegated.len()).sum()
    };
    assert_eq!(away(farm), 10, "26 wait, and 16 cores are free");
    farm.now = farm.now.after(1_000_000_000);
    farm.engine.round(farm.now, 4, &mut farm.pipeline.forming);
    assert_eq!(away(farm), 10, "the others have room here");
}

#[test]
fn a_limit_counts_over_all_shards() {
    let mut divided = Divided::new(1, &[8]);
    divided.set_limit("lic", Limit::of(3));
    let job = divided.submit(spec("q", [limited(20)]));
    assert_eq!(divided.running(), (1, 2), "one for each licence, and no more are sent");
    assert_eq!(divided.farms[HOME].engine.job(job).unwrap().steps[0].delegated.len(), 2);
    let why = divided.farms[HOME].why(task(job, 19)).reason;
    assert_eq!(why, Reason::Limit { name: "lic".to_owned(), max: 3 });
    let (most, in_other) = divided.run_to_the_end();
    assert!(most == 3 && in_other >= 10, "{most} at a time, {in_other} in the other shard");
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
    divided.farms.iter().for_each(|farm| farm.engine.check_empty().unwrap());
}

#[test]
fn a_quota_counts_over_all_shards() {
    let mut divided = Divided::new(1, &[8]);
    let queue = QueueRecord { quota_cpu: Some(350), ..QueueRecord::named("q") };
    divided.farms[HOME].hear(set_queue(queue));
    divided.carry();
    // It could use more cpus, but its home counts what it asks for.
    let wide = StepSpec { hints: Hints { cpus_max: Some(400), ..Hints::default() }, ..step(12, cores(1)) };
    let job = divided.submit(spec("q", [wide]));
    assert_eq!(divided.running(), (1, 2));
    let queues = divided.farms[OTHER].engine.queues();
    assert_eq!(queues.get(queues.id("q").unwrap()).booked_cpu, 200, "no task is wider than it asked for");
    let why = divided.farms[HOME].why(task(job, 11)).reason;
    assert_eq!(why, Reason::Quota { quota_cpu: 350, booked_cpu: 300 });
    let (most, in_other) = divided.run_to_the_end();
    assert!(most == 3 && in_other >= 6, "{most} at a time, {in_other} in the other shard");
    divided.farms.iter().for_each(|farm| farm.engine.check_empty().unwrap());
}

#[test]
fn caps_of_steps_and_jobs_count_over_all_shards() {
    for (of_job, of_step) in [(None, Some(3)), (Some(3), None)] {
        let mut divided = Divided::new(1, &[8]);
        let steps = ["a", "b"].map(|name| StepSpec {
            name: name.to_owned(),
            max_running: of_step,
            ..step(6, cores(1))
        });
        let job = divided.submit(JobSpec { max_running: of_job, ..spec("q", steps) });
        let (most, reason) = match of_job {
            Some(max) => (3, Reason::MaxRunning(RunningCap { max, is_of_job: true })),
            None => (6, Reason::MaxRunning(RunningCap { max: 3, is_of_job: false })),
        };
        assert_eq!(divided.running(), (1, most - 1));
        assert_eq!(divided.farms[HOME].why(task(job, 5)).reason, reason);
        let (at_a_time, in_other) = divided.run_to_the_end();
        assert!(at_a_time == most && in_other >= 6, "{at_a_time} at a time, {in_other} in the other shard");
        assert_eq!(divided.ended(job), Some(JobState::Succeeded));
    }
}

#[test]
fn a_licence_that_comes_home_starts_what_waits_for_it() {
    let mut divided = Divided::new(1, &[1]);
    divided.set_limit("lic", Limit::of(1));
    let first = divided.submit(spec("q", [step(1, cores(1))]));
    let away = divided.submit(spec("q", [limited(1)]));
    assert!(divided.farms[OTHER].is_placed(task(away, 0)));
    let waits = divided.submit(spec("r", [limited(1)]));
    divided.farms[HOME].end(task(first, 0), 0);
    divided.carry();
    let why = divided.farms[HOME].why(task(waits, 0)).reason;
    assert_eq!(why, Reason::Limit { name: "lic".to_owned(), max: 1 }, "there is room, and no licence");
    divided.end_all(OTHER, 0);
    assert!(divided.farms[HOME].is_placed(task(waits, 0)));
}

#[test]
fn a_limit_that_is_set_lower_starts_nothing_until_it_sinks() {
    let mut divided = Divided::new(1, &[8]);
    divided.set_limit("lic", Limit::of(4));
    let job = divided.submit(spec("q", [limited(20)]));
    assert_eq!(divided.running(), (1, 3));
    divided.set_limit("lic", Limit::of(2));
    assert_eq!((divided.running(), divided.taken("lic")), ((1, 3), 4), "what runs goes on");
    let in_other: Vec<_> = divided.farms[OTHER].engine.attempts().map(|(task, _)| task).collect();
    divided.farms[OTHER].end(in_other[0], 0);
    divided.carry();
    assert_eq!((divided.running(), divided.taken("lic")), ((1, 2), 3));
    divided.end_all(HOME, 0);
    assert_eq!((divided.running(), divided.taken("lic")), ((0, 2), 2), "two others hold all");
    divided.farms[OTHER].end(in_other[1], 0);
    divided.carry();
    assert_eq!((divided.running(), divided.taken("lic")), ((1, 1), 2));
    assert_eq!(divided.run_to_the_end().0, 2);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

#[test]
fn a_restored_home_counts_what_is_away() {
    let away = [(ShardId(2), RangeSet::from_range(0..2))].into();
    let spec = Arc::new(JobSpec { max_running: Some(3), ..spec("q", [limited(9)]) });
    let new = JobRecord::new(JobId(1), spec, kit::START, ShardId(1));
    let stored = StoredState {
        jobs: vec![JobRecord { delegated: away, ..new }],
        limits: [("lic".to_owned(), Limit::of(5))].into(),
        queues: vec![QueueRecord { quota_cpu: Some(900), ..QueueRecord::named("q") }],
        peers: [ShardId(2)].into(),
        ..StoredState::default()
    };
    let settings = Settings { shard: ShardId(1), ..Settings::default() };
    let mut farm = Farm::restored(settings, stored, kit::START);
    let engine = &farm.engine;
    assert_eq!(engine.licences().taken().get("lic"), Some(&2));
    assert_eq!(engine.queues().get(engine.queues().id("q").unwrap()).counted_cpu(), 200);
    farm.hear(Event::Numbers { jobs: 10..20, workers: 10..20 });
    farm.worker("home", cores(8));
    assert_eq!(farm.engine.attempts().len(), 1, "two of three are away");
    let tasks = [TriedTasks { tasks: 0..2, state: TaskState::Succeeded, tries: Tries::default() }];
    let message = Message::Return { job: JobId(1), tasks: tasks.into(), fits: true, mean_us: Vec::new() };
    farm.tell(Event::Told { from: ShardId(2), number: 1, message, record: None });
    assert_eq!(farm.engine.attempts().len(), 3);
    assert_eq!(farm.engine.licences().taken().get("lic"), Some(&3));
}

#[test]
fn what_a_failed_batch_delegated_does_not_count() {
    let mut divided = Divided::new(1, &[8]);
    divided.set_limit("lic", Limit::of(3));
    let farm = &mut divided.farms[HOME];
    let job = farm.accept(spec("q", [limited(9)]));
    let accepted = farm.engine.job(job).unwrap();
    let record = JobRecord::new(job, accepted.spec.clone(), accepted.created, ShardId(1));
    farm.now = farm.now.after(1_000_000_000);
    farm.engine.round(farm.now, 100, &mut farm.pipeline.forming);
    let delegated = |farm: &Farm| farm.engine.job(job).unwrap().steps[0].delegated.len();
    assert_eq!((farm.engine.attempts().len(), delegated(farm)), (1, 2));
    farm.pipeline.next_batch(&mut farm.engine).expect("it writes");
    farm.pipeline.failed(&mut farm.engine);
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![record], Vec::new());
    farm.check();
    assert!(farm.engine.licences().taken().is_empty() && delegated(farm) == 0);
    // Its worker has not said hello again, so all three licences go to the other shard.
    divided.pass(1);
    assert_eq!((divided.running(), divided.taken("lic")), ((0, 3), 3));
}

#[test]
fn what_cannot_start_there_gives_its_licence_back() {
    // By the sum of its cores the other shard has room for three tasks. Each of its workers has room for one.
    let mut divided = Divided::new(1, &[3, 3]);
    divided.set_limit("lic", Limit::of(3));
    let wide = StepSpec { request: cores(2), ..limited(3) };
    divided.submit(spec("q", [wide]));
    assert_eq!((divided.running(), divided.taken("lic")), ((0, 2), 3));
    let small = divided.submit(spec("q", [limited(1)]));
    assert!(!divided.farms[HOME].is_placed(task(small, 0)), "no licence is left");
    for _ in 0..7 {
        divided.pass(1);
    }
    assert!(divided.farms[HOME].is_placed(task(small, 0)));
    assert_eq!((divided.running(), divided.taken("lic")), ((1, 2), 3));
}

#[test]
fn a_step_backs_off_in_the_shard_where_its_licence_was_busy() {
    let mut divided = Divided::new(1, &[2]);
    let busy = Busy { exits: [75].into(), back_off_ms: 2_000 };
    divided.set_limit("lic", Limit { busy: Some(busy), ..Limit::of(2) });
    divided.submit(spec("q", [step(1, cores(1))]));
    let job = divided.submit(spec("q", [limited(1)]));
    assert_eq!(divided.end_all(OTHER, 75), 1);
    assert_eq!(divided.running(), (1, 0), "it waits there");
    let of_guest = divided.writes.iter().filter(|(number, _)| *number == OTHER);
    let saved = of_guest.filter(|(_, write)| matches!(write, Write::LicenceBackoffs { .. })).count();
    assert_eq!(saved, 0, "only its home writes rows of a job");
    divided.pass(3);
    assert_eq!((divided.running(), divided.end_all(OTHER, 0)), ((1, 1), 1));
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

#[test]
fn a_message_of_a_failed_batch_is_heard_again() {
    let mut divided = Divided::new(1, &[2]);
    let from = ShardId(1);
    let number = divided.farms[OTHER].engine.heard(from) + 1;
    let job = divided.farms[HOME].submit(spec("q", [step(3, cores(1))]));
    divided.farms[HOME].pass(1);
    let out = divided.farms[HOME].take();
    divided.note(HOME, &out, &mut Vec::new());
    let delegates = |write: &Write| match write {
        Write::Tell { message, .. } if matches!(message, Message::Delegate { .. }) => Some(message.clone()),
        _ => None,
    };
    let message = out.writes.iter().find_map(delegates).expect("it is sent");
    let farm = &mut divided.farms[OTHER];
    farm.handle(Event::Told { from, number, message: message.clone(), record: None });
    farm.commit();
    let fetch = farm.take().fetches.remove(0);
    let (spec, created, home) = divided.accepted[&job].clone();
    let records = Some(vec![JobRecord::new(job, spec.clone(), created, home)]);
    farm.handle(Event::Fetched { number: fetch.number, records });
    farm.engine.round(farm.now, 100, &mut farm.pipeline.forming);
    assert!(farm.is_placed(task(job, 1)) && farm.engine.heard(from) == number);
    farm.pipeline.next_batch(&mut farm.engine).expect("it writes");
    farm.pipeline.failed(&mut farm.engine);
    // The store has the message still, so nothing of the job is there.
    let record = JobRecord::new(job, spec, created, home);
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![record], Vec::new());
    assert!(!farm.is_placed(task(job, 1)) && farm.engine.job(job).is_none());
    assert_eq!(farm.engine.heard(from), number - 1);
    farm.check();
}

#[test]
fn a_job_that_is_read_with_its_message_is_not_asked_for() {
    let mut farm = Farm::new(Settings { shard: ShardId(2), ..Settings::default() });
    farm.hear(Event::Shards([ShardId(1), ShardId(2)].into()));
    farm.hear(Event::Numbers { jobs: 10..20, workers: 10..20 });
    farm.worker("other", cores(4));
    farm.take();
    let from = ShardId(1);
    for number in 1..=4 {
        let job = JobId(100 + number);
        let (tasks, tried) = (RangeSet::from_range(0..1), Vec::new());
        let message = Message::Delegate { job, tasks, tried, waited_ms: 0, stays: false };
        let new = JobRecord::new(job, Arc::new(spec("q", [step(1, cores(1))])), kit::START, from);
        // Of the last job the store says nothing with the message.
        let record = (number < 4).then(|| Box::new(new));
        farm.handle(Event::Told { from, number, message, record });
    }
    farm.round();
    assert_eq!((farm.engine.attempts().len(), farm.engine.heard(from)), (3, 3));
    assert_eq!(farm.out.fetches.len(), 1);
}

#[test]
fn a_failed_batch_does_not_use_up_the_room_of_another_shard() {
    let mut divided = Divided::new(1, &[2]);
    let farm = &mut divided.farms[HOME];
    let job = farm.accept(spec("q", [step(9, cores(1))]));
    let accepted = farm.engine.job(job).unwrap();
    let record = JobRecord::new(job, accepted.spec.clone(), accepted.created, ShardId(1));
    farm.now = farm.now.after(1_000_000_000);
    farm.engine.round(farm.now, 100, &mut farm.pipeline.forming);
    assert_eq!(farm.engine.job(job).unwrap().steps[0].delegated.len(), 2, "all of its room");
    farm.pipeline.next_batch(&mut farm.engine).expect("it writes");
    farm.pipeline.failed(&mut farm.engine);
    farm.pipeline.reload(&mut farm.engine, farm.now, vec![record], Vec::new());
    divided.pass(1);
    assert_eq!(divided.running(), (0, 2), "the other shard was asked for its room again");
}

#[test]
fn a_later_end_of_a_task_does_not_return_when_an_earlier_one_is_durable() {
    let mut divided = Divided::new(1, &[1]);
    divided.submit(spec("q", [step(1, cores(1))]));
    let job = divided.submit(spec("q", [StepSpec { retries: 1, ..step(1, cores(1)) }]));
    let farm = &mut divided.farms[OTHER];
    let by = farm.report(task(job, 0));
    farm.handle(Event::Finished { by, result: TaskResult::bare(End::Exited(1)) });
    farm.pipeline.next_batch(&mut farm.engine).expect("it writes that the task is ready again");
    farm.engine.round(farm.now, 100, &mut farm.pipeline.forming);
    assert_eq!(farm.engine.attempt(task(job, 0)).unwrap().number, 2);
    let orders = Message::Orders { job, stop: Some(Stop::Canceled), held: false, priority: 0 };
    let number = farm.engine.heard(ShardId(1)) + 1;
    farm.handle(Event::Told { from: ShardId(1), number, message: orders, record: None });
    let hello = kit::hello("other0", cores(1));
    farm.handle(Event::Lost { worker: by.worker });
    farm.handle(Event::Hello(Box::new(Hello { incarnation: hello.incarnation + 1, ..hello })));
    assert!(!farm.is_placed(task(job, 0)), "its keeper is another one");
    let committed = farm.pipeline.committed(&mut farm.engine, &[]);
    farm.engine.committed(&committed.batch);
    let returns = |write: &Write| matches!(write, Write::Tell { message: Message::Return { .. }, .. });
    farm.engine.round(farm.now, 100, &mut farm.pipeline.forming);
    assert!(!farm.pipeline.forming.writes.iter().any(returns), "its end is in the batch that forms");
    farm.commit();
    farm.round();
    assert!(farm.out.writes.iter().any(returns));
}

#[test]
fn the_only_shard_of_a_farm_sends_nothing() {
    let mut farm = Farm::with_workers(Settings::default(), [cores(1)]);
    let job = farm.submit(spec("q", [step(5, cores(1))]));
    farm.pass(5);
    assert_eq!(job, JobId(1));
    let tells =
        |write: &Write| matches!(write, Write::Tell { .. } | Write::Heard { .. } | Write::Delegated { .. });
    assert!(!farm.out.writes.iter().any(tells));
}

proptest! {
    #[test]
    fn messages_take_effect_once_and_in_their_order(brought in prop::collection::vec(1_u64..8, 0..60)) {
        let (mut mail, from, mut heard) = (Mail::default(), ShardId(2), Vec::new());
        for number in brought.iter().copied() {
            let mut next = Some((number, Message::AskRoom));
            while let Some((number, message)) = next.take() {
                if mail.is_next(from, number, &message) {
                    mail.hear(from, number);
                    heard.push(number);
                    next = mail.take_waiting(from);
                }
            }
        }
        let first_missing = (1..).find(|number| !brought.contains(number)).unwrap_or(1);
        prop_assert_eq!(heard, (1..first_missing).collect::<Vec<u64>>());
    }
}
