//! When tasks are expected to end, and when a worker has room then.

use super::work::{RunningTask, Work};
use crate::class::Class;
use crate::ids::TaskId;
use crate::resources::Resources;
use crate::time::Time;
use crate::worker::{Licences, Worker};

/// When a task ends at the latest. One that should have ended is assumed to be half done.
pub(super) fn longest_end(running: &RunningTask, now: Time) -> Option<Time> {
    let by = running.ends_by?;
    Some(if by > now { by } else { now.after(now.since(running.began)) })
}

/// When a task is expected to end. One that is overdue is assumed to be half done.
pub fn ends_at<W: Work>(work: &W, task: TaskId) -> Option<Time> {
    let now = work.plan().now;
    work.running(task).and_then(|running| expected_end(&running, now))
}

/// When a running task is expected to end; `None` is unknown. One that is overdue is assumed to be half done.
pub fn expected_end(running: &RunningTask, now: Time) -> Option<Time> {
    let due = running.due?;
    Some(if due > now { due } else { now.after(now.since(running.began)) })
}

/// When enough of a worker will be free for the class, as tasks there are expected to end; `None` where that depends
/// on one whose length is not known.
pub fn starts_at<W: Work>(work: &W, class: &Class, worker: &Worker) -> Option<Time> {
    let now = work.plan().now;
    room_when(work, class, worker, |running| expected_end(running, now)).map(|(at, _)| at)
}

/// When the class fits a worker, and what is free there then.
pub(super) fn room_when<W: Work>(
    work: &W,
    class: &Class,
    worker: &Worker,
    ends: impl Fn(&RunningTask) -> Option<Time>,
) -> Option<(Time, Resources)> {
    let (mut free, mut licences) = (worker.free(), worker.licences.clone());
    let fits = |free: &Resources, licences: &Licences| {
        class.request.fits(free) && licences.first_full(&class.limits).is_none()
    };
    if fits(&free, &licences) {
        return Some((work.plan().now, free));
    }
    let mut running: Vec<(Time, TaskId, RunningTask)> = Vec::with_capacity(worker.booked.running().len());
    for task in worker.booked.running() {
        running.extend(work.running(*task).and_then(|running| Some((ends(&running)?, *task, running))));
    }
    running.sort_by_key(|(at, task, _)| (*at, *task));
    for (at, _, running) in running {
        free.add(running.request);
        for name in running.limits {
            licences.give_back(name);
        }
        if fits(&free, &licences) {
            return Some((at, free));
        }
    }
    None
}
