//! Whether some worker could run a class, were it empty.

use super::placement;
use crate::class::Classes;
use crate::ids::{ClassId, WorkerId};
use crate::worker::Worker;
use crate::workers::Workers;
use std::collections::BTreeMap;

/// Classes that are remembered to have, or not to have, a worker that could run them.
const COULD_RUN_MAX: usize = 20_000;

/// Whether some worker that takes work could run a class.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FeasibleWorker {
    /// This one could when it was looked at, at that count of the workers' changes.
    By(WorkerId, u64),
    /// None could, and none can before another worker takes work: how many times one had started to by then.
    Nobody(u64),
}

/// The classes that were looked at for a worker that could run them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct FeasibleWorkers(BTreeMap<ClassId, FeasibleWorker>);

impl FeasibleWorkers {
    /// True if some worker that takes work could run the class, were it empty. Remembers which.
    pub(super) fn could_run(&mut self, id: ClassId, classes: &Classes, workers: &Workers) -> bool {
        let Some(class) = classes.find(id) else { return false };
        let (opened, shifts) = (workers.opened_count(), workers.change_count());
        let could = |w: &&Worker| w.takes_work() && placement::could_take_part(class, w);
        let known = &mut self.0;
        match known.get(&id) {
            Some(FeasibleWorker::By(_, at)) if *at == shifts => return true,
            Some(FeasibleWorker::By(worker, _)) if workers.get(*worker).as_ref().is_some_and(could) => {
                let worker = *worker;
                known.insert(id, FeasibleWorker::By(worker, shifts));
                return true;
            }
            Some(FeasibleWorker::Nobody(before)) if *before == opened => return false,
            _ => {}
        }
        let found = if class.targets.is_empty() || class.is_gang() {
            workers.present().find(could)
        } else {
            class.targets.iter().filter_map(|name| workers.by_name(name)).find(could)
        };
        if known.len() >= COULD_RUN_MAX {
            known.clear();
        }
        let feasible = found.map(|worker| FeasibleWorker::By(worker.record.id, shifts));
        known.insert(id, feasible.unwrap_or(FeasibleWorker::Nobody(opened)));
        feasible.is_some()
    }

    /// The farm has too few workers that take work for a gang, and has no more before another worker does.
    pub(super) fn found_too_few(&mut self, class: ClassId, workers: &Workers) {
        self.0.insert(class, FeasibleWorker::Nobody(workers.opened_count()));
    }
}
