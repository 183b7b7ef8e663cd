//! The parameters of a statement: arrays, one for each column, with a row for each write.

use super::statements::{WriteKind, id};
use super::{Column, int, text, time, turns};
use crate::codes;
use crate::spec;
use std::cmp::Reverse;
use tokio_postgres::types::ToSql;
use windlass_core::engine::Write;
use windlass_core::job::{Parked, QueuePos, TaskResult};
use windlass_core::queues::TurnsBy;

impl WriteKind {
    /// The parameters for these writes, which are all of this kind.
    pub fn columns<'a>(self, writes: &[&'a Write]) -> Vec<Column<'a>> {
        match self {
            WriteKind::Job => jobs(writes),
            WriteKind::First | WriteKind::Next => bookings(writes),
            WriteKind::End | WriteKind::Again => ends(writes),
            WriteKind::Late => late(writes),
            WriteKind::Worker => workers(writes),
            WriteKind::Park => parked(writes),
            WriteKind::Queue => queues(writes),
            WriteKind::Limit | WriteKind::NoLimit => limits(writes),
            WriteKind::Turns => turns::columns(writes),
            WriteKind::History => vec![
                each(writes, |write| match write {
                    Write::History { signature, .. } => Some(text(signature).into_owned()),
                    _ => None,
                }),
                each(writes, |write| match write {
                    Write::History { samples, .. } => Some(spec::samples_to_json(samples)),
                    _ => None,
                }),
                each(writes, |write| match write {
                    Write::History { at, .. } => Some(time(*at)),
                    _ => None,
                }),
            ],
            _ => by_id(self, writes),
        }
    }
}

/// A column with the value that each write has. The writes of a group are of one kind, so each has it.
fn each<'a, T>(writes: &[&'a Write], value: impl Fn(&'a Write) -> Option<T>) -> Column<'a>
where
    T: ToSql + Sync + Send + 'a,
{
    Box::new(writes.iter().filter_map(|write| value(write)).collect::<Vec<T>>())
}

fn by_id<'a>(kind: WriteKind, writes: &[&'a Write]) -> Vec<Column<'a>> {
    let mut columns = vec![each(writes, |write| Some(id(write)))];
    match kind {
        WriteKind::Held => columns.push(each(writes, |write| match write {
            Write::JobHeld { held, .. } => Some(*held),
            _ => None,
        })),
        WriteKind::Priority => columns.push(each(writes, |write| match write {
            Write::JobPriority { priority, .. } => Some(*priority),
            _ => None,
        })),
        WriteKind::Stop => columns.push(each(writes, |write| match write {
            Write::JobStop { stop, .. } => Some(codes::stop(*stop)),
            _ => None,
        })),
        WriteKind::Done => columns.push(each(writes, |write| match write {
            Write::Done { tasks, .. } => Some(spec::ranges_to_json(tasks)),
            _ => None,
        })),
        WriteKind::BackOffs => columns.push(each(writes, |write| match write {
            Write::LicenceBackoffs { steps, .. } => {
                Some((!steps.is_empty()).then(|| spec::back_offs_to_json(steps)))
            }
            _ => None,
        })),
        WriteKind::Lease => columns.push(each(writes, |write| match write {
            Write::Lease { until, .. } => Some(time(*until)),
            _ => None,
        })),
        WriteKind::EndOfJob => {
            let of = |write: &'a Write| match write {
                Write::JobEnd { state, at, counts, .. } => Some((*state, *at, counts)),
                _ => None,
            };
            columns.push(each(writes, |write| of(write).map(|(state, _, _)| codes::job_state(state) as i16)));
            columns.push(each(writes, |write| of(write).map(|(_, at, _)| time(at))));
            columns.push(each(writes, |write| of(write).map(|(_, _, counts)| spec::counts_to_json(counts))));
        }
        _ => {}
    }
    columns
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
    let mut columns: [Vec<i64>; 8] = std::array::from_fn(|_| Vec::with_capacity(writes.len()));
    for write in writes {
        let Write::Book { task, attempt, worker, epoch, at, amounts: (cpu, memory) } = write else {
            continue;
        };
        let row = [
            int(task.job.0),
            i64::from(task.index),
            i64::from(*attempt),
            int(worker.0),
            int(epoch.0),
            time(*at),
            i64::from(*cpu),
            int(*memory),
        ];
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    columns.map(|column| Box::new(column) as Column<'a>).into()
}

fn ends<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut keys, mut states) = ([const { Vec::new() }; 5], Vec::new());
    let mut results = Vec::new();
    for write in writes {
        let (task, attempt, state, failures, losses, result) = match write {
            Write::End { task, attempt, state, failures, losses, result } => {
                (task, attempt, codes::task_state(*state), failures, losses, result)
            }
            Write::Again { task, attempt, failures, losses, result } => {
                (task, attempt, codes::READY, failures, losses, result)
            }
            _ => continue,
        };
        let row =
            [int(task.job.0), task.index.into(), (*attempt).into(), (*failures).into(), (*losses).into()];
        keys.iter_mut().zip(row).for_each(|(column, value): (&mut Vec<i64>, i64)| column.push(value));
        states.push(state as i16);
        results.push(result);
    }
    let [job, index, attempt, failures, losses] = keys;
    let mut columns: Vec<Column<'a>> = vec![
        Box::new(job),
        Box::new(index),
        Box::new(attempt),
        Box::new(states),
        Box::new(failures),
        Box::new(losses),
    ];
    columns.extend(result_columns(&results));
    columns
}

fn late<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let mut keys: [Vec<i64>; 5] = std::array::from_fn(|_| Vec::with_capacity(writes.len()));
    let mut results = Vec::new();
    for write in writes {
        let Write::Late { task, attempt, worker, epoch, result } = write else { continue };
        let row = [int(task.job.0), task.index.into(), (*attempt).into(), int(worker.0), int(epoch.0)];
        keys.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        results.push(result);
    }
    let keys = keys.map(|column| Box::new(column) as Column<'a>);
    keys.into_iter().chain(result_columns(&results)).collect()
}

/// The ten columns of how attempts ended.
fn result_columns<'a>(results: &[&'a TaskResult]) -> [Column<'a>; 10] {
    let ends: Vec<_> = results.iter().map(|result| codes::end(&result.end)).collect();
    let why =
        results.iter().zip(&ends).map(|(result, (_, _, why))| why.or(result.message.as_deref()).map(text));
    let numbers = |of: fn(&TaskResult) -> Option<i64>| -> Column<'a> {
        Box::new(results.iter().map(|result| of(result)).collect::<Vec<Option<i64>>>())
    };
    [
        Box::new(ends.iter().map(|(end, _, _)| *end as i16).collect::<Vec<i16>>()),
        Box::new(ends.iter().map(|(_, code, _)| *code).collect::<Vec<Option<i64>>>()),
        Box::new(why.collect::<Vec<_>>()),
        numbers(|result| result.started.map(time)),
        numbers(|result| result.finished.map(time)),
        numbers(|result| result.cpu_ms.map(int)),
        numbers(|result| result.peak_memory.map(int)),
        numbers(|result| Some(int(result.out_bytes))),
        numbers(|result| Some(int(result.err_bytes))),
        numbers(|result| result.disk_bytes.map(int)),
    ]
}

fn workers<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let records: Vec<_> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Worker(record) => Some(record),
            _ => None,
        })
        .collect();
    vec![
        Box::new(records.iter().map(|worker| int(worker.id.0)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| text(&worker.name)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| int(worker.epoch.0)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| int(worker.incarnation)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| worker.draining).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| spec::resources_to_json(&worker.capacity)).collect::<Vec<_>>()),
        Box::new(
            records.iter().map(|worker| spec::attributes_to_json(&worker.attributes)).collect::<Vec<_>>(),
        ),
        Box::new(records.iter().map(|worker| int(worker.identity)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| codes::worker_state(worker.state) as i16).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| worker.lease_until.map(time)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|worker| worker.note.as_deref().map(text)).collect::<Vec<_>>()),
    ]
}

fn parked<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let mut columns: [Vec<i64>; 7] = std::array::from_fn(|_| Vec::with_capacity(writes.len()));
    let mut queues = Vec::with_capacity(writes.len());
    for write in writes {
        let Write::Park { job, queue, parked: Parked { class, place, ready, backlog } } = write else {
            continue;
        };
        queues.push(text(queue));
        let row = [
            int(job.0),
            int(*class),
            rank(*place),
            time(place.ranked),
            time(*ready),
            int(backlog.ready),
            int(backlog.waiting),
        ];
        columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let mut columns: Vec<Column<'a>> =
        columns.into_iter().map(|column| Box::new(column) as Column<'a>).collect();
    columns.insert(1, Box::new(queues));
    columns
}

/// The negated priority: a smaller rank comes first.
pub fn rank(place: QueuePos) -> i64 {
    let Reverse(priority) = place.priority;
    -i64::from(priority)
}

fn queues<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let records: Vec<_> = writes
        .iter()
        .filter_map(|write| match write {
            Write::Queue(record) => Some(record),
            _ => None,
        })
        .collect();
    let users =
        records.iter().map(|queue| (!queue.users.is_empty()).then(|| spec::names_to_json(&queue.users)));
    let weights = records.iter().map(|queue| {
        (!queue.user_weights.is_empty()).then(|| spec::user_weights_to_json(&queue.user_weights))
    });
    vec![
        Box::new(records.iter().map(|queue| text(&queue.name)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| i64::from(queue.weight)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| queue.band.map(i64::from)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| queue.quota_cpu.map(i64::from)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| queue.burst_cpu.map(i64::from)).collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| queue.paused.as_deref().map(text)).collect::<Vec<_>>()),
        Box::new(users.collect::<Vec<_>>()),
        Box::new(records.iter().map(|queue| queue.turns == TurnsBy::Jobs).collect::<Vec<_>>()),
        Box::new(weights.collect::<Vec<_>>()),
    ]
}

fn limits<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut names, mut limits) = (Vec::new(), Vec::new());
    for write in writes {
        let Write::Limit { name, limit } = write else { continue };
        names.push(text(name));
        limits.extend(limit.as_ref());
    }
    if limits.is_empty() {
        return vec![Box::new(names)];
    }
    let busy = |exits: fn(&windlass_core::licences::Busy) -> String| {
        limits.iter().map(|limit| limit.busy.as_ref().map(exits)).collect::<Vec<_>>()
    };
    let back_offs = limits.iter().map(|limit| limit.busy.as_ref().map(|busy| int(busy.back_off_ms)));
    vec![
        Box::new(names),
        Box::new(limits.iter().map(|limit| limit.max.map(i64::from)).collect::<Vec<_>>()),
        Box::new(limits.iter().map(|limit| limit.per_worker.map(i64::from)).collect::<Vec<_>>()),
        Box::new(busy(|busy| spec::exits_to_json(&busy.exits))),
        Box::new(back_offs.collect::<Vec<_>>()),
    ]
}
