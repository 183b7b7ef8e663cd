//! The parameters of a statement: arrays, one for each column, with a row for each write.

use super::column::{Column, text, transposed};
use super::statements::{WriteKind, id};
use super::turns;
use crate::codes::{self, int, time};
use crate::spec;
use std::cmp::Reverse;
use windlass_core::engine::Write;
use windlass_core::job::{Parked, QueuePos, TaskResult};
use windlass_core::queues::TurnsBy;

/// A column with the value that each write has. The writes of a group are of one kind, so each has it.
macro_rules! column {
    ($writes:expr, $kind:pat => $value:expr) => {{
        let values = $writes.iter().filter_map(|write| match *write {
            $kind => Some($value),
            _ => None,
        });
        Box::new(values.collect::<Vec<_>>()) as Column<'_>
    }};
}

impl WriteKind {
    pub fn columns<'a>(self, writes: &[&'a Write]) -> Vec<Column<'a>> {
        match self {
            WriteKind::Job => jobs(writes),
            WriteKind::First | WriteKind::Next => bookings(writes),
            WriteKind::End | WriteKind::Again => ends(writes),
            WriteKind::Late => late(writes),
            WriteKind::Worker => workers(writes),
            WriteKind::Park => parked(writes),
            WriteKind::Queue => queues(writes),
            WriteKind::QueueGone => vec![column!(writes, Write::QueueGone(name) => text(name))],
            WriteKind::Limit | WriteKind::NoLimit => limits(writes),
            WriteKind::Turns => turns::columns(writes),
            WriteKind::History => vec![
                column!(writes, Write::History { signature, .. } => text(signature)),
                column!(writes, Write::History { samples, .. } => spec::samples_to_json(samples)),
                column!(writes, Write::History { at, .. } => time(*at)),
            ],
            _ => by_id(self, writes),
        }
    }
}

fn by_id<'a>(kind: WriteKind, writes: &[&'a Write]) -> Vec<Column<'a>> {
    let ids: Vec<i64> = writes.iter().map(|write| id(write)).collect();
    let mut columns: Vec<Column<'a>> = vec![Box::new(ids)];
    match kind {
        WriteKind::Held => columns.push(column!(writes, Write::JobHeld { held, .. } => *held)),
        WriteKind::Priority => {
            columns.push(column!(writes, Write::JobPriority { priority, .. } => *priority));
        }
        WriteKind::Stop => columns.push(column!(writes, Write::JobStop { stop, .. } => codes::stop(*stop))),
        WriteKind::Done => {
            columns.push(column!(writes, Write::SucceededRanges { tasks, .. } => spec::ranges_to_json(tasks)));
        }
        WriteKind::BackOffs => columns.push(column!(
            writes,
            Write::LicenceBackoffs { steps, .. } => (!steps.is_empty()).then(|| spec::back_offs_to_json(steps))
        )),
        WriteKind::Cancels => columns.push(column!(
            writes,
            Write::TasksCanceled { tasks, .. } => (!tasks.is_empty()).then(|| spec::ranges_to_json(tasks))
        )),
        WriteKind::FirstSucceeded => columns.push(column!(
            writes,
            Write::FirstSucceeded { tasks, .. } => (!tasks.is_empty()).then(|| spec::ranges_to_json(tasks))
        )),
        WriteKind::Retry => columns.extend(retried(writes)),
        WriteKind::Lease => columns.push(column!(writes, Write::Lease { until, .. } => time(*until))),
        WriteKind::EndOfJob => {
            let state = column!(writes, Write::JobEnd { state, .. } => codes::job_state(*state) as i16);
            let at = column!(writes, Write::JobEnd { at, .. } => time(*at));
            let counts = column!(writes, Write::JobEnd { counts, .. } => spec::counts_to_json(counts));
            columns.extend([state, at, counts]);
        }
        _ => {}
    }
    columns
}

/// The ranges of tasks that are retried: the job, the first task, and the one behind the last.
fn retried<'a>(writes: &[&'a Write]) -> impl Iterator<Item = Column<'a>> {
    let mut rows: Vec<[i64; 3]> = Vec::new();
    for write in writes {
        let Write::JobRetry { job, tasks } = write else { continue };
        rows.extend(tasks.ranges().map(|range| [int(job.0), range.start.into(), range.end.into()]));
    }
    transposed(rows)
}

fn jobs<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut ids, mut names, mut queues, mut users, mut keys) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut specs, mut created, mut bytes) = (vec![], vec![], vec![]);
    let (mut owners, mut steps, mut bodies) = (vec![], vec![], vec![]);
    for write in writes {
        let Write::Job { id, spec, created: at } = write else { continue };
        let json = spec::spec_to_json(spec);
        ids.push(int(id.0));
        names.push(text(&spec.name));
        queues.push(text(&spec.queue));
        users.push(text(&spec.user));
        keys.push(spec.key.as_deref().map(text));
        bytes.push((json.len() + spec.steps.iter().map(|step| step.body.len()).sum::<usize>()) as i64);
        specs.push(json);
        created.push(time(*at));
        for (number, step) in spec.steps.iter().enumerate() {
            owners.push(int(id.0));
            steps.push(number as i32);
            bodies.push(&*step.body);
        }
    }
    vec![
        Box::new(ids),
        Box::new(names),
        Box::new(queues),
        Box::new(users),
        Box::new(keys),
        Box::new(specs),
        Box::new(created),
        Box::new(bytes),
        Box::new(owners),
        Box::new(steps),
        Box::new(bodies),
    ]
}

/// Who submitted a new job, and the bytes of its spec and bodies.
pub fn job_totals(write: &Write) -> Option<(&str, i64)> {
    let Write::Job { spec, .. } = write else { return None };
    let bodies = spec.steps.iter().map(|step| step.body.len()).sum::<usize>();
    Some((&spec.user, (spec::spec_to_json(spec).len() + bodies) as i64))
}

fn bookings<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let rows = writes.iter().filter_map(|write| match write {
        Write::Book { task, attempt, worker, epoch, at, amounts: (cpu, memory) } => Some([
            int(task.job.0),
            i64::from(task.index),
            i64::from(*attempt),
            int(worker.0),
            int(epoch.0),
            time(*at),
            i64::from(*cpu),
            int(*memory),
        ]),
        _ => None,
    });
    transposed(rows.collect()).collect()
}

fn ends<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for write in writes {
        let (task, attempt, state, failures, losses, result) = match write {
            Write::End { task, attempt, state, failures, losses, result } => {
                (task, attempt, codes::task_state(*state), failures, losses, result)
            }
            Write::Requeued { task, attempt, failures, losses, result } => {
                (task, attempt, codes::READY, failures, losses, result)
            }
            _ => continue,
        };
        let (index, attempt) = (i64::from(task.index), i64::from(*attempt));
        rows.push([int(task.job.0), index, attempt, state, i64::from(*failures), i64::from(*losses)]);
        results.push(result);
    }
    let states: Vec<i16> = rows.iter().map(|row| row[3] as i16).collect();
    let mut columns: Vec<Column<'a>> = transposed(rows).collect();
    columns[3] = Box::new(states);
    columns.extend(result_columns(&results));
    columns
}

fn late<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for write in writes {
        let Write::LateResult { task, attempt, worker, epoch, result } = write else { continue };
        rows.push([int(task.job.0), task.index.into(), (*attempt).into(), int(worker.0), int(epoch.0)]);
        results.push(result);
    }
    transposed(rows).chain(result_columns(&results)).collect()
}

/// The ten columns of how attempts ended.
fn result_columns<'a>(results: &[&'a TaskResult]) -> impl Iterator<Item = Column<'a>> {
    let (mut ends, mut numbers, mut why) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        let (end, code, reason) = codes::end(&result.end);
        ends.push(end as i16);
        numbers.push(code);
        why.push(reason.or(result.message.as_deref()).map(text));
    }
    let first: [Column<'a>; 3] = [Box::new(ends), Box::new(numbers), Box::new(why)];
    first.into_iter().chain(transposed(results.iter().map(|result| codes::usage(result)).collect()))
}

fn workers<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    vec![
        column!(writes, Write::Worker(worker) => int(worker.id.0)),
        column!(writes, Write::Worker(worker) => text(&worker.name)),
        column!(writes, Write::Worker(worker) => int(worker.epoch.0)),
        column!(writes, Write::Worker(worker) => int(worker.incarnation)),
        column!(writes, Write::Worker(worker) => worker.draining),
        column!(writes, Write::Worker(worker) => spec::resources_to_json(&worker.capacity)),
        column!(writes, Write::Worker(worker) => spec::to_json(&worker.attributes)),
        column!(writes, Write::Worker(worker) => int(worker.identity)),
        column!(writes, Write::Worker(worker) => codes::worker_state(worker.state) as i16),
        column!(writes, Write::Worker(worker) => worker.lease_until.map(time)),
        column!(writes, Write::Worker(worker) => worker.note.as_deref().map(text)),
    ]
}

fn parked<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let rows = writes.iter().filter_map(|write| match write {
        Write::Park { job, parked: Parked { class, position, ready, backlog }, .. } => Some([
            int(job.0),
            int(*class),
            rank(*position),
            time(position.ranked),
            time(*ready),
            int(backlog.ready),
            int(backlog.waiting),
        ]),
        _ => None,
    });
    let mut columns: Vec<Column<'a>> = transposed(rows.collect()).collect();
    columns.insert(1, column!(writes, Write::Park { queue, .. } => text(queue)));
    columns
}

/// The negated priority: a smaller rank comes first.
pub fn rank(place: QueuePos) -> i64 {
    let Reverse(priority) = place.priority;
    -i64::from(priority)
}

fn queues<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    vec![
        column!(writes, Write::Queue(queue) => text(&queue.name)),
        column!(writes, Write::Queue(queue) => i64::from(queue.weight)),
        column!(writes, Write::Queue(queue) => queue.band.map(i64::from)),
        column!(writes, Write::Queue(queue) => queue.quota_cpu.map(i64::from)),
        column!(writes, Write::Queue(queue) => queue.burst_cpu.map(i64::from)),
        column!(writes, Write::Queue(queue) => queue.paused.as_deref().map(text)),
        column!(writes, Write::Queue(queue) => (!queue.users.is_empty()).then(|| spec::to_json(&queue.users))),
        column!(writes, Write::Queue(queue) => queue.turns == TurnsBy::Jobs),
        column!(
            writes,
            Write::Queue(queue) => (!queue.user_weights.is_empty()).then(|| spec::to_json(&queue.user_weights))
        ),
        column!(writes, Write::Queue(queue) => queue.jobserver),
    ]
}

fn limits<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let names = column!(writes, Write::Limit { name, .. } => text(name));
    // All of a group set a limit, or all remove one.
    if !writes.iter().any(|write| matches!(write, Write::Limit { limit: Some(_), .. })) {
        return vec![names];
    }
    vec![
        names,
        column!(writes, Write::Limit { limit: Some(limit), .. } => limit.max.map(i64::from)),
        column!(writes, Write::Limit { limit: Some(limit), .. } => limit.per_worker.map(i64::from)),
        column!(
            writes,
            Write::Limit { limit: Some(limit), .. } => limit.busy.as_ref().map(|busy| spec::to_json(&busy.exits))
        ),
        column!(
            writes,
            Write::Limit { limit: Some(limit), .. } => limit.busy.as_ref().map(|busy| int(busy.back_off_ms))
        ),
    ]
}
