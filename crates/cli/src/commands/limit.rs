//! `windlass limit`: the number of tasks that may hold a licence or another limit at a time, over the farm and on each
//! worker.

use crate::client::context::Context;
use crate::commands::view::ViewArgs;
use crate::ui::error::{CliError, Doing};
use crate::ui::fields::FieldLines;
use crate::ui::message::message;
use crate::ui::output::{Format, count, print_one};
use crate::ui::quantity::exact;
use crate::ui::table::{Cell, Column, Grid};
use clap::{ArgGroup, Args, Subcommand};
use std::str::FromStr;
use windlass_api::quantity::parse_duration;
use windlass_api::{Limit, SetLimit};

/// Shows and configures limits.
#[derive(Subcommand, Debug)]
pub enum LimitCommand {
    /// List the limits and their use
    List(ViewArgs),
    /// Show one limit with the tasks and turns that hold it
    Show(LimitArgs),
    /// Set how many tasks may hold a limit at a time, and how they report that it is busy (administrators)
    Set(SetLimitArgs),
    /// Remove a limit (administrators)
    Remove(LimitArgs),
}

/// New settings of a limit; those that are not given stay.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["max", "per_worker", "busy_exit", "back_off"]))]
pub struct SetLimitArgs {
    /// The limit's name, as in run --limit
    #[arg(value_name = "NAME")]
    name: String,
    /// Tasks that may hold it at a time over the farm, or none for any number; with 0 none starts
    #[arg(value_name = "N|none")]
    max: Option<Number>,
    /// Tasks that may hold it at a time on one worker, or none for any number
    #[arg(long, value_name = "N|none")]
    per_worker: Option<Number>,
    /// Exit code that means 'no licence was free': the task is run again without spending a retry; may be repeated,
    /// none removes all
    #[arg(long, value_name = "CODE|none", value_delimiter = ',')]
    busy_exit: Vec<Number>,
    /// How long the task's step then backs off; twice as long each time in a row, up to 16 times as long [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    back_off: Option<u64>,
}

/// A number, or the word none.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Number(Option<u32>);

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Number(None)),
            _ => text
                .parse()
                .map(|n| Number(Some(n)))
                .map_err(|_| format!("invalid number '{text}': give 0 to {}, or none", u32::MAX)),
        }
    }
}

#[derive(Args, Debug)]
pub struct LimitArgs {
    /// The limit's name, as in 'limit list'
    #[arg(value_name = "NAME")]
    name: String,
}

impl SetLimitArgs {
    fn change(&self) -> Result<SetLimit, CliError> {
        let exits = match self.busy_exit[..] {
            [] => None,
            [Number(None)] => Some(None),
            _ => {
                let code = |exit: &Number| exit.0.and_then(|code| i32::try_from(code).ok());
                let codes: Option<Vec<i32>> = self.busy_exit.iter().map(code).collect();
                let bad = || CliError::usage("--busy-exit: give exit codes from 1 to 255, or none alone");
                Some(Some(codes.ok_or_else(bad)?))
            }
        };
        Ok(SetLimit {
            max: self.max.map(|max| max.0),
            per_worker: self.per_worker.map(|max| max.0),
            busy_exits: exits,
            back_off_ms: self.back_off,
        })
    }
}

/// Runs the command `windlass limit …`.
pub async fn command(context: &Context, command: LimitCommand) -> Result<(), CliError> {
    let client = context.client().await?;
    match command {
        LimitCommand::List(view) => {
            let read =
                async || -> Result<Vec<Limit>, CliError> { client.limits().await.doing("list the limits") };
            view.show(context, None, read, |limit| limit.name.clone(), limits_grid).await
        }
        LimitCommand::Set(args) => {
            let name = &args.name;
            let limit = client.set_limit(name, &args.change()?).await;
            let limit = limit.doing(format_args!("set limit {name}"))?;
            if context.format == Format::Table {
                message!("limit {name}: {}", in_words(&limit));
                return Ok(());
            }
            print_one(context.format, &limit, |limit| limit.name.clone(), |_| String::new())
        }
        LimitCommand::Show(LimitArgs { name }) => {
            let limit = client.limit(&name).await.doing(format_args!("show limit {name}"))?;
            print_one(context.format, &limit, |limit| limit.name.clone(), limit_text)
        }
        LimitCommand::Remove(LimitArgs { name }) => {
            client.remove_limit(&name).await.doing(format_args!("remove limit {name}"))?;
            message!("limit {name} is removed");
            Ok(())
        }
    }
}

/// The fields of a limit, in a line each, and who holds it.
fn limit_text(limit: &Limit) -> String {
    let mut fields = FieldLines::for_stdout();
    fields.add("limit", &limit.name);
    fields.add("allows", &in_words(limit));
    if limit.backing_off > 0 {
        fields.add("backs off", &count(limit.backing_off as u64, "step"));
    }
    let tasks =
        limit.holders.iter().map(|held| format!("task {} of {} on {}", held.task, held.user, held.worker));
    let turns =
        limit.turns.iter().map(|held| format!("turn {} of {} on {}", held.turn, held.user, held.worker));
    let holders: Vec<String> = tasks.chain(turns).collect();
    for (number, holder) in holders.iter().enumerate() {
        fields.add(if number == 0 { "held by" } else { "" }, holder);
    }
    let more = (limit.used as usize).saturating_sub(holders.len());
    if more > 0 {
        fields.add("", &format!("and {more} more"));
    }
    fields.text()
}

fn in_words(limit: &Limit) -> String {
    let tasks = |max: u32| count(max.into(), "task");
    let farm = limit.max.map_or_else(|| "any number of tasks".to_owned(), tasks);
    let worker = limit.per_worker.map_or_else(String::new, |max| format!(", {max} per worker"));
    let busy = limit.back_off_ms.map_or_else(String::new, |ms| {
        format!("; exit {} means busy, and the step backs off for {}", exits(limit), exact(ms))
    });
    format!("{farm} at a time{worker}, {} in use{busy}", limit.used)
}

fn exits(limit: &Limit) -> String {
    limit.busy_exits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The table of limits.
pub fn limits_grid(limits: &[Limit]) -> Grid {
    let row = |limit: &Limit| {
        vec![
            limit.name.as_str().into(),
            limit.max.map(Cell::number).into(),
            limit.per_worker.map(Cell::number).into(),
            Cell::number(limit.used),
            Some(exits(limit)).filter(|exits| !exits.is_empty()).into(),
            limit.back_off_ms.map(|ms| Cell::figure(exact(ms), ms as f64)).into(),
            Cell::figure(limit.backing_off.to_string(), limit.backing_off as f64),
        ]
    };
    Grid {
        columns: vec![
            Column::text("NAME", 0, 10),
            Column::whole("MAX", 1),
            Column::whole("PER WORKER", 3),
            Column::whole("USED", 2),
            Column::text("BUSY EXIT", 5, 9),
            Column::whole("BACK-OFF", 6),
            Column::whole("STEPS BACKING OFF", 4),
        ],
        rows: limits.iter().map(row).collect(),
        empty: "no limits; 'windlass limit set NAME N' creates one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        set: SetLimitArgs,
    }

    fn change(line: &str) -> Option<SetLimit> {
        let words = std::iter::once("set").chain(line.split_whitespace());
        Line::try_parse_from(words).ok()?.set.change().ok()
    }

    #[test]
    fn what_is_not_given_stays_and_none_takes_away() {
        let nothing = SetLimit::default();
        assert_eq!(change("l 5"), Some(SetLimit { max: Some(Some(5)), ..nothing.clone() }));
        let both = SetLimit { max: Some(None), per_worker: Some(Some(1)), ..nothing.clone() };
        assert_eq!(change("l none --per-worker 1"), Some(both));
        let busy =
            SetLimit { busy_exits: Some(Some(vec![11, 12])), back_off_ms: Some(5_000), ..nothing.clone() };
        assert_eq!(change("l --busy-exit 11 --busy-exit 12 --back-off 5s"), Some(busy.clone()));
        assert_eq!(change("l --busy-exit 11,12 --back-off 5s"), Some(busy));
        assert_eq!(change("l --busy-exit none"), Some(SetLimit { busy_exits: Some(None), ..nothing }));
        for bad in
            ["l", "l x", "l -1", "l --busy-exit 11,none", "l --busy-exit 4000000000", "l --back-off soon"]
        {
            assert_eq!(change(bad), None, "{bad}");
        }
    }
}
