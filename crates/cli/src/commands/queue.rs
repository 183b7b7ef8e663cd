//! `windlass queue`: lists, shows and configures queues.

use crate::client::context::Context;
use crate::commands::view::ViewArgs;
use crate::ui::error::{CliError, Doing};
use crate::ui::fields::FieldLines;
use crate::ui::message::message;
use crate::ui::output::{Format, count, cpus, print_one};
use crate::ui::table::{Cell, Column, Grid};
use clap::{ArgGroup, Args, Subcommand};
use std::collections::BTreeSet;
use windlass_api::client::remove_queue;
use windlass_api::quantity::parse_cpus;
use windlass_api::{Queue, SetQueue, TurnsBy};

/// Shows and configures queues.
#[derive(Subcommand, Debug)]
pub enum QueueCommand {
    /// List the queues of the farm
    List(ViewArgs),
    /// Show one queue with its settings
    Show(QueueArgs),
    /// Set band, weight, quota, burst, users, turns or jobservers of a queue (administrators)
    Set(SetQueueArgs),
    /// Pause a queue: it starts no task; running tasks go on (administrators)
    Pause(PauseArgs),
    /// Resume a paused queue (administrators)
    Resume(QueueArgs),
    /// Remove a queue without unfinished jobs, and all that was set of it (administrators)
    Remove(QueueArgs),
}

#[derive(Args, Debug)]
pub struct QueueArgs {
    /// The queue's name, as in 'queue list'
    #[arg(value_name = "NAME")]
    name: String,
}

/// A queue to pause, and the reason.
#[derive(Args, Debug)]
pub struct PauseArgs {
    /// The queue's name, as in 'queue list'
    #[arg(value_name = "NAME")]
    name: String,
    /// Reason, shown to users who ask why their tasks wait
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// New settings of a queue; those that are not given stay.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["band", "weight", "quota", "burst", "users", "turns", "user_weights", "jobserver"]))]
pub struct SetQueueArgs {
    /// The queue's name; the queue need not exist yet
    #[arg(value_name = "NAME")]
    name: String,
    /// Band, 0 to 9; a higher band is served first. auto is 9 for vip, 1 for idle and 3 for all others
    #[arg(long, value_name = "N|auto", value_parser = parse_band)]
    band: Option<Band>,
    /// Weight against the other queues of its band, 1 to 10000; 100 unless set
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// Cpus that its tasks may hold while other queues could use them, or none for no quota
    #[arg(long, value_name = "CPUS|none", value_parser = parse_quota)]
    quota: Option<Quota>,
    /// Cpus that its tasks may hold while no other queue can use them, or none for no more than the quota
    #[arg(long, value_name = "CPUS|none", value_parser = parse_quota)]
    burst: Option<Quota>,
    /// Users who may submit, besides administrators and the user of the queue's name: NAME,NAME, '*' for all, or none
    #[arg(long, value_name = "NAMES|none", value_parser = parse_users)]
    users: Option<Users>,
    /// Whether its users take turns, or all its jobs stand in one line; for jobs submitted from now on
    #[arg(long, value_name = "users|jobs", value_parser = parse_turns)]
    turns: Option<TurnsBy>,
    /// Weight of a user against the queue's other users, 1 to 10000, or none for 100; may be repeated
    #[arg(long = "user-weight", value_name = "NAME=N|none", value_parser = parse_user_weight)]
    user_weights: Vec<(String, Option<u32>)>,
    /// Jobservers of tasks whose 'run' or 'submit' says nothing of one: on for all, off for none, not even for builds such
    /// as make; auto for such builds. For jobs submitted from now on
    #[arg(long, value_name = "on|off|auto", value_parser = parse_jobserver)]
    jobserver: Option<QueueJobserver>,
}

/// The value of --jobserver; `None` for `auto`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct QueueJobserver(Option<bool>);

fn parse_jobserver(text: &str) -> Result<QueueJobserver, String> {
    match text {
        "on" => Ok(QueueJobserver(Some(true))),
        "off" => Ok(QueueJobserver(Some(false))),
        "auto" => Ok(QueueJobserver(None)),
        _ => Err(format!("invalid jobserver '{text}': give on, off or auto")),
    }
}

fn parse_turns(text: &str) -> Result<TurnsBy, String> {
    let named = TurnsBy::ALL.iter().copied().find(|turns| turns.as_str() == text);
    named.ok_or_else(|| format!("invalid turns '{text}': give users or jobs"))
}

fn parse_user_weight(text: &str) -> Result<(String, Option<u32>), String> {
    let wrong = || format!("invalid weight '{text}': give NAME=N, or NAME=none");
    let (user, weight) = text.split_once('=').filter(|(user, _)| !user.is_empty()).ok_or_else(wrong)?;
    let weight = if weight == "none" { None } else { Some(weight.parse().map_err(|_| wrong())?) };
    Ok((user.to_owned(), weight))
}

/// The value of --users; empty for `none`.
#[derive(Clone, PartialEq, Debug)]
struct Users(BTreeSet<String>);

fn parse_users(text: &str) -> Result<Users, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
    Ok(Users(names.map(str::to_owned).collect()))
}

/// The value of --quota or --burst; `None` for `none`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Quota(Option<f64>);

fn parse_quota(text: &str) -> Result<Quota, String> {
    match text {
        "none" => Ok(Quota(None)),
        _ => match parse_cpus(text)? {
            0.0 => Err("with a quota of 0 nothing could run; pause the queue instead".to_owned()),
            cpus => Ok(Quota(Some(cpus))),
        },
    }
}

/// The value of --band; `None` for `auto`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Band(Option<u8>);

fn parse_band(text: &str) -> Result<Band, String> {
    match text {
        "auto" => Ok(Band(None)),
        _ => text
            .parse()
            .map(|band| Band(Some(band)))
            .map_err(|_| format!("invalid band '{text}': give 0 to 9, or auto")),
    }
}

/// Runs the command `windlass queue …`.
pub async fn command(context: &Context, command: QueueCommand) -> Result<(), CliError> {
    match command {
        QueueCommand::List(view) => list(context, &view).await,
        QueueCommand::Show(QueueArgs { name }) => {
            let queue = context.client().await?.queue(&name).await;
            print(context, &queue.doing(format_args!("show queue {name}"))?)
        }
        QueueCommand::Set(args) => set(context, args).await,
        QueueCommand::Pause(PauseArgs { name, note }) => {
            let change = SetQueue { paused: Some(Some(note)), ..SetQueue::default() };
            let queue = change_queue(context, &name, &change, "pause").await?;
            let said = format!("queue {name} is paused; 'windlass queue resume {name}' resumes it");
            tell(context, &queue, &said)
        }
        QueueCommand::Resume(QueueArgs { name }) => {
            // A mistyped name must not create a queue.
            let before = context.client().await?.queue(&name).await;
            let before = before.doing(format_args!("resume queue {name}"))?;
            let change = SetQueue { paused: Some(None), ..SetQueue::default() };
            let queue = change_queue(context, &name, &change, "resume").await?;
            let said = if before.paused.is_some() { "is resumed" } else { "was not paused" };
            tell(context, &queue, &format!("queue {name} {said}"))
        }
        QueueCommand::Remove(QueueArgs { name }) => {
            let client = context.client().await?;
            remove_queue(&client, &name).await.doing(format_args!("remove queue {name}"))?;
            message!("queue {name} is removed");
            Ok(())
        }
    }
}

/// `windlass queues` and `windlass queue list`.
pub async fn list(context: &Context, view: &ViewArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let read = async || -> Result<Vec<Queue>, CliError> { client.queues().await.doing("list the queues") };
    view.show(context, None, read, |queue| queue.name.clone(), queues_grid).await
}

async fn set(context: &Context, args: SetQueueArgs) -> Result<(), CliError> {
    let SetQueueArgs { name, band, weight, quota, burst, users, turns, user_weights, jobserver } = args;
    let change = SetQueue {
        band: band.map(|band| band.0),
        weight,
        quota_cpus: quota.map(|quota| quota.0),
        burst_cpus: burst.map(|burst| burst.0),
        paused: None,
        users: users.map(|users| users.0),
        turns,
        user_weights: user_weights.into_iter().collect(),
        jobserver: jobserver.map(|jobserver| jobserver.0),
    };
    let queue = change_queue(context, &name, &change, "set").await?;
    let (band, weight, quota) = (queue.band, queue.weight, quota_in_words(&queue));
    let users = users_in_words(&queue);
    tell(context, &queue, &format!("queue {name} has band {band}, weight {weight} and {quota}; {users}"))
}

async fn change_queue(
    context: &Context,
    name: &str,
    change: &SetQueue,
    doing: &str,
) -> Result<Queue, CliError> {
    let queue = context.client().await?.set_queue(name, change).await;
    queue.doing(format_args!("{doing} queue {name}"))
}

/// Prints the message for people, the queue for programs.
fn tell(context: &Context, queue: &Queue, said: &str) -> Result<(), CliError> {
    if context.format == Format::Table {
        message!("{said}");
        return Ok(());
    }
    print(context, queue)
}

fn quota_in_words(queue: &Queue) -> String {
    let quota =
        queue.quota_cpus.map_or_else(|| "no quota".to_owned(), |quota| format!("a quota of {}", cpus(quota)));
    quota + &queue.burst_cpus.map_or_else(String::new, |cpus| format!(", with bursts up to {cpus}"))
}

fn users_in_words(queue: &Queue) -> String {
    match queue.users.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => format!(
            "no users are listed: user '{}' may submit in bands 0 to 3, and all users to 'idle'",
            queue.name
        ),
        users if users.contains(&"*") => "all users may submit".to_owned(),
        users => format!("{} may submit", users.join(", ")),
    }
}

fn print(context: &Context, queue: &Queue) -> Result<(), CliError> {
    print_one(context.format, queue, |queue| queue.name.clone(), text)
}

fn text(queue: &Queue) -> String {
    let mut fields = FieldLines::for_stdout();
    let mut line = |name: &str, value: String| fields.add(name, &value);
    let or_none = |bound: Option<f64>| bound.map_or_else(|| "none".to_owned(), cpus);
    line("queue", queue.name.clone());
    if let Some(note) = &queue.paused {
        line("paused", if note.is_empty() { "yes".to_owned() } else { note.clone() });
    }
    line("band", queue.band.to_string());
    line("weight", queue.weight.to_string());
    if !queue.users.is_empty() {
        line("users", queue.users.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    }
    match queue.turns {
        TurnsBy::Jobs => line("turns", "none: its jobs stand in one line".to_owned()),
        TurnsBy::Users if queue.user_weights.is_empty() => line("turns", "its users, equally".to_owned()),
        TurnsBy::Users => {
            let weights = queue.user_weights.iter().map(|(user, weight)| format!("{user} {weight}"));
            let weights = weights.collect::<Vec<_>>().join(", ");
            line("turns", format!("its users, by weights: {weights}, others 100"));
        }
    }
    match queue.jobserver {
        Some(true) => {
            line("jobserver", "on: tasks have one unless 'run' or 'submit' says otherwise".to_owned())
        }
        Some(false) => {
            line("jobserver", "off: only tasks whose 'run' or 'submit' asks for one have it".to_owned())
        }
        None => {}
    }
    line("quota", or_none(queue.quota_cpus));
    line("burst", or_none(queue.burst_cpus));
    line("running", format!("{}, {}", count(queue.running.into(), "task"), cpus(queue.running_cpus)));
    let (waiting, steps) = (queue.waiting, queue.ready_steps as u64);
    line("waiting", format!("{} in {}", count(waiting, "task"), count(steps, "step")));
    if let (Some(demand), Some(entitled)) = (queue.demand_cpus, queue.entitled_cpus) {
        line("entitled", entitled_in_words(demand, entitled, queue));
    }
    line("started", format!("{} since the server started", count(queue.booked, "task")));
    let of = if queue.charge == "task" { "tasks" } else { "machine time" };
    line(
        "share",
        queue.share.map_or_else(|| "-".to_owned(), |s| format!("{} of its band's {of}", percent(s))),
    );
    fields.text()
}

fn entitled_in_words(demand_cpus: f64, entitled_cpus: f64, queue: &Queue) -> String {
    let capped = queue.effective_weight.filter(|weight| *weight < f64::from(queue.weight) && *weight > 0.0);
    let counts = capped.map_or_else(String::new, |weight| {
        let digits = if weight < 1.0 { 4 } else { 1 };
        format!("; its weight counts as {weight:.digits$}")
    });
    format!("to {entitled_cpus} of the {} that it wants{counts}", cpus(demand_cpus))
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// The table of queues. A share is one of its band's, so a queue that is alone there has none to tell.
pub fn queues_grid(queues: &[Queue]) -> Grid {
    let in_band =
        |band: u8| queues.iter().filter(|queue| queue.band == band && queue.share.is_some()).count();
    let amount = |amount: f64| Cell::figure(amount.to_string(), amount);
    let row = |queue: &Queue| {
        let share = queue.share.filter(|_| in_band(queue.band) > 1);
        let paused = queue.paused.as_ref();
        let paused =
            paused.map(|note| if note.is_empty() { "paused".to_owned() } else { format!("paused: {note}") });
        vec![
            queue.name.as_str().into(),
            Cell::number(queue.band),
            Cell::number(queue.weight),
            queue.quota_cpus.map(amount).into(),
            queue.burst_cpus.map(amount).into(),
            Cell::number(queue.running),
            Cell::number(queue.waiting),
            Cell::number(queue.booked),
            share.map(|share| Cell::figure(percent(share), share)).into(),
            paused.into(),
        ]
    };
    Grid {
        columns: vec![
            Column::text("NAME", 0, 10),
            Column::whole("BAND", 3),
            Column::whole("WEIGHT", 4),
            Column::whole("QUOTA", 6),
            Column::whole("BURST", 7),
            Column::whole("RUNNING", 1),
            Column::whole("WAITING", 2),
            Column::whole("STARTED", 9),
            Column::whole("SHARE", 8),
            Column::text("STATE", 5, 8),
        ],
        rows: queues.iter().map(row).collect(),
        empty: "no queues yet; the first job of a queue creates it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_beside_others_of_its_band() {
        let queue = |name: &str, band: u8, share: f64| {
            let json = serde_json::json!({"name": name, "band": band, "weight": 100, "running": 0, "ready_steps": 0,
                "booked": 9, "share": share});
            serde_json::from_value::<Queue>(json).unwrap()
        };
        let shown = |queues: &[Queue]| queues_grid(queues).render(None);
        let two = [queue("a", 3, 0.75), queue("b", 3, 0.25), queue("vip", 9, 1.0)];
        let text = shown(&two);
        assert!(text.contains("75.0%") && text.contains("25.0%") && !text.contains("100.0%"), "{text}");
        assert!(!shown(&two[2..]).contains('%'));
    }

    #[test]
    fn a_weight_that_counts_as_less_is_told() {
        let queue = |effective: Option<f64>| {
            let json = serde_json::json!({"name": "film", "band": 3, "weight": 300, "running": 0, "ready_steps": 0,
                "booked": 0, "demand_cpus": 8.0, "entitled_cpus": 2.67, "effective_weight": effective});
            serde_json::from_value::<Queue>(json).unwrap()
        };
        let line = |effective| {
            let text = text(&queue(effective));
            text.lines().find_map(|line| line.strip_prefix("entitled   ")).unwrap().to_owned()
        };
        assert_eq!(line(Some(300.0)), "to 2.67 of the 8 cpus that it wants");
        assert_eq!(line(None), "to 2.67 of the 8 cpus that it wants");
        assert_eq!(line(Some(50.0 / 3.0)), "to 2.67 of the 8 cpus that it wants; its weight counts as 16.7");
        assert_eq!(line(Some(0.0125)), "to 2.67 of the 8 cpus that it wants; its weight counts as 0.0125");
    }

    #[test]
    fn a_quota_is_cpus_or_none() {
        assert_eq!(parse_quota("2.5"), Ok(Quota(Some(2.5))));
        assert_eq!(parse_quota("none"), Ok(Quota(None)));
        for bad in ["0", "", "all", "-1", "nan"] {
            assert!(parse_quota(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_band_is_a_number_or_auto() {
        assert_eq!(parse_band("0"), Ok(Band(Some(0))));
        assert_eq!(parse_band("auto"), Ok(Band(None)));
        for bad in ["", "high", "-1", "256"] {
            assert!(parse_band(bad).unwrap_err().contains("give 0 to 9"), "{bad}");
        }
    }
}
