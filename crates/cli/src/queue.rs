//! `windlass queue`: whose work there is, and what each queue may have.

use crate::Context;
use crate::error::{CliError, Doing};
use crate::output::{Format, Grid, fit, or_dash, print_list, print_one, talk};
use crate::quantity::parse_cpus;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use windlass_api::{Queue, SetQueue};

/// Looks at queues and sets them.
#[derive(Subcommand, Debug)]
pub enum QueueCommand {
    /// List the queues
    List,
    /// Show one queue
    Show(NameArgs),
    /// Set the weight or the quota of a queue, for administrators
    Set(SetArgs),
}

/// A queue.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The queue's name
    #[arg(value_name = "NAME")]
    name: String,
}

/// What to set of a queue; what is not given stays.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The queue's name; it need not have had work yet
    #[arg(value_name = "NAME")]
    name: String,
    /// Its share of what its band gets, against the others' there: 1 to 10000; 100 where nobody set it
    #[arg(long, value_name = "N", required_unless_present = "quota")]
    weight: Option<u32>,
    /// Cores that its tasks may hold together, or none for no cap
    #[arg(long, value_name = "CPUS|none", value_parser = parse_quota)]
    quota: Option<Quota>,
}

/// A quota as people write it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Quota(Option<f64>);

fn parse_quota(text: &str) -> Result<Quota, String> {
    match text {
        "none" => Ok(Quota(None)),
        _ => match parse_cpus(text)? {
            0.0 => Err("a quota of 0 would let nothing run; hold the queue's jobs instead".to_owned()),
            cpus => Ok(Quota(Some(cpus))),
        },
    }
}

/// `windlass queue …`.
pub async fn command(context: &Context, command: QueueCommand) -> Result<(), CliError> {
    match command {
        QueueCommand::List => list(context).await,
        QueueCommand::Show(NameArgs { name }) => {
            let queue = context.client().await?.queue(&name).await;
            print(context, &queue.doing(format_args!("show queue {name}"))?)
        }
        QueueCommand::Set(args) => set(context, args).await,
    }
}

/// `windlass queues` and `windlass queue list`.
pub async fn list(context: &Context) -> Result<(), CliError> {
    let queues = context.client().await?.queues().await.doing("list the queues")?;
    print_list(context.format, &queues, |queue| queue.name.clone(), grid)
}

async fn set(context: &Context, args: SetArgs) -> Result<(), CliError> {
    let SetArgs { name, weight, quota } = args;
    let change = SetQueue { weight, quota_cpus: quota.map(|quota| quota.0) };
    let queue = context.client().await?.set_queue(&name, &change).await;
    let queue = queue.doing(format_args!("set queue {name}"))?;
    if context.format == Format::Table {
        talk!("queue {name} has weight {} and {}", queue.weight, quota_in_words(&queue));
        return Ok(());
    }
    print(context, &queue)
}

fn quota_in_words(queue: &Queue) -> String {
    queue.quota_cpus.map_or_else(|| "no quota".to_owned(), |cpus| format!("a quota of {cpus} cpus"))
}

fn print(context: &Context, queue: &Queue) -> Result<(), CliError> {
    print_one(context.format, queue, |queue| queue.name.clone(), text)
}

fn text(queue: &Queue) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<10} {value}");
    };
    line("queue", fit(&queue.name, None));
    line("band", queue.band.to_string());
    line("weight", queue.weight.to_string());
    line("quota", queue.quota_cpus.map_or_else(|| "none".to_owned(), |cpus| format!("{cpus} cpus")));
    line("running", queue.running.to_string());
    line("ready", crate::output::count(queue.ready_steps as u64, "step"));
    line("booked", queue.booked.to_string());
    text
}

fn grid(queues: &[Queue]) -> Grid {
    let row = |queue: &Queue| {
        vec![
            queue.name.clone(),
            queue.band.to_string(),
            queue.weight.to_string(),
            or_dash(queue.quota_cpus.map(|cpus| cpus.to_string())),
            queue.running.to_string(),
            queue.ready_steps.to_string(),
            queue.booked.to_string(),
        ]
    };
    Grid {
        header: &["NAME", "BAND", "WEIGHT", "QUOTA", "RUNNING", "READY STEPS", "BOOKED"],
        rows: queues.iter().map(row).collect(),
        empty: "no queues yet; the first job of a queue makes it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_cpus_or_none() {
        assert_eq!(parse_quota("2.5"), Ok(Quota(Some(2.5))));
        assert_eq!(parse_quota("none"), Ok(Quota(None)));
        for bad in ["0", "", "all", "-1", "nan"] {
            assert!(parse_quota(bad).is_err(), "{bad}");
        }
    }
}
