//! Tasks that one process runs. The keeper treats the first, the head, as any task. The report of the head at its end
//! is repeated for the others, to each its part.

use super::attempt::{EndedAttempt, Running, Waiting};
use crate::protocol::{Rider, TaskRef, WireResult};
use std::collections::{BTreeMap, VecDeque};

pub(super) fn tasks(head: TaskRef, riders: &[Rider]) -> Vec<TaskRef> {
    let riders = riders.iter().map(|rider| ridden(head, rider));
    std::iter::once(head).chain(riders).collect()
}

pub(super) fn ridden(head: TaskRef, rider: &Rider) -> TaskRef {
    TaskRef { index: rider.index, attempt: rider.attempt, ..head }
}

/// The tasks that ride with others.
pub(super) fn riding<'a>(
    waiting: &'a VecDeque<Waiting>,
    running: &'a BTreeMap<TaskRef, Running>,
    collecting: &'a BTreeMap<TaskRef, EndedAttempt>,
) -> impl Iterator<Item = TaskRef> + 'a {
    let waiting = waiting.iter().map(|waiting| (waiting.task, &waiting.riders));
    let running = running.iter().map(|(task, running)| (*task, &running.riders));
    let collecting = collecting.iter().map(|(task, ended)| (*task, &ended.riders));
    let all = waiting.chain(running).chain(collecting);
    all.flat_map(|(head, riders)| riders.iter().map(move |rider| ridden(head, rider)))
}

/// What is said of each task of a process that ended: an equal part of its time and of what it used, one after the
/// other. Its output is the head's.
pub(super) fn parts(head: TaskRef, riders: &[Rider], result: WireResult) -> Vec<(TaskRef, WireResult)> {
    let count = riders.len() as u64 + 1;
    if count == 1 {
        return vec![(head, result)];
    }
    let ran = result.started.zip(result.finished);
    let part_ns = ran.map(|(started, finished)| finished.saturating_sub(started) / count);
    let mut parts = Vec::with_capacity(riders.len() + 1);
    for (place, task) in (0..).zip(tasks(head, riders)) {
        let mut part = result.clone();
        if let (Some(started), Some(part_ns)) = (result.started, part_ns) {
            part.started = Some(started + place * part_ns);
            part.finished = Some(started + (place + 1) * part_ns);
        }
        part.cpu_ms = result.cpu_ms.map(|ms| ms / count);
        part.disk_bytes = result.disk_bytes.map(|bytes| bytes / count);
        if place > 0 {
            (part.out_bytes, part.err_bytes) = (0, 0);
            let told = part.message.map(|message| format!(": {message}")).unwrap_or_default();
            let (job, index) = (head.job, head.index);
            part.message = Some(format!("one process ran it and {job}.{index}, which has the output{told}"));
        }
        parts.push((task, part));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::WireEnd;

    #[test]
    fn each_task_has_its_part_and_the_head_has_the_output() {
        let head = TaskRef { job: 3, index: 10, attempt: 1 };
        let riders = [Rider { index: 11, attempt: 1 }, Rider { index: 12, attempt: 2 }];
        let result = WireResult {
            end: WireEnd::Exited(0),
            started: Some(100),
            finished: Some(400),
            cpu_ms: Some(9),
            peak_memory: Some(7),
            out_bytes: 5,
            err_bytes: 6,
            ..WireResult::default()
        };
        let parts = parts(head, &riders, result);
        let times: Vec<_> =
            parts.iter().map(|(task, part)| (task.index, part.started, part.finished)).collect();
        let expected = [(10, 100, 200), (11, 200, 300), (12, 300, 400)];
        assert_eq!(times, expected.map(|(index, from, to)| (index, Some(from), Some(to))));
        assert_eq!((parts[0].1.out_bytes, parts[1].1.out_bytes, parts[2].1.cpu_ms), (5, 0, Some(3)));
        assert_eq!(parts[2].0.attempt, 2);
        assert!(parts[1].1.message.as_ref().is_some_and(|told| told.contains("3.10")));
    }
}
