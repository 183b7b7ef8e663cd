//! How a batch of writes becomes few statements. One statement does many writes of one kind, and statements run one after
//! the other. The laws:
//!
//! - A write comes in a later statement than the earlier writes of its batch that touch the same row.
//! - No statement touches a row twice.
//! - Of writes that say the whole of a thing, one after the other, the last is enough; the earlier ones share its outcome.
//! - When a retry finds its job deleted, that write and the later ones of the job are refused.

use super::statements::WriteKind;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_core::engine::Write;
use windlass_core::{JobId, TaskId, WorkerId};

/// Rows of one statement.
const ROWS_MAX: usize = 20_000;
/// Bytes of bodies of one statement. A message to PostgreSQL has at most 1 GiB.
const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Default, Debug)]
pub struct Plan {
    /// In the order in which they run.
    pub groups: Vec<Group>,
    /// Writes that are refused without a statement.
    pub refused: Vec<usize>,
    /// Writes that share the outcome of a later one, in their order.
    pub shares: Vec<(usize, usize)>,
}

/// Writes of one statement, by their number in the batch.
#[derive(PartialEq, Debug)]
pub struct Group {
    pub kind: WriteKind,
    pub rows: Vec<usize>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Touched<'a> {
    Job(JobId),
    Task(TaskId),
    Worker(WorkerId),
    History(&'a str),
    Queue(&'a str),
    Limit(&'a str),
    Turns,
}

/// The last statement that touches a thing, and the position in it.
#[derive(Clone, Copy)]
struct Last {
    group: usize,
    position: usize,
}

#[derive(Default)]
struct Planner<'a> {
    plan: Plan,
    last: HashMap<Touched<'a>, Last>,
    /// The last statement with a task of a job.
    tasks_of: HashMap<JobId, usize>,
    /// The last statement that retries a job, which touches all of its tasks.
    retried: HashMap<JobId, usize>,
    by_kind: BTreeMap<WriteKind, Vec<usize>>,
}

impl Plan {
    /// Plans a batch. `exists` says of the jobs that the batch retries whether they were there before it.
    pub fn new(writes: &[Write], exists: &BTreeSet<JobId>) -> Plan {
        let mut planner = Planner::default();
        let (mut made, mut gone) = (BTreeSet::new(), BTreeSet::new());
        for (number, write) in writes.iter().enumerate() {
            let job = write.job();
            if let (Write::JobRetry { job, .. }, false) = (write, job.is_some_and(|job| gone.contains(&job)))
                && !exists.contains(job)
                && !made.contains(job)
            {
                gone.insert(*job);
            }
            if job.is_some_and(|job| gone.contains(&job)) {
                planner.plan.refused.push(number);
                continue;
            }
            if let Write::Job { id, .. } = write {
                made.insert(*id);
            }
            planner.add(number, write);
        }
        planner.plan
    }

    /// The numbers of all refused writes, where `refused` are those that the statements refused.
    pub fn refused(&self, refused: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut all: BTreeSet<usize> = refused.into_iter().chain(self.refused.iter().copied()).collect();
        for (earlier, later) in self.shares.iter().rev() {
            if all.contains(later) {
                all.insert(*earlier);
            }
        }
        all.into_iter().collect()
    }
}

impl<'a> Planner<'a> {
    fn add(&mut self, number: usize, write: &'a Write) {
        let (kind, touched) = (WriteKind::of(write), touched(write));
        let last = self.last.get(&touched).copied();
        if let Some(Last { group, position }) = last
            && kind.says_all()
            && self.plan.groups[group].kind == kind
        {
            let before = std::mem::replace(&mut self.plan.groups[group].rows[position], number);
            self.plan.shares.push((before, number));
            return;
        }
        let mut after = last.map(|last| last.group);
        match touched {
            Touched::Task(task) => after = after.max(self.retried.get(&task.job).copied()),
            Touched::Job(job) if kind == WriteKind::Retry => {
                after = after.max(self.tasks_of.get(&job).copied())
            }
            _ => {}
        }
        let bytes = bytes_of(write);
        let group = self.group(kind, after, bytes);
        let rows = &mut self.plan.groups[group].rows;
        self.last.insert(touched, Last { group, position: rows.len() });
        rows.push(number);
        self.plan.groups[group].bytes += bytes;
        match touched {
            Touched::Task(task) => {
                let of = self.tasks_of.entry(task.job).or_default();
                *of = group.max(*of);
            }
            Touched::Job(job) if kind == WriteKind::Retry => _ = self.retried.insert(job, group),
            _ => {}
        }
    }

    /// The first statement of this kind behind `after` that has room, or a new one at the end.
    fn group(&mut self, kind: WriteKind, after: Option<usize>, bytes: usize) -> usize {
        let of_kind = self.by_kind.entry(kind).or_default();
        let behind = of_kind.partition_point(|group| Some(*group) <= after);
        let has_room = |group: &usize| {
            let group = &self.plan.groups[*group];
            group.rows.len() < ROWS_MAX && (group.bytes == 0 || group.bytes + bytes <= BODY_BYTES_MAX)
        };
        if let Some(group) = of_kind[behind..].iter().copied().find(has_room) {
            return group;
        }
        self.plan.groups.push(Group { kind, rows: Vec::new(), bytes: 0 });
        let group = self.plan.groups.len() - 1;
        of_kind.push(group);
        group
    }
}

fn bytes_of(write: &Write) -> usize {
    match write {
        Write::Job { spec, .. } => spec.steps.iter().map(|step| step.body.len()).sum(),
        _ => 0,
    }
}

fn touched(write: &Write) -> Touched<'_> {
    match write {
        Write::Book { task, .. }
        | Write::End { task, .. }
        | Write::Requeued { task, .. }
        | Write::LateResult { task, .. } => Touched::Task(*task),
        Write::Worker(record) => Touched::Worker(record.id),
        Write::WorkerGone(id) => Touched::Worker(*id),
        Write::Lease { worker, .. } => Touched::Worker(*worker),
        Write::History { signature, .. } => Touched::History(signature),
        Write::Queue(queue) => Touched::Queue(&queue.name),
        Write::QueueGone(name) => Touched::Queue(name),
        Write::Limit { name, .. } => Touched::Limit(name),
        Write::Turns(_) => Touched::Turns,
        Write::Job { id: job, .. }
        | Write::JobHeld { job, .. }
        | Write::JobPriority { job, .. }
        | Write::JobStop { job, .. }
        | Write::JobEnd { job, .. }
        | Write::JobRetry { job, .. }
        | Write::TasksCanceled { job, .. }
        | Write::FirstSucceeded { job, .. }
        | Write::SucceededRanges { job, .. }
        | Write::LicenceBackoffs { job, .. }
        | Write::Park { job, .. }
        | Write::Unpark { job, .. } => Touched::Job(*job),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_core::job::{End, TaskResult, TaskState};
    use windlass_core::ranges::RangeSet;
    use windlass_core::{Epoch, Time};

    fn book(job: u64, index: u32, attempt: u32) -> Write {
        let task = TaskId { job: JobId(job), index };
        let (worker, epoch) = (WorkerId(1), Epoch(1));
        Write::Book { task, attempt, worker, epoch, at: Time(1), amounts: (100, 0) }
    }

    fn end(job: u64, index: u32, attempt: u32) -> Write {
        let (task, result) = (TaskId { job: JobId(job), index }, TaskResult::bare(End::Exited(0)));
        Write::End { task, attempt, state: TaskState::Succeeded, failures: 0, losses: 0, result }
    }

    fn lease(worker: u64, until: u64) -> Write {
        Write::Lease { worker: WorkerId(worker), until: Time(until) }
    }

    fn shape(plan: &Plan) -> Vec<(WriteKind, Vec<usize>)> {
        plan.groups.iter().map(|group| (group.kind, group.rows.clone())).collect()
    }

    #[test]
    fn ends_and_bookings_of_many_tasks_are_two_statements() {
        let mut writes: Vec<Write> = (0..500).map(|index| end(1, index, 1)).collect();
        writes.extend((500..1_000).map(|index| book(1, index, 1)));
        let plan = Plan::new(&writes, &BTreeSet::new());
        let kinds: Vec<_> = plan.groups.iter().map(|group| (group.kind, group.rows.len())).collect();
        assert_eq!(kinds, [(WriteKind::End, 500), (WriteKind::First, 500)]);
    }

    #[test]
    fn writes_of_one_task_keep_their_order() {
        let writes = [book(1, 0, 1), end(1, 0, 1), book(1, 1, 1), end(1, 1, 1), book(1, 0, 1)];
        let plan = Plan::new(&writes, &BTreeSet::new());
        let expected =
            [(WriteKind::First, vec![0, 2]), (WriteKind::End, vec![1, 3]), (WriteKind::First, vec![4])];
        assert_eq!(shape(&plan), expected);
    }

    #[test]
    fn the_last_of_several_leases_stands_for_all() {
        let writes = [lease(1, 5), lease(2, 5), lease(1, 6), lease(1, 7)];
        let plan = Plan::new(&writes, &BTreeSet::new());
        assert_eq!(shape(&plan), [(WriteKind::Lease, vec![3, 1])]);
        assert_eq!(plan.refused([3]), [0, 2, 3], "they fail together");
        assert_eq!(plan.refused([1]), [1]);
    }

    #[test]
    fn a_retry_of_a_deleted_job_takes_later_writes_of_the_job_with_it() {
        let retry = |job| Write::JobRetry { job: JobId(job), tasks: RangeSet::from_range(0..9) };
        let writes = [book(1, 0, 1), retry(1), book(1, 1, 1), retry(2), book(2, 0, 2), retry(1)];
        let plan = Plan::new(&writes, &[JobId(2)].into());
        assert_eq!(plan.refused, [1, 2, 5]);
        assert_eq!(
            shape(&plan),
            [(WriteKind::First, vec![0]), (WriteKind::Retry, vec![3]), (WriteKind::Next, vec![4])]
        );
    }

    fn writes() -> impl Strategy<Value = Vec<Write>> {
        let one = prop_oneof![
            (1..3u64, 0..3u32, 1..3u32).prop_map(|(job, index, attempt)| book(job, index, attempt)),
            (1..3u64, 0..3u32, 1..3u32).prop_map(|(job, index, attempt)| end(job, index, attempt)),
            (1..3u64, 0..9u64).prop_map(|(worker, until)| lease(worker, until)),
            (1..3u64).prop_map(|worker| Write::WorkerGone(WorkerId(worker))),
            (1..3u64, 1..4u32).prop_map(|(job, behind)| Write::JobRetry {
                job: JobId(job),
                tasks: RangeSet::from_range(0..behind)
            }),
            (1..3u64, any::<bool>()).prop_map(|(job, held)| Write::JobHeld { job: JobId(job), held }),
        ];
        prop::collection::vec(one, 0..40)
    }

    proptest! {
        #[test]
        fn every_write_is_in_one_statement_behind_what_it_depends_on(writes in writes()) {
            let exists = BTreeSet::from([JobId(1), JobId(2)]);
            let plan = Plan::new(&writes, &exists);
            let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
            for (number, group) in plan.groups.iter().enumerate() {
                let mut seen = BTreeSet::new();
                for row in &group.rows {
                    prop_assert!(group_of.insert(*row, number).is_none());
                    prop_assert!(seen.insert(format!("{:?}", touched(&writes[*row]))), "a row twice in a statement");
                    prop_assert_eq!(WriteKind::of(&writes[*row]), group.kind);
                }
            }
            for (earlier, later) in plan.shares.iter().rev() {
                prop_assert!(group_of.insert(*earlier, group_of[later]).is_none());
            }
            prop_assert_eq!(group_of.len(), writes.len());
            let shared: BTreeSet<usize> = plan.shares.iter().map(|(earlier, _)| *earlier).collect();
            for later in 0..writes.len() {
                for earlier in (0..later).filter(|earlier| !shared.contains(earlier)) {
                    let (a, b) = (touched(&writes[earlier]), touched(&writes[later]));
                    let is_retry = |n: usize| matches!(writes[n], Write::JobRetry { .. });
                    let of_one_job = match (a, b) {
                        (Touched::Job(job), Touched::Task(task)) => is_retry(earlier) && task.job == job,
                        (Touched::Task(task), Touched::Job(job)) => is_retry(later) && task.job == job,
                        _ => false,
                    };
                    if a == b || of_one_job {
                        prop_assert!(group_of[&earlier] < group_of[&later], "{earlier} and {later}");
                    }
                }
            }
        }
    }
}
