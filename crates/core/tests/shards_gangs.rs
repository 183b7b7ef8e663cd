//! Gangs, chunks, and work that no worker of its home could run, in a farm of two shards.

mod kit;

use kit::divided::{Divided, HOME, OTHER};
use kit::{Farm, cores, spec, step, task};
use std::collections::BTreeSet;
use windlass_core::engine::Event;
use windlass_core::explain::Reason;
use windlass_core::job::{
    ChunkSize, Chunks, Dependency, DependencyKind, End, JobState, StepSpec, TaskResult, TaskState,
};
use windlass_core::licences::Limit;
use windlass_core::shards::Message;
use windlass_core::{JobId, TaskId};

fn gang(gangs: u32, nodes: u32) -> StepSpec {
    StepSpec { nodes: Some(nodes), ..step(gangs * nodes, cores(1)) }
}

/// The tasks of a job that run in a shard, and are not about to be killed.
fn running(divided: &Divided, number: usize, job: JobId) -> Vec<u32> {
    let attempts = divided.farms[number].engine.attempts_of(job).map(|(task, _)| task);
    attempts.filter(|task| !divided.killed.contains(&(number, *task))).map(|task| task.index).collect()
}

/// Workers end what they were told to kill.
fn end_killed(divided: &mut Divided, number: usize) -> usize {
    let killed = divided.killed.extract_if(.., |(shard, _)| *shard == number);
    let killed: Vec<TaskId> = killed.map(|(_, task)| task).collect();
    for task in &killed {
        let by = divided.farms[number].report(*task);
        divided.farms[number].tell(Event::Finished { by, result: TaskResult::bare(End::Canceled) });
    }
    divided.carry();
    killed.len()
}

fn end(divided: &mut Divided, number: usize, task: TaskId, exit: i32) {
    divided.farms[number].end(task, exit);
    divided.carry();
}

fn returned(divided: &Divided, job: JobId) -> usize {
    divided.messages_of(|message| matches!(message, Message::Return { job: id, .. } if *id == job))
}

#[test]
fn a_gang_for_which_its_home_has_too_few_workers_runs_in_another_shard() {
    let mut divided = Divided::new(1, &[2, 2, 2]);
    let after = StepSpec {
        name: "t".to_owned(),
        depends: vec![Dependency { on: 0, kind: DependencyKind::Step }],
        ..step(1, cores(1))
    };
    let job = divided.submit(spec("q", [gang(1, 3), after]));
    let workers: BTreeSet<_> =
        divided.farms[OTHER].engine.attempts_of(job).map(|(_, attempt)| attempt.worker).collect();
    assert_eq!((running(&divided, OTHER, job).len(), workers.len()), (3, 3));
    assert_eq!(divided.end_all(OTHER, 0), 3);
    assert_eq!(divided.end_all(OTHER, 0) + divided.end_all(HOME, 0), 1);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
    divided.farms.iter().for_each(|farm| farm.engine.check_empty().unwrap());
}

#[test]
fn steps_that_start_together_go_together() {
    let mut divided = Divided::new(1, &[4, 4]);
    let follower = StepSpec { name: "t".to_owned(), with: Some(0), ..gang(1, 2) };
    let job = divided.submit(spec("q", [gang(1, 2), follower]));
    assert_eq!(running(&divided, OTHER, job), [0, 1, 2, 3]);
    assert_eq!(divided.end_all(OTHER, 0), 4);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

#[test]
fn a_gang_of_which_a_task_failed_is_lost_with_what_has_not_started() {
    let mut divided = Divided::new(1, &[2, 2]);
    let mates = StepSpec { name: "t".to_owned(), with: Some(0), ..gang(1, 1) };
    let job = divided.submit(spec("q", [gang(1, 2), mates]));
    end(&mut divided, OTHER, task(job, 0), 1);
    assert_eq!(end_killed(&mut divided, OTHER), 1, "the other one of its step is killed");
    assert_eq!(
        returned(&divided, job),
        0,
        "what became of one decides about the others until all have ended"
    );
    end(&mut divided, OTHER, task(job, 2), 0);
    let home = divided.farms[HOME].engine.job(job);
    assert!(home.is_none_or(|job| job.steps.iter().all(|step| step.ready.is_empty())));
    assert_eq!(divided.ended(job), Some(JobState::Failed));
    divided.farms.iter().for_each(|farm| farm.engine.check_empty().unwrap());
}

#[test]
fn a_gang_starts_together_again_in_the_other_shard() {
    let mut divided = Divided::new(1, &[2, 2]);
    let job = divided.submit(spec("q", [StepSpec { retries: 1, ..gang(1, 2) }]));
    end(&mut divided, OTHER, task(job, 0), 0);
    end(&mut divided, OTHER, task(job, 1), 1);
    assert_eq!(running(&divided, OTHER, job), [1], "the one that succeeded is done");
    end(&mut divided, OTHER, task(job, 1), 0);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

/// The first of the two succeeded in one shard, and the other starts in another one.
#[test]
fn what_is_left_of_a_gang_starts_where_it_is_sent() {
    let mut divided = Divided::new(1, &[1, 1]);
    let job = divided.submit(spec("q", [StepSpec { retries: 3, ..gang(1, 2) }]));
    end(&mut divided, OTHER, task(job, 0), 0);
    let filler = divided.submit(spec("q", [step(2, cores(1))]));
    assert_eq!(running(&divided, OTHER, filler).len(), 1, "the room of the one that ended is taken");
    end(&mut divided, OTHER, task(job, 1), 1);
    assert_eq!(running(&divided, OTHER, job), [1]);
    end(&mut divided, OTHER, task(job, 1), 0);
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

#[test]
fn a_gang_that_no_shard_could_run_comes_home_and_says_so() {
    let mut divided = Divided::new(1, &[2, 2]);
    let job = divided.submit(spec("q", [gang(1, 3)]));
    divided.pass(1);
    assert_eq!(divided.running(), (0, 0));
    assert_eq!(divided.farms[HOME].engine.job(job).unwrap().steps[0].ready.len(), 3);
    let reason = divided.farms[HOME].why(task(job, 0)).reason;
    assert_eq!(reason, Reason::FitsNowhere);
    let sent = |divided: &Divided| {
        divided.messages_of(|message| matches!(message, Message::Delegate { job: id, .. } if *id == job))
    };
    let before = sent(&divided);
    divided.pass(10);
    assert_eq!(sent(&divided), before, "it is not sent again at once");
}

#[test]
fn licences_of_a_gang_count_over_all_shards() {
    let mut divided = Divided::new(1, &[8, 8]);
    divided.set_limit("lic", Limit::of(3));
    let limited = StepSpec { limits: ["lic".to_owned()].into(), ..gang(3, 2) };
    let job = divided.submit(spec("q", [limited]));
    assert_eq!((divided.running(), divided.taken("lic")), ((0, 2), 2));
    for _ in 0..3 {
        assert_eq!(divided.end_all(OTHER, 0), 2);
    }
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

#[test]
fn a_cancel_ends_a_gang_in_another_shard() {
    let mut divided = Divided::new(1, &[2, 2]);
    let job = divided.submit(spec("q", [gang(2, 2)]));
    assert_eq!(divided.running(), (0, 4));
    divided.farms[HOME].ask(|request| Event::Cancel { request, job });
    divided.carry();
    assert_eq!(end_killed(&mut divided, OTHER), 4);
    assert_eq!(divided.ended(job), Some(JobState::Canceled));
}

#[test]
fn chunks_are_formed_in_the_shard_that_runs_them() {
    let mut divided = Divided::new(1, &[2]);
    let chunks = Chunks { block: 1_000, size: ChunkSize::Fixed(5) };
    let job = divided.submit(spec("q", [StepSpec { chunks: Some(chunks), ..step(100, cores(1)) }]));
    assert!(running(&divided, OTHER, job).len() >= 10, "two chunks of five");
    for _ in 0..100 {
        divided.end_all(OTHER, 0);
        divided.end_all(HOME, 0);
    }
    assert_eq!(divided.ended(job), Some(JobState::Succeeded));
}

/// Small tasks take each core of the other shard as soon as it is free, so it never tells of room for the wide one.
#[test]
fn work_that_only_another_busy_shard_could_run_gets_a_worker_reserved_there() {
    let mut divided = Divided::new(1, &[4]);
    let small = divided.submit(spec("q", [step(2_000, cores(1))]));
    let wide = divided.submit(spec("w", [step(1, cores(4))]));
    for _ in 0..200 {
        let oldest = |farm: &Farm| farm.engine.attempts_of(small).map(|(task, _)| task).next();
        for number in [HOME, OTHER] {
            if let Some(task) = oldest(&divided.farms[number]) {
                divided.farms[number].end(task, 0);
            }
        }
        divided.pass(1);
        if !running(&divided, OTHER, wide).is_empty() {
            assert_eq!(returned(&divided, wide), 0, "it waited there");
            return;
        }
    }
    panic!("it has not started: {:?}", divided.farms[HOME].why(task(wide, 0)));
}

#[test]
fn what_waits_elsewhere_returns_when_its_home_has_a_worker_for_it() {
    let mut divided = Divided::new(1, &[4]);
    let small = divided.submit(spec("q", [step(5, cores(1))]));
    let wide = divided.submit(spec("w", [step(1, cores(4))]));
    assert_eq!((divided.running(), returned(&divided, wide)), ((1, 4), 0));
    assert_eq!(divided.farms[OTHER].engine.job(wide).map(|job| job.state_of(0)), Some(TaskState::Ready));
    divided.farms[HOME].worker("large", cores(4));
    for _ in 0..5 {
        divided.pass(1);
    }
    assert_eq!(running(&divided, HOME, wide), [0]);
    assert_eq!(running(&divided, OTHER, small).len(), 4);
}
