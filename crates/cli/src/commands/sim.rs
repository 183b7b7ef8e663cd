//! `windlass sim`: replays recorded workloads under several settings, and exports a farm's history as one.

mod export;
mod table;
mod workers;

use crate::client::context::Context;
use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::output::{Format, count, print_json, print_jsonl, print_lines, print_text};
use crate::ui::terminal;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use table::{Outcome, Replayed};
use windlass_core::engine::Settings;
use windlass_core::plan::{PlanSettings, Policy};
use windlass_core::queues::{Charge, TurnSettings};
use windlass_core::score::policy::{POLICIES, packing, policy_by_name};
use windlass_core::worker::Saturation;
use windlass_sim::swf::{self, Farm, Figures, Trace, Turns, Workload};

/// Replays and exports workloads.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    /// Replay a recorded workload under several settings in virtual time, and compare them
    Run(ReplayArgs),
    /// Export the tasks that ended on a farm as a trace in Standard Workload Format
    Export(export::ExportArgs),
}

/// The trace, the workers and the settings.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("farm").required(true).args(["slots", "workers"]))]
pub struct ReplayArgs {
    /// Trace in Standard Workload Format, plain or gzipped
    #[arg(value_name = "TRACE.swf")]
    trace: PathBuf,
    /// Replay on one worker with N cpus; memory and tags are ignored
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Replay on the workers of this file: TOML with `[[worker]]` name, count, cpus, memory, tags; or lines of number,
    /// name, count, cpus, speed and KiB, as some traces have them
    #[arg(long, value_name = "FILE")]
    workers: Option<PathBuf>,
    /// Scoring policies, separated by commas
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "resource-aware", value_parser = POLICIES)]
    policy: Vec<String>,
    /// Fill the fullest worker first instead of spreading, by cores
    #[arg(long)]
    core_saturation: bool,
    /// Fill the fullest worker first instead of spreading, by memory
    #[arg(long)]
    memory_saturation: bool,
    /// What users are charged for bookings, separated by commas; order: no turns, but the engine's placement in the order
    /// of submission
    #[arg(
        long,
        value_name = "time|task|order",
        value_delimiter = ',',
        default_value = "time,task,order",
        value_enum
    )]
    charge: Vec<Cost>,
    /// Let a newly backlogged user go first, in at most one of N bookings; off for never
    #[arg(long, value_name = "N|off", value_parser = parse_express)]
    express: Option<Express>,
    /// Simple schedulers to compare with, separated by commas
    #[arg(
        long,
        value_name = "fifo|backfill|none",
        value_delimiter = ',',
        default_value = "fifo,backfill",
        value_enum
    )]
    baseline: Vec<Baseline>,
    /// Use the queues of the trace instead of one for each user
    #[arg(long)]
    queues: bool,
    /// Users with at most N jobs count as light
    #[arg(long, value_name = "N", default_value_t = 200)]
    light: usize,
    /// Only the first N jobs of the trace
    #[arg(long, value_name = "N")]
    first: Option<usize>,
    /// Ask every Nth of the jobs that wait when it will start, and compare with its real start; each question takes up to
    /// a second
    #[arg(long, value_name = "N")]
    estimates: Option<NonZeroUsize>,
    /// Leave out lines that describe no job, and count them
    #[arg(long)]
    skip_bad: bool,
}

/// What a user is charged for a booking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Cost {
    /// The time for which it holds its part of a worker.
    Time,
    /// One for each task.
    Task,
    /// Nothing: all jobs stand in one line, in the order of submission.
    Order,
}

/// The value of --express; `None` for `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Express(Option<u32>);

fn parse_express(text: &str) -> Result<Express, String> {
    match text {
        "off" => Ok(Express(None)),
        _ => match text.parse() {
            Ok(every) if every > 0 => Ok(Express(Some(every))),
            _ => Err(format!("invalid number of bookings '{text}': write 8, or off")),
        },
    }
}

/// A simple scheduler, or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Baseline {
    /// First come, first served.
    Fifo,
    /// The same with backfill.
    Backfill,
    /// No scheduler to compare with.
    None,
}

/// Runs the command `windlass sim …`.
pub async fn command(context: &Context, command: SimCommand) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run(context, &args),
        SimCommand::Export(args) => export::export(context, &args).await,
    }
}

fn run(context: &Context, args: &ReplayArgs) -> Result<(), CliError> {
    let workload = workload(args)?;
    let mut outcomes = Vec::new();
    for setting in settings(args) {
        message!("replaying {} by {} …", count(workload.jobs.len() as u64, "job"), setting.name);
        let schedule = match setting.how {
            How::Engine(settings, turns) => {
                swf::replay_estimating(&workload, *settings, turns, args.estimates)
            }
            How::Reference(baseline) => swf::reference(&workload, baseline),
        };
        let figures = Figures::of(&workload, &schedule, args.light);
        outcomes.push(Outcome::new(setting.name, &figures));
    }
    let replayed = Replayed::new(&args.trace, &workload, outcomes);
    match context.format {
        Format::Json => print_json(&replayed),
        Format::Jsonl => replayed.settings.iter().try_for_each(print_jsonl),
        Format::Name => print_lines(replayed.settings.iter().map(|outcome| outcome.name.clone())),
        Format::Table => print_text(&replayed.table(terminal::columns())),
    }
}

/// One column of the table.
struct Setting {
    name: String,
    how: How,
}

enum How {
    Engine(Box<Settings>, Turns),
    Reference(swf::Baseline),
}

fn settings(args: &ReplayArgs) -> Vec<Setting> {
    let baselines: BTreeSet<Baseline> = args.baseline.iter().copied().collect();
    let baselines = baselines.into_iter().filter_map(|baseline| {
        let (name, baseline) = match baseline {
            Baseline::Fifo => ("fifo", swf::Baseline::Fifo),
            Baseline::Backfill => ("backfill", swf::Baseline::Backfill),
            Baseline::None => return None,
        };
        Some(Setting { name: name.to_owned(), how: How::Reference(baseline) })
    });
    let saturation = Saturation { cores: args.core_saturation, memory: args.memory_saturation };
    let policies = args.policy.iter().flat_map(|policy| {
        args.charge.iter().map(move |charge| {
            let (word, charge) = match charge {
                Cost::Time => ("time", Charge::Time),
                Cost::Task => ("task", Charge::Task),
                Cost::Order => ("order", Charge::Time),
            };
            let turns = if word == "order" { Turns::Submission } else { Turns::Shares };
            let default = Settings::default();
            let express = args.express.map_or(default.plan.turn.express, |Express(every)| every);
            let turn = TurnSettings { charge, express };
            let rules = if policy == "packing" { packing(saturation) } else { policy_by_name(policy).0 };
            let plan = PlanSettings { policy: Policy(rules), saturation, turn, ..default.plan };
            let settings = Settings { plan, ..default };
            let name = if args.policy.len() > 1 { format!("{policy}/{word}") } else { word.to_owned() };
            Setting { name, how: How::Engine(Box::new(settings), turns) }
        })
    });
    baselines.chain(policies).collect()
}

fn workload(args: &ReplayArgs) -> Result<Workload, CliError> {
    let farm = match (&args.workers, args.slots) {
        (Some(path), _) => workers::read(path)?,
        (None, slots) => Farm::slots(slots.unwrap_or(0))
            .map_err(|_| CliError::usage("--slots must be from 1 to 40000000"))?,
    };
    let mut trace = Trace::open(&args.trace, args.skip_bad).map_err(anyhow::Error::from)?;
    if let Some((lines, first)) = &trace.skipped {
        message!(
            "note: {} left out; the first is line {}, which {}",
            count(*lines as u64, "line"),
            first.line,
            first.what
        );
    }
    if let Some(first) = args.first {
        trace.jobs.truncate(first);
    }
    let workload = Workload::new(&trace, farm, args.queues);
    for (why, jobs) in &workload.left_out {
        message!("note: {} {} left out", count(*jobs as u64, "job"), why.as_str());
    }
    if !workload.ignored_tags.is_empty() {
        let tags = workload.ignored_tags.iter().map(|(tag, jobs)| format!("{tag} ({jobs})"));
        message!(
            "note: no worker has these tags, so jobs do not ask for them: {}",
            tags.collect::<Vec<_>>().join(", ")
        );
    }
    if workload.jobs.is_empty() {
        return Err(CliError::Failed {
            message: format!("{} has no jobs to replay", args.trace.display()),
            hint: Some(
                "a job is a line of 18 numbers, with its run time and its number of processors".to_owned(),
            ),
        });
    }
    Ok(workload)
}
