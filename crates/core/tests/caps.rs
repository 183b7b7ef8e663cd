//! Caps on how many tasks of a job or a step run at a time.

use crate::kit::live::{LiveFarm, run};
use crate::kit::{Farm, GIB, cores, spec, step, task};
use windlass_core::Resources;
use windlass_core::engine::Settings;
use windlass_core::explain::Reason;
use windlass_core::job::{JobSpec, RunningCap, StepSpec};

fn farm_of(slots: u32) -> LiveFarm {
    LiveFarm::of(Farm::with_workers(Settings::default(), [Resources::new(slots * 100, 64 * GIB)]))
}

fn lasting(name: &str, tasks: u32, max_running: Option<u32>) -> StepSpec {
    StepSpec { name: name.to_owned(), max_running, body: run((5, 5), 0), ..step(tasks, cores(1)) }
}

/// The most tasks of one job that ran at a time, of tasks that last 5 s.
fn most_at_once(farm: &LiveFarm, queue: &str) -> usize {
    let starts: Vec<u64> = farm.starts_of(0, queue).map(|start| start.at.as_ms()).collect();
    let during = |at: u64| starts.iter().filter(|start| (**start..**start + 5_000).contains(&at)).count();
    starts.iter().map(|at| during(*at)).max().unwrap_or(0)
}

#[test]
fn a_job_runs_no_more_tasks_at_a_time_than_it_may() {
    let mut farm = farm_of(16);
    let steps = [lasting("a", 20, None), lasting("b", 20, None)];
    let capped = farm.accept(JobSpec { max_running: Some(3), ..spec("capped", steps) });
    farm.accept(spec("free", [lasting("a", 100, None)]));
    farm.settle();
    assert_eq!(farm.starts_of(0, "free").count(), 13, "what the job may not use others have");
    let why = farm.why(task(capped, 19));
    assert_eq!(why.reason, Reason::MaxRunning(RunningCap { max: 3, is_of_job: true }));
    farm.advance(200);
    assert_eq!((most_at_once(&farm, "capped"), farm.starts_of(0, "capped").count()), (3, 40));
}

#[test]
fn a_step_runs_no_more_tasks_at_a_time_than_it_may() {
    let mut farm = farm_of(16);
    let capped = farm.accept(spec("q", [lasting("capped", 10, Some(2)), lasting("free", 10, None)]));
    farm.settle();
    assert_eq!(farm.starts.len(), 12);
    let why = farm.why(task(capped, 9));
    assert_eq!(why.reason, Reason::MaxRunning(RunningCap { max: 2, is_of_job: false }));
    let (_, says) = why.say(|_| String::new());
    assert_eq!(says, "2 tasks of its step run, and no more may at a time (max_running)");
    farm.advance(100);
    assert_eq!(farm.starts.len(), 20);
}
