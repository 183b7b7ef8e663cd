//! `windlass why`: explains why a task or a turn waits and what would make it run, how a task failed, and why a worker
//! gets no work.

use crate::client::context::Context;
use crate::commands::select::{JobRef, TaskOrJob};
use crate::ui::error::{CliError, Doing};
use crate::ui::failure::{StderrLines, details};
use crate::ui::output::{count, cpus, fit, or_dash, paint, print_one};
use crate::ui::quantity::{clock_time, elapsed, in_about, moment, now_ms};
use crate::ui::table::{Cell, Column, Grid};
use crate::ui::terminal;
use clap::Args;
use std::fmt::Write as _;
use std::str::FromStr;
use windlass_api::client::{Client, turns};
use windlass_api::quantity::digits;
use windlass_api::{
    Change, ChangeBy, FailedTask, IneligibleWorkers, JobserverWhy, Judged, Turn, Why, WorkerWhy,
};
use windlass_core::time::NS_PER_S;
use windlass_core::worker::REST_NS;

/// Explains why a task or a turn waits and what would make it run, or why a worker gets no work.
#[derive(Args, Debug)]
pub struct WhyArgs {
    /// A task (12.3), or a job (12, last) for its first task that waits, or else that runs, or that failed; or a turn
    /// (turn:12) [default: last]
    #[arg(conflicts_with_all = ["worker", "place"])]
    id: Option<WhySubject>,
    /// Explain why this worker gets no work
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Explain the place of an outside client: the number of a job of sccache, or a client's queue, such as
    /// sccache-10.0.0.7, for the one that has waited longest there
    #[arg(long, value_name = "PLACE", conflicts_with = "worker")]
    place: Option<String>,
}

/// What is to be explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WhySubject {
    /// A task, or the one of a job that says most.
    Work(TaskOrJob),
    /// A turn, by its number.
    Turn(u64),
}

impl FromStr for WhySubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("turn:") {
            None => text.parse().map(WhySubject::Work),
            Some(turn) => digits(turn)
                .map(WhySubject::Turn)
                .ok_or_else(|| format!("'{turn}' is not the number of a turn: write turn:12")),
        }
    }
}

/// Cells of a worker's name in the head of the score table.
const NAME_CELLS_MAX: usize = 16;
/// What is before each line of that table.
const SCORES_INDENT: &str = "    ";

/// Runs the command `windlass why`.
pub async fn why(context: &Context, args: &WhyArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    if let Some(name) = &args.worker {
        let why = client.worker_why(name).await.doing(format_args!("explain worker {name}"))?;
        return print_one(context.format, &why, |why| why.worker.clone(), |why| worker_text(why, now_ms()));
    }
    if let Some(place) = &args.place {
        let why = client.place_why(place).await.doing(format_args!("explain place {place}"))?;
        let text = |why: &Why| explained(format_args!("place {}", why.task), why, now_ms(), context.verbose);
        return print_one(context.format, &why, |why| why.task.clone(), text);
    }
    let id = match args.id.unwrap_or(WhySubject::Work(TaskOrJob::Job(JobRef::Last))) {
        WhySubject::Turn(turn) => {
            let why = turns::why(&client, turn).await.doing(format_args!("explain turn {turn}"))?;
            let text = |why: &Why| explained(format_args!("turn {turn}"), why, now_ms(), context.verbose);
            return print_one(context.format, &why, |why| why.task.clone(), text);
        }
        WhySubject::Work(id) => id,
    };
    let why = explain(&client, id).await?;
    let text = |why: &Why| task_text(why, now_ms(), context.verbose);
    print_one(context.format, &why, |why| why.task.clone(), text)
}

/// Why a task is where it is, or the one that says most about its job.
pub async fn explain(client: &Client, id: TaskOrJob) -> Result<Why, CliError> {
    let task = match id {
        TaskOrJob::Task(job, index) => format!("{}.{index}", job.resolve(client).await?),
        TaskOrJob::Job(job) => telling_task(client, job.resolve(client).await?).await?,
    };
    client.why(&task).await.doing(format_args!("explain task {task}"))
}

/// The task that says most about its job: the first one that is ready, or waits for others, or runs; if all have ended,
/// the first one that failed, or that never ran; task 0 of a job that succeeded.
pub async fn telling_task(client: &Client, job: u64) -> Result<String, CliError> {
    for states in ["ready", "waiting", "booked,running", "failed", "canceled,skipped"] {
        let first = client.first_task(job, states).await;
        if let Some(task) = first.doing(format_args!("list the tasks of job {job}"))? {
            return Ok(task.id);
        }
    }
    Ok(format!("{job}.0"))
}

/// Why a task is where it is, as lines of text.
pub fn task_text(why: &Why, now_ms: u64, verbose: u8) -> String {
    explained(format_args!("task {}", why.task), why, now_ms, verbose)
}

fn explained(what: std::fmt::Arguments<'_>, why: &Why, now_ms: u64, verbose: u8) -> String {
    let mut text = format!("{what} is {}: {}\n", paint(why.state.shown()), fit(&why.message, None));
    let mut lines = why.turn.as_ref().map_or_else(Vec::new, |turn| turn_lines(turn, now_ms));
    let tried_again =
        |at: u64| format!("backs off until {}, {}", clock_time(at), in_about(at.saturating_sub(now_ms)));
    lines.extend(why.failure.iter().flat_map(failure_lines));
    lines.extend(why.jobserver.iter().flat_map(jobserver_lines));
    lines.extend(why.backs_off_until_ms.map(tried_again));
    if why.open_workers > 0 {
        lines.push(format!("{} could take it now", count(why.open_workers as u64, "worker")));
    }
    lines.extend(why.ruled_out.iter().map(ruled_out_line));
    lines.extend(why.changes.iter().map(change_line));
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", fit(&line, None));
    }
    // How a task was placed that has ended seldom matters.
    if why.state.is_end() && verbose == 0 { text } else { text + &score_table(why, terminal::columns()) }
}

/// Where and when a task failed, the end of its standard error, and what to do.
pub fn failure_lines(failed: &FailedTask) -> Vec<String> {
    let worker = failed.worker.as_ref().map(|name| format!("on {name}, "));
    let ended = failed.finished_ms.map(|at| format!(", ended {}", moment(at)));
    let (worker, ended) = (worker.unwrap_or_default(), ended.unwrap_or_default());
    let mut lines = vec![format!("{worker}attempt {}{ended}", failed.attempt)];
    lines.extend(details(&failed.failure, StderrLines::Quoted));
    // A task that was not started has written nothing.
    if failed.failure.cause.0.outline().is_none() {
        lines.push(format!("to see all of its output: windlass logs {}", failed.task));
    }
    lines
}

/// What a build with a jobserver runs, why it runs no more, and what would help.
pub fn jobserver_lines(why: &JobserverWhy) -> Vec<String> {
    let helps = why.helps.iter().map(|help| format!("what would help: {help}"));
    std::iter::once(format!("it {}", why.message)).chain(helps).collect()
}

/// The task's place in its queue, its queue's share, and when it is expected to start.
pub fn turn_lines(turn: &Turn, now_ms: u64) -> Vec<String> {
    let ahead = [
        (turn.queues_ahead as u64, "queue"),
        (turn.users_ahead as u64, "user"),
        (turn.steps_ahead as u64, "step"),
        (turn.tasks_ahead.into(), "task"),
    ];
    let ahead: Vec<String> = ahead.iter().filter(|(n, _)| *n > 0).map(|(n, what)| count(*n, what)).collect();
    let ahead = match ahead.is_empty() {
        true if turn.may_be_overtaken => "first".to_owned(),
        true => "next".to_owned(),
        false => format!("behind {}", ahead.join(" and ")),
    };
    let mut lines =
        vec![format!("in queue {} (band {}, weight {}), {ahead}", turn.queue, turn.band, turn.weight)];
    if turn.may_be_overtaken {
        lines.push("smaller tasks may start before it as long as no worker is reserved for it".to_owned());
    }
    if turn.pool_cpus <= 0.0 {
        // No worker could run it, so there are no cpus to share.
    } else if turn.contended {
        lines.push(format!(
            "queues want {} of the {} that could run it; its queue is entitled to {} and holds {}",
            turn.demand_cpus,
            cpus(turn.pool_cpus),
            turn.entitled_cpus,
            turn.held_cpus
        ));
    } else {
        lines.push(format!(
            "queues want {} of the {} that could run it: enough for all; its queue holds {}",
            turn.demand_cpus,
            cpus(turn.pool_cpus),
            turn.held_cpus
        ));
    }
    lines.extend(expected_start(turn, now_ms));
    lines
}

/// When it is expected to start: a range where one time would be a guess.
fn expected_start(turn: &Turn, now_ms: u64) -> Option<String> {
    let about = |at: u64| in_about(at.saturating_sub(now_ms));
    let Some((first, last)) = turn.earliest_start_ms.zip(turn.latest_start_ms) else {
        return turn.expected_start_ms.map(|at| format!("expected to start {}", about(at)));
    };
    let (first, last) = (about(first), about(last));
    if first == last {
        return Some(format!("expected to start {first}"));
    }
    let until = last.trim_start_matches("in ");
    let range =
        if first.starts_with("in ") { format!("{first} to {until}") } else { format!("within {until}") };
    Some(format!("expected to start {range}: earlier tasks like those before it took very different times"))
}

pub fn ruled_out_line(reason: &IneligibleWorkers) -> String {
    let examples = if reason.examples.is_empty() {
        String::new()
    } else {
        let more = if reason.workers > reason.examples.len() { ", …" } else { "" };
        format!(" ({}{more})", reason.examples.join(", "))
    };
    format!("{}{examples}: {}", count(reason.workers as u64, "worker"), reason.message)
}

/// A change that would make it run, and who can make it.
pub fn change_line(change: &Change) -> String {
    let steps = change.steps.join("; ");
    match change.by {
        None => steps,
        Some(ChangeBy::Submitter) => format!("to run it: {steps}"),
        Some(ChangeBy::Administrator) => format!("to run it, an administrator can: {steps}"),
    }
}

/// The points that each rule gave the winner and the next best workers, with the reason for the winner's, in lines of at
/// most `room` cells. Rules that gave no worker any points are left out.
pub fn score_table(why: &Why, room: Option<usize>) -> String {
    let Some(first) = why.judged.first() else { return String::new() };
    let made = why.decided_ms.map_or_else(
        || format!("scores by {}", why.policy),
        |at| format!("decided {} by {}", clock_time(at), why.policy),
    );
    let names = why.judged.iter().map(|judged| fit(&judged.worker, Some(NAME_CELLS_MAX))).zip(1..);
    let names = names.map(|(name, rank)| Column::whole(name, rank).right());
    let columns = [Column::text("", 0, 12)].into_iter().chain(names).chain([Column::text("", 1, 16)]);
    let mut rows = Vec::new();
    for rule in &first.rules {
        let points: Vec<Option<f64>> = why.judged.iter().map(|judged| points(judged, &rule.rule)).collect();
        if points.iter().any(|points| points.is_some_and(|points| points != 0.0)) {
            rows.push(row(&rule.rule, points.into_iter().map(|p| or_dash(p.map(signed))), &rule.reason));
        }
    }
    rows.push(row("total", why.judged.iter().map(|judged| signed(judged.score)), ""));
    rows.push(row("load with it", why.judged.iter().map(|judged| format!("{:.2}", judged.load)), ""));
    let grid = Grid { columns: columns.collect(), rows, empty: "" };
    let table = grid.render(room.map(|cells| cells.saturating_sub(SCORES_INDENT.len())));
    let lines: String = table.lines().map(|line| format!("{SCORES_INDENT}{line}\n")).collect();
    format!("  {made}:\n{lines}")
}

fn points(judged: &Judged, rule: &str) -> Option<f64> {
    judged.rules.iter().find(|said| said.rule == rule).map(|said| said.points)
}

/// Points with their sign: `+12.5`, `-3.0`, `0.0`.
fn signed(points: f64) -> String {
    // Zero has no sign, and neither has what rounds to it.
    let rounded = (points * 10.0).round() / 10.0;
    if rounded == 0.0 { "0.0".to_owned() } else { format!("{rounded:+.1}") }
}

fn row(first: &str, cells: impl Iterator<Item = String>, last: &str) -> Vec<Cell> {
    std::iter::once(Cell::from(first)).chain(cells.map(Cell::from)).chain([Cell::from(last)]).collect()
}

fn worker_text(why: &WorkerWhy, now_ms: u64) -> String {
    let state = paint(why.state.shown());
    let mut text = format!("worker {} is {state}: {}\n", fit(&why.worker, None), fit(&why.message, None));
    for line in worker_lines(why, now_ms).iter().chain(&passed_lines(why)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", fit(line, None));
    }
    text
}

/// Its load and pressure, and what keeps work from it.
pub fn worker_lines(why: &WorkerWhy, now_ms: u64) -> Vec<String> {
    let percent = |percent: Option<f64>| or_dash(percent.map(|percent| format!("{percent:.0}%")));
    let each = [
        ("cpu", why.pressure.cpu, why.thresholds.cpu),
        ("memory", why.pressure.memory, why.thresholds.memory),
        ("io", why.pressure.io, why.thresholds.io),
    ];
    let pressures = each.map(|(name, is, max)| format!("{name} {} of {}", percent(is), percent(max)));
    let network = why
        .pressure
        .network
        .map(|is| format!("network in use {} of {}", percent(Some(is)), percent(why.thresholds.network)));
    let counts = if why.pressure_counts { "" } else { " (ignored: load.pressure is off)" };
    let mut lines = vec![format!(
        "runs {}, {} of {} booked; load with one more cpu {}",
        count(why.running as u64, "task"),
        why.booked_cpus,
        cpus(why.cpus),
        or_dash(why.load.map(|load| format!("{load:.2}"))),
    )];
    lines.push(format!("pressure {}{counts}", pressures.join(", ")));
    lines.extend(network.map(|network| format!("{network}{counts}")));
    let (network, pressures): (Vec<&str>, Vec<&str>) =
        why.saturated.iter().map(String::as_str).partition(|what| *what == "network");
    let is_over = why.pressure.cpu.zip(why.thresholds.cpu).is_some_and(|(is, max)| is >= max);
    if is_over && why.pressure_counts && !pressures.contains(&"cpu") {
        let rest_s = REST_NS / NS_PER_S;
        lines.push(format!(
            "its cpu pressure counts when nothing has run there for {rest_s} s: tasks cause it, too"
        ));
    }
    if !pressures.is_empty() {
        lines.push(format!("gets no work until its {} pressure falls", pressures.join(" and ")));
    }
    if !network.is_empty() {
        lines.push("gets no network-bound work until less of its network is in use".to_owned());
    }
    if let (Some(until), Some(fault)) = (why.left_out_until_ms, &why.left_out_for) {
        lines.push(format!("in quarantine, tried again {}: {fault}", in_about(until.saturating_sub(now_ms))));
    }
    if let Some(reserved) = &why.reserved {
        let whom = match (&reserved.step, reserved.job) {
            (Some(step), Some(job)) => format!("step '{step}' of job {job}"),
            _ => "work that is being placed".to_owned(),
        };
        let waits = reserved.waits_since_ms;
        let waits =
            waits.map(|since| format!(", which has waited {}", elapsed(now_ms.saturating_sub(since))));
        let starts = reserved.expected_start_ms;
        let starts = starts.map(|at| format!(", and can start {}", in_about(at.saturating_sub(now_ms))));
        let (waits, starts) = (waits.unwrap_or_default(), starts.unwrap_or_default());
        lines.push(format!("reserved for {whom}{waits}{starts}"));
    }
    lines
}

/// Steps that wait, and tasks that went to other workers.
pub fn passed_lines(why: &WorkerWhy) -> Vec<String> {
    let scores = |step: &windlass_api::PassedStep| {
        let (there, here) = step.preferred_score.zip(step.score)?;
        Some(format!(" ({} there, {} here)", signed(there), signed(here)))
    };
    let steps = why.steps.iter().map(|step| {
        let tasks = count(u64::from(step.tasks), "task");
        let scores = scores(step).unwrap_or_default();
        format!(
            "step '{}' of job {} in queue {}, {tasks}: {}{scores}",
            step.step, step.job, step.queue, step.message
        )
    });
    let lost = why.lost.iter().map(|lost| {
        format!(
            "task {} went to {} at {}: {} there, {} here",
            lost.task,
            lost.winner,
            clock_time(lost.at_ms),
            signed(lost.winner_score),
            signed(lost.score)
        )
    });
    steps.chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::board::Percents;
    use windlass_api::{JobserverUse, LostTask, PassedStep, ReservedFor, RulePoints, TaskState, WorkerState};
    use windlass_core::explain::{Cause, Word};

    const NOW_MS: u64 = 1_000_000;

    #[test]
    fn a_turn_is_named_by_its_kind_and_number() {
        assert_eq!("turn:12".parse(), Ok(WhySubject::Turn(12)));
        assert_eq!("12.3".parse(), Ok(WhySubject::Work(TaskOrJob::Task(JobRef::Id(12), 3))));
        for bad in ["turn:", "turn:x", "turn:-1", "turn:last", "place:1"] {
            assert!(bad.parse::<WhySubject>().is_err(), "{bad}");
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn judged(worker: &str, load: f64, rules: &[(&str, f64, &str)]) -> Judged {
        let said = |(rule, points, reason): &(&str, f64, &str)| RulePoints {
            rule: (*rule).to_owned(),
            points: *points,
            reason: (*reason).to_owned(),
        };
        let score = rules.iter().map(|(_, points, _)| points).sum();
        Judged { worker: worker.to_owned(), score, load, rules: rules.iter().map(said).collect() }
    }

    fn full() -> Why {
        Why {
            task: "12.3".to_owned(),
            state: TaskState::Ready,
            reason: Word::Full.into(),
            message: "every worker is busy".to_owned(),
            failure: None,
            turn: None,
            backs_off_until_ms: None,
            open_workers: 0,
            policy: "simple".to_owned(),
            judged: Vec::new(),
            decided_ms: None,
            ruled_out: vec![IneligibleWorkers {
                reason: Word::Busy.into(),
                message: "busy, cpus free".to_owned(),
                workers: 4,
                examples: vec!["a".to_owned(), "b".to_owned()],
            }],
            changes: vec![
                Change { worker: "a".to_owned(), steps: vec!["it is next on a".to_owned()], by: None },
                Change {
                    worker: String::new(),
                    steps: vec!["set the quota".to_owned()],
                    by: Some(ChangeBy::Administrator),
                },
            ],
            jobserver: None,
        }
    }

    #[test]
    fn a_reason_says_what_would_help() {
        assert_eq!(
            plain(&task_text(&full(), NOW_MS, 0)),
            "task 12.3 is ready: every worker is busy\n  4 workers (a, b, …): busy, cpus free\n  \
             it is next on a\n  to run it, an administrator can: set the quota\n"
        );
    }

    #[test]
    fn a_build_says_who_has_the_cpus_that_it_wants() {
        let now = JobserverUse { share: 2, used: 2, wants: true, held_back: None };
        let jobserver = Some(JobserverWhy {
            now,
            most: 16,
            message: "runs 2 of up to 16 processes; wants more: job 7 (make, user ann) has 3".to_owned(),
            helps: vec!["the end of any of the others".to_owned()],
        });
        let state = TaskState::Running;
        let why = Why { state, jobserver, ruled_out: Vec::new(), changes: Vec::new(), ..full() };
        assert_eq!(
            plain(&task_text(&why, NOW_MS, 0)),
            "task 12.3 is running: every worker is busy\n  \
             it runs 2 of up to 16 processes; wants more: job 7 (make, user ann) has 3\n  \
             what would help: the end of any of the others\n"
        );
    }

    #[test]
    fn a_turn_says_what_queues_want() {
        let turn = Turn {
            queue: "film".to_owned(),
            band: 3,
            queues_ahead: 1,
            users_ahead: 3,
            steps_ahead: 0,
            tasks_ahead: 2,
            may_be_overtaken: false,
            weight: 100,
            pool_cpus: 8.0,
            demand_cpus: 12.5,
            held_cpus: 4.0,
            entitled_cpus: 5.5,
            contended: true,
            expected_start_ms: Some(NOW_MS + 181_000),
            earliest_start_ms: None,
            latest_start_ms: None,
        };
        let why = Why { turn: Some(turn.clone()), ruled_out: Vec::new(), changes: Vec::new(), ..full() };
        assert_eq!(
            plain(&task_text(&why, NOW_MS, 0)),
            "task 12.3 is ready: every worker is busy\n  \
             in queue film (band 3, weight 100), behind 1 queue and 3 users and 2 tasks\n  \
             queues want 12.5 of the 8 cpus that could run it; its queue is entitled to 5.5 and holds 4\n  \
             expected to start in 3 min\n"
        );
        let range = |first: u64, last: u64| {
            let times = (Some(NOW_MS + first), Some(NOW_MS + last));
            let turn = Turn { earliest_start_ms: times.0, latest_start_ms: times.1, ..turn.clone() };
            turn_lines(&turn, NOW_MS).pop().unwrap()
        };
        let why_range = ": earlier tasks like those before it took very different times";
        assert_eq!(range(4_000, 30_000), format!("expected to start in 4 s to 30 s{why_range}"));
        assert_eq!(range(0, 300_000), format!("expected to start within 5 min{why_range}"));
        assert_eq!(range(300_000, 310_000), "expected to start in 5 min");
        let turn = Turn { contended: false, demand_cpus: 2.0, expected_start_ms: None, ..turn };
        let first = Turn {
            queues_ahead: 0,
            users_ahead: 0,
            tasks_ahead: 0,
            pool_cpus: 0.0,
            contended: true,
            ..turn.clone()
        };
        assert_eq!(turn_lines(&first, NOW_MS), ["in queue film (band 3, weight 100), next"]);
        let wide = Turn { may_be_overtaken: true, ..first };
        assert_eq!(
            turn_lines(&wide, NOW_MS),
            [
                "in queue film (band 3, weight 100), first",
                "smaller tasks may start before it as long as no worker is reserved for it"
            ]
        );
        let why = Why { turn: Some(turn), ..why };
        assert!(
            task_text(&why, NOW_MS, 0).contains("want 2 of the 8 cpus that could run it: enough for all")
        );
        assert!(!task_text(&why, NOW_MS, 0).contains("expected"));
    }

    #[test]
    fn scores_stand_in_columns_and_rules_without_points_do_not() {
        let a = [("Fit", 120.0, "half is left"), ("None", 0.0, "of no use"), ("Wait", -3.26, "late")];
        let b = [("Fit", 80.5, "little is left"), ("None", 0.0, "of no use"), ("Wait", 0.0, "not late")];
        let why = Why {
            open_workers: 2,
            judged: vec![judged("a", 0.25, &a), judged("a-worker-with-a-long-name", 1.5, &b)],
            ruled_out: Vec::new(),
            changes: Vec::new(),
            ..full()
        };
        assert_eq!(
            plain(&task_text(&why, NOW_MS, 0)),
            "task 12.3 is ready: every worker is busy\n  2 workers could take it now\n  \
             scores by simple:\n\
             \x20                      a  a-worker-with-a…\n\
             \x20   Fit           +120.0             +80.5  half is left\n\
             \x20   Wait            -3.3               0.0  late\n\
             \x20   total         +116.7             +80.5\n\
             \x20   load with it    0.25              1.50\n"
        );
        let decided = Why { decided_ms: Some(0), ..why };
        let text = task_text(&decided, NOW_MS, 0);
        assert!(text.contains(&format!("decided {} by simple:\n", clock_time(0))), "{text}");
    }

    #[test]
    fn a_failed_task_says_how_it_failed_and_not_how_it_was_placed() {
        let failure = windlass_api::Failure {
            cause: Cause::ExitCode.into(),
            summary: "exit code 4".to_owned(),
            message: None,
            advice: Some("give it more".to_owned()),
            stderr: vec!["no film".to_owned()],
        };
        let failed = FailedTask {
            task: "12.3".to_owned(),
            step: "main".to_owned(),
            value: None,
            attempt: 2,
            worker: Some("box2".to_owned()),
            finished_ms: None,
            failure,
        };
        let why = Why {
            state: TaskState::Failed,
            reason: Word::Ended.into(),
            message: "exit code 4".to_owned(),
            failure: Some(failed),
            judged: vec![judged("a", 0.25, &[("Fit", 120.0, "half is left")])],
            decided_ms: Some(0),
            ruled_out: Vec::new(),
            changes: Vec::new(),
            ..full()
        };
        assert_eq!(
            plain(&task_text(&why, NOW_MS, 0)),
            "task 12.3 is failed: exit code 4\n  on box2, attempt 2\n  no film\n  to do: give it more\n  \
             to see all of its output: windlass logs 12.3\n"
        );
        let verbose = explained(format_args!("task 12.3"), &why, NOW_MS, 1);
        assert!(verbose.contains("Fit"), "{verbose}");
    }

    fn reserved_worker() -> WorkerWhy {
        WorkerWhy {
            worker: "a".to_owned(),
            state: WorkerState::Up,
            reason: Word::Reserved.into(),
            message: "it is kept free".to_owned(),
            running: 1,
            booked_cpus: 1.5,
            cpus: 4.0,
            load: Some(0.625),
            pressure: Percents { cpu: Some(12.4), memory: Some(0.0), ..Percents::default() },
            thresholds: Percents { cpu: Some(80.0), memory: Some(50.0), io: Some(75.0), network: Some(90.0) },
            pressure_counts: true,
            saturated: Vec::new(),
            left_out_until_ms: None,
            left_out_for: None,
            reserved: Some(ReservedFor {
                job: Some(7),
                step: Some("wide".to_owned()),
                waits_since_ms: Some(NOW_MS - 63_000),
                expected_start_ms: Some(NOW_MS + 20_000),
            }),
            waiting_queues: 1,
            steps: vec![PassedStep {
                job: 8,
                step: "s".to_owned(),
                queue: "q".to_owned(),
                tasks: 2,
                reason: Word::Preferred.into(),
                message: "b is a better place".to_owned(),
                score: Some(1.0),
                preferred: Some("b".to_owned()),
                preferred_score: Some(2.0),
            }],
            lost: vec![LostTask {
                task: "9.0".to_owned(),
                at_ms: 0,
                winner: "b".to_owned(),
                winner_score: 10.0,
                score: -2.0,
            }],
        }
    }

    #[test]
    fn a_worker_says_what_keeps_it_idle() {
        let expected = format!(
            "worker a is up: it is kept free\n  runs 1 task, 1.5 of 4 cpus booked; load with one more cpu 0.62\n  \
             pressure cpu 12% of 80%, memory 0% of 50%, io - of 75%\n  \
             reserved for step 'wide' of job 7, which has waited 1m 03s, and can start in 20 s\n  \
             step 's' of job 8 in queue q, 2 tasks: b is a better place (+2.0 there, +1.0 here)\n  \
             task 9.0 went to b at {}: +10.0 there, -2.0 here\n",
            clock_time(0)
        );
        assert_eq!(plain(&worker_text(&reserved_worker(), NOW_MS)), expected);
        let held = WorkerWhy {
            pressure_counts: false,
            saturated: vec!["memory".to_owned(), "io".to_owned()],
            left_out_until_ms: Some(NOW_MS + 90_000),
            left_out_for: Some("it fails".to_owned()),
            reserved: None,
            steps: Vec::new(),
            lost: Vec::new(),
            ..reserved_worker()
        };
        let text = plain(&worker_text(&held, NOW_MS));
        assert!(!text.contains("its cpu pressure counts"), "{text}");
        assert!(text.contains("io - of 75% (ignored: load.pressure is off)\n"), "{text}");
        assert!(text.contains("gets no work until its memory and io pressure falls\n"), "{text}");
        assert!(text.ends_with("in quarantine, tried again in 2 min: it fails\n"), "{text}");
        let cpu_alone = Percents { cpu: Some(91.0), ..Percents::default() };
        let busy = WorkerWhy { pressure: cpu_alone, saturated: Vec::new(), ..reserved_worker() };
        let text = plain(&worker_text(&busy, NOW_MS));
        assert!(text.contains("its cpu pressure counts when nothing has run there for 30 s"), "{text}");
    }
}
