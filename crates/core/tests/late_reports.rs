//! Reports that are older than what is known by another way: they change nothing that has come since.

use crate::kit::{self, Farm, GIB, booked, record, spec, step, task};
use windlass_core::engine::{Event, Held, HeldPhase, Hello, Inventory, Settings, StoredState};
use windlass_core::job::TaskRow;
use windlass_core::{JobId, Resources, WorkerId};

const ONE: WorkerId = WorkerId(1);
const JOB: JobId = JobId(1);

fn capacity() -> Resources {
    Resources::new(100, GIB)
}

/// A server took over from another, and a worker runs the first task and has the others in its backlog.
fn farm_with_backlog(memory: [u64; 3]) -> Farm {
    let before = Farm::with_workers(Settings::default(), [capacity()]);
    let steps: Vec<_> = memory.iter().map(|memory| step(1, Resources::new(100, *memory))).collect();
    let rows = (0..3).map(|index| TaskRow { index, ..booked(ONE) }).collect();
    let stored = StoredState {
        workers: before.engine.workers().iter().map(|worker| worker.stored()).collect(),
        jobs: vec![record(JOB.0, spec("q", steps), rows)],
        ..StoredState::default()
    };
    let mut farm = Farm::restored(Settings::default(), stored, before.now);
    let phases = [HeldPhase::Running(farm.now), HeldPhase::Queued, HeldPhase::Queued];
    let held = (0..).zip(phases).map(|(index, phase)| Held { task: task(JOB, index), attempt: 1, phase });
    let inventory = Inventory { seq: 0, held: held.collect() };
    farm.tell(Event::Hello(Box::new(Hello { inventory, ..kit::hello("w1", capacity()) })));
    farm
}

/// The last task submits a job and waits for it, which is heard before the reports of the worker: in truth the two
/// before it have ended.
#[test]
fn a_start_from_before_a_task_lent_its_cpus_holds_nothing_beside_it() {
    let mut farm = farm_with_backlog([GIB / 4, GIB, GIB / 16]);
    let reports = [0, 1, 2].map(|index| farm.report(task(JOB, index)));
    farm.tell(Event::Lend { task: task(JOB, 2) });
    farm.end(task(JOB, 0), 0);
    farm.tell(Event::Started { by: reports[1], at: farm.now });
    let worker = farm.engine.workers().get(ONE).expect("it is there");
    assert!(worker.booked.sum().fits(&capacity()), "{:?}", worker.booked);
    assert_eq!(worker.booked.running().iter().copied().collect::<Vec<_>>(), [task(JOB, 2)]);
    farm.end(task(JOB, 1), 0);
    farm.tell(Event::Started { by: reports[2], at: farm.now });
    farm.end(task(JOB, 2), 0);
    farm.engine.check_empty().expect("nothing is under way");
}
