//! External tasks: the client that submitted one runs it, and a worker keeps room for it.

use crate::kit::{Farm, cores, hello, spec, starts, step, task};
use windlass_core::engine::{Event, Hello, Settings};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::tags::{EXCLUSIVE, Need, SERVES};
use windlass_core::worker::Health;
use windlass_core::{JobId, WorkerId};

/// A worker of one core that only takes what clients of `nix` run.
fn machine(name: &str) -> Hello {
    let nix = || ["nix".to_owned()].into();
    let attributes = [(SERVES.to_owned(), nix()), (EXCLUSIVE.to_owned(), nix())].into();
    Hello { attributes, ..hello(name, cores(1)) }
}

fn build(is_external: bool) -> JobSpec {
    let needs = vec![Need::parse("serves=nix")];
    spec("ann", [StepSpec { needs, is_external, ..step(1, cores(1)) }])
}

fn placed(farm: &Farm, job: JobId) -> Option<WorkerId> {
    farm.engine.attempt(task(job, 0)).map(|attempt| attempt.worker)
}

#[test]
fn only_external_tasks_get_a_machine_that_runs_no_tasks() {
    let mut farm = Farm::new(Settings::default());
    let machine = farm.join(machine("m1"));
    let (ordinary, external) = (farm.submit(build(false)), farm.submit(build(true)));
    farm.settle();
    assert_eq!((placed(&farm, ordinary), placed(&farm, external)), (None, Some(machine)));
    assert_eq!(starts(&farm.out), [(machine, task(external, 0))], "the shell hands it to the client");
}

#[test]
fn a_task_that_its_client_lost_goes_elsewhere_and_harms_no_machine() {
    let mut farm = Farm::new(Settings::default());
    let machines = [farm.join(machine("m1")), farm.join(machine("m2"))];
    for number in 0..8 {
        let job = farm.submit(build(true));
        farm.settle();
        let first = placed(&farm, job).unwrap();
        // One half was not connected, the other was lost in the middle.
        let by = farm.report(task(job, 0));
        if number % 2 == 0 {
            farm.tell(Event::Started { by, at: farm.now });
        }
        let result = TaskResult::bare(End::Lost);
        farm.tell(Event::Finished { by, result });
        farm.settle();
        let second = placed(&farm, job).unwrap();
        assert_ne!(first, second, "the other one is idle");
        farm.end(task(job, 0), 0);
        farm.settle();
    }
    for machine in machines {
        assert_eq!(farm.engine.workers().get(machine).unwrap().health, Health::default());
    }
}
