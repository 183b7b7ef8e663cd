//! The text that scripts print: replies, facts, explanations and lists. `script` calls it. Scripts compare it
//! word for word, and nothing here changes the world.

use super::args::Args;
use crate::clock::S;
use crate::machine::Machine;
use crate::promises::bases;
use crate::world::World;
use windlass_core::engine::{Engine, Fact, Refusal, Reply};
use windlass_core::explain::Word;
use windlass_core::explain::{Explanation, Reason};
use windlass_core::job::{Counts, End, JobState, TaskState};
use windlass_core::plan::placement::{self, Ineligible};
use windlass_core::resources::{Bytes, Cpus};
use windlass_core::worker::{Worker, WorkerState};
use windlass_core::{JobId, TaskId, WorkerId};
use windlass_store::JobFilter;

pub fn worker_name(world: &World, id: WorkerId) -> String {
    let worker = world.engine().and_then(|engine| engine.workers().get(id));
    worker.map_or_else(|| format!("worker {id}"), |worker| worker.record.name.clone())
}

fn end(end: &End) -> String {
    match end {
        End::Exited(code) => format!("exit {code}"),
        End::Signaled(signal) => format!("signal {signal}"),
        End::TimeLimit => "time limit".to_owned(),
        End::OutOfMemory => "out of memory".to_owned(),
        End::Canceled => "killed".to_owned(),
        End::Recalled => "given back".to_owned(),
        End::NotStarted { why, .. } => format!("not started, {why}"),
        End::Lost => "lost with its worker".to_owned(),
        End::OutputsLost { why, .. } => format!("its outputs lost, {why}"),
    }
}

fn lower(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

fn counts(counts: &Counts) -> String {
    let all = [
        ("waiting", counts.waiting),
        ("ready", counts.ready),
        ("active", counts.active),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("canceled", counts.canceled),
        ("skipped", counts.skipped),
    ];
    let some: Vec<String> =
        all.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
    format!("{} of {}", some.join(", "), counts.total)
}

/// The line for a reply.
pub fn answer(world: &World, asked: &str, answer: &Reply) -> String {
    match answer {
        Reply::Submitted { job, existing: true, .. } => format!("job {job} was there before"),
        Reply::Submitted { job, unplaceable, .. } => {
            let steps: Vec<String> = unplaceable
                .iter()
                .map(|step| {
                    let reasons: Vec<String> =
                        step.reasons.iter().map(|(why, n)| format!("{} ({n})", why)).collect();
                    let reasons =
                        if reasons.is_empty() { "there are none".to_owned() } else { reasons.join(", ") };
                    format!("; no worker can run step '{}': {reasons}", step.step)
                })
                .collect();
            format!("job {job} accepted{}", steps.concat())
        }
        Reply::Done => format!("{asked}: done"),
        Reply::Placed { alloc, worker } => {
            format!("{asked}: place {alloc} on {}", worker_name(world, *worker))
        }
        Reply::NoPlace(why) => format!("{asked}: no place, {why}"),
        Reply::Refused(Refusal::Unplaceable(steps)) => {
            let reasons: Vec<String> =
                steps.iter().flat_map(|s| &s.reasons).map(|(r, _)| r.to_string()).collect();
            format!("{asked}: refused, {}: {}", Refusal::Unplaceable(steps.clone()), reasons.join(", "))
        }
        Reply::Refused(refusal) => format!("{asked}: refused, {refusal}"),
    }
}

/// The line for a fact; `None` where the machines' lines tell as much.
pub fn note(world: &World, note: &Fact) -> Option<String> {
    match note {
        Fact::Job { .. } | Fact::Booked { .. } | Fact::Started { .. } => None,
        Fact::JobEnded { job, state, counts: c } => {
            Some(format!("job {job} {}: {}", lower(state), counts(c)))
        }
        Fact::Ended { task, attempt, state, result, .. } => {
            let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            Some(format!("{task} ends{again}: {}, {}", end(&result.end), lower(state)))
        }
        Fact::Late { task, attempt, worker } => Some(format!(
            "late result of {task} attempt {attempt} from {} refused",
            worker_name(world, *worker)
        )),
        Fact::Worker { name, what, .. } => Some(format!("{name} is {what}")),
    }
}

/// The output of a command that only reads.
pub fn show(world: &World, args: &Args) -> Result<Vec<String>, String> {
    match args.verb() {
        "jobs" => Ok(jobs(world)),
        "tasks" => tasks(world, JobId(args.number(0)?)),
        "history" => Ok(history(world, args.task(0)?)),
        "shares" => Ok(world.machines.iter().filter_map(shares).collect()),
        verb => {
            let engine = world.engine().ok_or("there is no scheduler")?;
            match verb {
                "why" => {
                    let task = args.task(0)?;
                    let explanation = windlass_core::explain::task(engine, task)
                        .ok_or_else(|| format!("{task} is unknown"))?;
                    Ok(why(world, task, &explanation))
                }
                "waits" => Ok(vec![waits(engine)]),
                "workers" => Ok(engine.workers().present().map(worker).collect()),
                _ => {
                    let queues = engine.queues().iter();
                    let line = queues.map(|q| {
                        format!(
                            "{} band {}: {} active, {} charged",
                            q.name(),
                            q.band(),
                            q.active,
                            q.share().tasks()
                        )
                    });
                    Ok(line.collect())
                }
            }
        }
    }
}

fn why(world: &World, task: TaskId, explanation: &Explanation) -> Vec<String> {
    let (_, sentence) = explanation.say(|worker| worker_name(world, worker));
    let mut lines = vec![format!("{task} is {}: {sentence}", lower(explanation.state))];
    if let Reason::BackOff { until, .. } = &explanation.reason {
        lines.push(format!("  backs off for {} s more", until.since(world.clock()) / S));
    }
    for (why, count, names) in &explanation.ruled_out {
        lines.push(format!("  {count} worker(s) {why}: {}", names.join(", ")));
    }
    for change in &explanation.changes {
        let place = change.worker().map_or_else(String::new, |worker| format!(" on {worker}"));
        lines.push(format!("  to run it{place}: {}", change.steps().join("; ")));
    }
    if let Some(turn) = &explanation.turn {
        lines.push(format!(
            "  queue {} band {}: {} queue(s), {} step(s), {} task(s) ahead",
            turn.queue, turn.band, turn.queues_ahead, turn.steps_ahead, turn.tasks_ahead
        ));
    }
    lines
}

fn worker(worker: &Worker) -> String {
    let state = match (worker.record.state, worker.link.connected) {
        (WorkerState::Draining, false) => "draining, not heard from".to_owned(),
        (state, _) => lower(state),
    };
    let list = |tasks: Vec<String>| if tasks.is_empty() { "nothing".to_owned() } else { tasks.join(" ") };
    let mut line = format!(
        "{} {state}, epoch {}: {} of {} cpus, {} of {}, runs {}",
        worker.record.name,
        worker.record.epoch,
        Cpus(worker.booked.sum().cpu.into()),
        Cpus(worker.record.capacity.cpu.into()),
        Bytes(worker.booked.sum().memory),
        Bytes(worker.record.capacity.memory),
        list(worker.booked.running().iter().map(ToString::to_string).collect()),
    );
    if !worker.booked.backlog().is_empty() {
        line +=
            &format!(", then {}", list(worker.booked.backlog().iter().map(ToString::to_string).collect()));
    }
    let worker_blockers = placement::worker_blockers(worker)
        .filter(|why| !matches!(why, Ineligible::Suspect | Ineligible::Draining(_)));
    line.extend(worker_blockers.map(|why| format!(", {why}")));
    if worker.booked.headroom_bytes() > 0 {
        line += &format!(", expects {} more", Bytes(worker.booked.headroom_bytes()));
    }
    if !worker.booked.places().is_empty() {
        line += &format!(", {} place(s) taken", worker.booked.places().len());
    }
    line
}

/// What the keeper of a machine was told of the cpus that its tasks with a jobserver share; `None` if it has none.
fn shares(machine: &Machine) -> Option<String> {
    let (cpu, shares) = machine.keeper.as_ref()?.shares()?;
    let parts: Vec<String> =
        shares.iter().map(|share| format!("{} by {}", share.task, share.weight)).collect();
    Some(format!("{} shares {} cpus: {}", machine.label, Cpus(cpu.into()), parts.join(", ")))
}

/// Number of ready tasks by the reason for which they wait, and cpus that no waiting work can use.
fn waits(engine: &Engine) -> String {
    let waiting = windlass_core::explain::waiting_tasks(engine);
    let counts = Word::OF_WAITING.iter().filter_map(|word| Some((waiting.get(word)?, word.as_str())));
    let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    let counts = if counts.is_empty() { "nothing waits".to_owned() } else { counts.join(", ") };
    format!("{counts}; {} cpus stranded", Cpus(engine.planner().stranded_cpu()))
}

fn jobs(world: &World) -> Vec<String> {
    let mut all = world.store.jobs(&JobFilter::default(), None, usize::MAX, usize::MAX).jobs;
    all.reverse();
    let line = all.into_iter().map(|view| {
        let live = world.engine().and_then(|engine| engine.job(view.id)).map(|job| job.counts());
        let held = if view.held { ", held" } else { "" };
        let count = live.or(view.counts).map_or_else(String::new, |c| format!(": {}", counts(&c)));
        format!("{} '{}' in {}, {}{held}{count}", view.id, view.spec.name, view.spec.queue, lower(view.state))
    });
    line.collect()
}

/// The state of every task, from the engine while the job is active and from the store afterwards.
fn tasks(world: &World, id: JobId) -> Result<Vec<String>, String> {
    let view = world.store.job(id).ok_or_else(|| format!("there is no job {id}"))?;
    let total: u32 = view.spec.steps.iter().map(|step| step.tasks).sum();
    let stored = world.store.tasks(id, 0..total);
    let firsts = bases(&view.spec);
    let lines = (0..total).map(|index| {
        let task = TaskId { job: id, index };
        let step = &view.spec.steps[firsts.partition_point(|base| *base <= index) - 1].name;
        let explained = world.engine().and_then(|engine| windlass_core::explain::reason(engine, task));
        let row = stored.iter().find(|stored| stored.row.index == index);
        let state = match (&explained, row) {
            (Some(explanation), _) => explanation.state,
            (None, row)
                if view.cancels.contains(index)
                    && row.is_none_or(|stored| stored.row.state < TaskState::Succeeded) =>
            {
                TaskState::Canceled
            }
            (None, Some(stored)) => stored.row.state,
            (None, None) if view.state == JobState::Active => TaskState::Waiting,
            (None, None) => windlass_core::job::unstarted_state(view.stop),
        };
        let place = match explained.map(|explanation| explanation.reason) {
            Some(Reason::Placed { worker, queued: true, .. }) => {
                format!(", waits at {}", worker_name(world, worker))
            }
            Some(Reason::Placed { worker, .. }) => format!(" on {}", worker_name(world, worker)),
            _ => String::new(),
        };
        let attempt = row.map_or_else(String::new, |stored| match &stored.result {
            Some(result) => format!(", attempt {}, {}", stored.row.attempt, end(&result.end)),
            None => format!(", attempt {}", stored.row.attempt),
        });
        format!("{task} {step} {}{place}{attempt}", lower(state))
    });
    Ok(lines.collect())
}

fn history(world: &World, task: TaskId) -> Vec<String> {
    let attempts = world.store.history(task).into_iter().map(|view| {
        let late = if view.late { ", refused" } else { "" };
        let name = worker_name(world, view.worker);
        format!("attempt {} on {name} epoch {}: {}{late}", view.attempt, view.epoch, end(&view.result.end))
    });
    attempts.collect()
}
