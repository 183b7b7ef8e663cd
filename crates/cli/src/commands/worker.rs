//! `windlass worker`: lists, shows and manages workers.

use crate::client::context::Context;
use crate::commands::machine::WorkerHere;
use crate::commands::view::ViewArgs;
use crate::commands::wanted::wanted;
use crate::ui::error::{CliError, Doing};
use crate::ui::fields::FieldLines;
use crate::ui::message::message;
use crate::ui::output::{Format, or_dash, print_one};
use crate::ui::quantity::{age, elapsed, now_ms};
use crate::ui::table::{Cell, Column, Grid};
use crate::ui::terminal;
use clap::{Args, Subcommand};
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::{DiskSpace, DrainRequest, Load, Worker, WorkerState};
use windlass_core::resources::Bytes;
use windlass_core::tags::CORE_SCORE;

/// Most tasks of a worker that are shown to people.
const TASKS_SHOWN_MAX: usize = 20;

/// Shows and manages workers.
#[derive(Subcommand, Debug)]
pub enum WorkerCommand {
    /// What is done on the worker's machine
    #[command(flatten)]
    Here(WorkerHere),
    /// List the workers of the farm
    List(ListArgs),
    /// Show one worker with its load
    Show(WorkerArgs),
    /// Show how many workers of each machine class are wanted, and why
    Wanted(ViewArgs),
    /// Drain a worker: it gets no new work; running tasks go on
    Drain(DrainArgs),
    /// Resume a drained worker
    Resume(WorkerArgs),
    /// Forget a worker that is gone for good: its tasks run again elsewhere
    Forget(ForgetArgs),
}

/// Which workers to list.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Include workers that were forgotten
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Args, Debug)]
pub struct WorkerArgs {
    /// The worker's name, as in 'worker list'
    #[arg(value_name = "NAME")]
    name: String,
}

/// A worker to drain.
#[derive(Args, Debug)]
pub struct DrainArgs {
    /// The worker's name, as in 'worker list'
    #[arg(value_name = "NAME")]
    name: String,
    /// Note for people, such as why: shown by 'worker show' and 'why' until the worker is resumed
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// A worker that is gone.
#[derive(Args, Debug)]
pub struct ForgetArgs {
    /// The worker's name, as in 'worker list'
    #[arg(value_name = "NAME")]
    name: String,
    /// Forget it even while it is connected: its tasks run elsewhere at once, and end on it when it comes back
    #[arg(long)]
    force: bool,
}

/// Runs the command `windlass worker …`.
pub async fn command(context: &Context, command: WorkerCommand) -> Result<(), CliError> {
    match command {
        WorkerCommand::Here(command) => command.run(context, print).await,
        WorkerCommand::List(args) => list(context, args).await,
        WorkerCommand::Show(args) => {
            let worker = context.client().await?.worker(&args.name).await;
            print(context, &worker.doing(format_args!("show worker {}", args.name))?)
        }
        WorkerCommand::Wanted(view) => wanted(context, &view).await,
        WorkerCommand::Drain(DrainArgs { name, note }) => {
            let worker = context.client().await?.drain_worker(&name, &DrainRequest { note }).await;
            said(context, &name, worker.doing(format_args!("drain worker {name}"))?, "takes no new work")
        }
        WorkerCommand::Resume(args) => act(context, &args.name, "resume", "takes work again").await,
        WorkerCommand::Forget(ForgetArgs { name, force }) => {
            let worker = context.client().await?.forget_worker(&name, force).await;
            said(context, &name, worker.doing(format_args!("forget worker {name}"))?, "is forgotten")
        }
    }
}

/// `windlass workers` and `windlass worker list`.
pub async fn list(context: &Context, args: ListArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let read = async || -> Result<Vec<Worker>, CliError> {
        client.workers(args.all).await.doing("list the workers")
    };
    let grid = |workers: &[Worker]| workers_grid(workers, terminal::columns().is_none());
    args.view.show(context, None, read, |worker| worker.name.clone(), grid).await
}

/// The table of workers. Tags that all of them have tell nothing about one, and are there only with `all_tags`.
pub fn workers_grid(workers: &[Worker], all_tags: bool) -> Grid {
    let common = if all_tags { BTreeMap::new() } else { common_tags(workers) };
    let row = |worker: &Worker| {
        let (has, used) = (&worker.capacity, &worker.booked);
        let lease_ms = worker.lease_until_ms.map(|until| until.saturating_sub(now_ms()));
        let heard = worker.heard_ms;
        let own = worker.attributes.iter().filter(|(key, values)| common.get(*key) != Some(*values));
        vec![
            worker.name.as_str().into(),
            state_in_a_word(worker).into(),
            Cell::figure(format!("{}/{}", used.cpus, has.cpus), used.cpus),
            Cell::figure(format!("{}/{}", Bytes(used.memory), Bytes(has.memory)), used.memory as f64),
            Cell::figure(format!("{}/{}", used.gpus, has.gpus), f64::from(used.gpus)),
            Cell::figure(worker.running.to_string(), worker.running as f64),
            Cell::figure(worker.queued.to_string(), worker.queued as f64),
            heard.map(|heard| Cell::figure(age(heard), now_ms().saturating_sub(heard) as f64)).into(),
            lease_ms.map(|ms| Cell::figure(elapsed(ms), ms as f64)).into(),
            worker.version.as_deref().into(),
            or_dash(Some(tags(own)).filter(|tags| !tags.is_empty())).into(),
        ]
    };
    Grid {
        columns: vec![
            Column::text("NAME", 0, 12),
            Column::whole("STATE", 0),
            Column::whole("CPUS", 1),
            Column::whole("MEMORY", 2),
            Column::whole("GPUS", 6),
            Column::whole("RUNNING", 3),
            Column::whole("QUEUED", 7),
            Column::whole("HEARD", 4),
            Column::whole("LEASE", 8),
            Column::text("VERSION", 9, 7),
            Column::text("TAGS", 5, 12),
        ],
        rows: workers.iter().map(row).collect(),
        empty: "no workers",
    }
}

/// The tags that every worker has with the same values.
fn common_tags(workers: &[Worker]) -> BTreeMap<String, BTreeSet<String>> {
    let Some((first, others)) = workers.split_first() else { return BTreeMap::new() };
    let mut common = first.attributes.clone();
    common.retain(|key, values| others.iter().all(|other| other.attributes.get(key) == Some(&*values)));
    common
}

/// The time left until that moment.
fn left(until_ms: u64) -> String {
    elapsed(until_ms.saturating_sub(now_ms()))
}

fn tags<'a>(attributes: impl IntoIterator<Item = (&'a String, &'a BTreeSet<String>)>) -> String {
    let each = attributes.into_iter().map(|(key, values)| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        if values.is_empty() { key.clone() } else { format!("{key}={}", values.join("|")) }
    });
    each.collect::<Vec<_>>().join(" ")
}

async fn act(context: &Context, name: &str, verb: &str, done: &str) -> Result<(), CliError> {
    let worker = context.client().await?.act_on_worker(name, verb).await;
    said(context, name, worker.doing(format_args!("{verb} worker {name}"))?, done)
}

fn said(context: &Context, name: &str, worker: Worker, done: &str) -> Result<(), CliError> {
    if context.format == Format::Table {
        message!("worker {name} {done}");
        return Ok(());
    }
    print(context, &worker)
}

/// Prints one worker in the format that was asked for.
pub fn print(context: &Context, worker: &Worker) -> Result<(), CliError> {
    print_one(context.format, worker, |worker| worker.name.clone(), text)
}

fn text(worker: &Worker) -> String {
    let (has, used) = (&worker.capacity, &worker.booked);
    let mut fields = FieldLines::for_stdout();
    let mut line = |name: &str, value: String| fields.add(name, &value);
    line("worker", worker.name.clone());
    line("state", state_in_words(worker));
    line("cpus", format!("{} of {} booked", used.cpus, has.cpus));
    line("memory", format!("{} of {} booked", Bytes(used.memory), Bytes(has.memory)));
    line("gpus", format!("{} of {} booked", used.gpus, has.gpus));
    if let Some(score) = worker.core_score {
        let from = if worker.attributes.contains_key(CORE_SCORE) { "by its tag" } else { "measured" };
        line("core score", format!("{score} ({from})"));
    }
    let tasks = worker.tasks.as_deref().filter(|tasks| !tasks.is_empty());
    let tasks = tasks.map(|tasks| format!(" ({})", first_of(tasks)));
    line("running", format!("{}{}", worker.running, tasks.unwrap_or_default()));
    line("queued", worker.queued.to_string());
    if let Some(heard) = worker.heard_ms {
        line("heard", format!("{} ago", age(heard)));
    }
    if worker.state != WorkerState::Forgotten {
        let lease = worker.lease_until_ms.map(|until| format!("{} left", left(until)));
        line("lease", lease.unwrap_or_else(|| "none".to_owned()));
    }
    if let Some(version) = &worker.version {
        line("version", version.clone());
    }
    if let Some(ends) = worker.token_expires_ms {
        let soon = if worker.token_ends_soon { "; start it with another one before" } else { "" };
        line("token", format!("expires in {}{soon}", left(ends)));
    }
    if let Some(load) = &worker.load {
        line("load", load_in_words(load));
        line("pressure", pressure_in_words(load));
        if let Some(use_of_links) = network_in_words(load) {
            line("network", use_of_links);
        }
        if let Some(space) = space_in_words(load) {
            line("free space", space);
        }
    }
    if let Some(keys) = worker.cache_keys.filter(|keys| *keys > 0) {
        line("caches", format!("{keys} keys"));
    }
    line("tags", tags(&worker.attributes));
    line("epoch", worker.epoch.to_string());
    fields.text()
}

/// The parts of the load that are known, and their age.
fn load_in_words(load: &Load) -> String {
    let cores = |cores: f64| format!("{cores:.1} cores");
    let parts = [
        load.cpu_used.map(|used| format!("{} in use", cores(used))),
        load.cpu_foreign.map(|foreign| format!("{} used by other processes", cores(foreign))),
        load.memory_available.map(|bytes| format!("{} of memory available", Bytes(bytes))),
        load.memory_own.map(|bytes| format!("{} held by tasks", Bytes(bytes))),
        load.disk_mb_s.map(|speed| format!("disk {speed:.0} MB/s")),
        load.network_mbit_s.map(|speed| format!("network {speed:.0} Mbit/s")),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    let known = if known.is_empty() { "nothing known".to_owned() } else { known.join(", ") };
    format!("{known} ({} ago)", age(load.at_ms))
}

/// The load of the network links, as far as it is known.
fn network_in_words(load: &Load) -> Option<String> {
    let rates = load.network_in_mbit_s.zip(load.network_out_mbit_s);
    let parts = [
        rates.map(|(received, sent)| format!("{received:.0} Mbit/s in, {sent:.0} Mbit/s out")),
        load.network_percent.map(|percent| format!("{percent:.0}% of the busiest link in use")),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The free space of its directories, as far as it is known.
fn space_in_words(load: &Load) -> Option<String> {
    let spaces =
        [("state", load.state_space), ("sessions", load.session_space), ("caches", load.cache_space)];
    let known: Vec<String> = spaces
        .into_iter()
        .filter_map(|(name, space)| {
            let DiskSpace { free_bytes, total_bytes } = space?;
            Some(format!("{name} {} of {}", Bytes(free_bytes), Bytes(total_bytes)))
        })
        .collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The share of time with stalls, over the last second or else over the last ten.
fn pressure_in_words(load: &Load) -> String {
    let pressures = if load.confined { &load.own } else { &load.machine };
    let each = [("cpu", &pressures.cpu), ("memory", &pressures.memory), ("io", &pressures.io)];
    let each = each.map(|(name, pressure)| {
        let stall = pressure.as_ref().and_then(|pressure| pressure.some.as_ref());
        let percent = stall.map(|stall| format!("{:.0}%", stall.window.unwrap_or(stall.avg10)));
        format!("{name} {}", or_dash(percent))
    });
    format!("{}{}", each.join(", "), if load.confined { ", in its own control group" } else { "" })
}

/// The state, and that its token ends soon.
fn state_in_a_word(worker: &Worker) -> String {
    let word = worker.state.as_str();
    match worker.token_expires_ms.filter(|_| worker.token_ends_soon) {
        Some(ends) => format!("{word}, token ends in {}", elapsed(ends.saturating_sub(now_ms()))),
        None => word.to_owned(),
    }
}

/// The state, its consequence, and what to do.
fn state_in_words(worker: &Worker) -> String {
    let word = worker.state.as_str();
    match worker.state {
        WorkerState::Suspect if worker.lease_until_ms.is_none() => {
            format!("{word}: not heard from; run 'windlass worker forget {}' if it is gone", worker.name)
        }
        WorkerState::Suspect => {
            format!(
                "{word}: not heard from, or its keeper does not answer ('windlass doctor worker' there); its tasks run \
                 elsewhere when its lease has run out"
            )
        }
        WorkerState::Draining if worker.connected == Some(false) => format!("{word}, not heard from"),
        WorkerState::Draining if worker.note.is_some() => {
            format!("{word}: {}", worker.note.as_deref().unwrap_or_default())
        }
        WorkerState::Expired => format!("{word}: its lease has run out, and its tasks run elsewhere"),
        _ => word.to_owned(),
    }
}

fn first_of(tasks: &[String]) -> String {
    let more = if tasks.len() > TASKS_SHOWN_MAX { ", …" } else { "" };
    format!("{}{more}", tasks[..tasks.len().min(TASKS_SHOWN_MAX)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_in_one_cell() {
        let set = |values: &[&str]| values.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let attributes =
            BTreeMap::from([("arch".to_owned(), set(&["arm", "x86"])), ("ssd".to_owned(), set(&[]))]);
        assert_eq!(tags(&attributes), "arch=arm|x86 ssd");
    }

    #[test]
    fn tags_of_all_workers_are_left_out() {
        let worker = |name: &str, tags: serde_json::Value| -> Worker {
            let json = serde_json::json!({"id": 1, "name": name, "state": "up", "capacity": {"cpus": 4.0}, "booked": {"cpus": 0.0},
                "running": 0, "queued": 0, "epoch": 1, "attributes": tags});
            serde_json::from_value(json).unwrap()
        };
        let workers = [
            worker("a", serde_json::json!({"os": ["linux"], "kernel": ["6.1"], "ssd": []})),
            worker("b", serde_json::json!({"os": ["linux"], "kernel": ["6.2"]})),
        ];
        let shown = |all| anstream::adapter::strip_str(&workers_grid(&workers, all).render(None)).to_string();
        let lines = shown(false);
        assert!(!lines.contains("os=") && lines.contains("kernel=6.1 ssd\n"), "{lines}");
        assert!(shown(true).contains("kernel=6.2 os=linux\n"));
    }
}
