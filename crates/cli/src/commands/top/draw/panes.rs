//! The panes of text: the summary of an opened job or worker, explanations, output.

use crate::commands::list::{counts, resources};
use crate::commands::top::detail::{Detail, Opened};
use crate::commands::top::draw::header::{number, spark};
use crate::commands::top::draw::paint::{Tone, line, put, style};
use crate::commands::top::message::Subject;
use crate::commands::top::state::State;
use crate::commands::top::why::WhyLine;
use crate::ui::output::{count, or_dash};
use crate::ui::quantity::elapsed;
use crate::ui::text::wrap;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use windlass_api::figures::WorkerSeries;
use windlass_api::{Job, Worker};
use windlass_core::resources::Bytes;

/// Columns of the names of a worker's lines.
const NAMES: u16 = 10;
/// Columns by which later lines of a paragraph are indented.
const INDENT: usize = 4;

/// Draws what is known of what Enter opened.
pub fn summary(buffer: &mut Buffer, state: &State, detail: &Detail, area: Rect) {
    let strong = style(state, Tone::Strong);
    match &detail.opened {
        Opened::Job(id, None) => _ = put(buffer, area, 1, &format!("job {id} …"), strong),
        Opened::Worker(name, None) => _ = put(buffer, area, 1, &format!("worker {name} …"), strong),
        Opened::Job(_, Some(job)) => of_job(buffer, state, job, area),
        Opened::Worker(_, Some((worker, series))) => of_worker(buffer, state, worker, series, area),
    }
}

fn of_job(buffer: &mut Buffer, state: &State, job: &Job, area: Rect) {
    let lasted = job.ended_ms.unwrap_or(state.now.wall_ms).saturating_sub(job.created_ms);
    let title = format!("job {} {}, {}", job.id, job.name, job.state.shown());
    put(buffer, area, 1, &title, style(state, Tone::Strong));
    let plain = style(state, Tone::Plain);
    let of = format!(
        "queue {}, user {}, priority {}, {} {}",
        job.queue,
        job.user,
        job.priority,
        if job.ended_ms.is_some() { "took" } else { "submitted for" },
        elapsed(lasted)
    );
    put(buffer, line(area, 1), 1, &of, plain);
    let tasks = format!("{}: {}", count(u64::from(job.counts.total), "task"), counts(&job.counts));
    put(buffer, line(area, 2), 1, &tasks, plain);
    let steps: Vec<String> =
        job.steps.iter().map(|step| format!("{} ({})", step.name, resources(&step.resources))).collect();
    let last = match (&job.stopped, &job.reason) {
        (_, Some(reason)) if job.state.is_end() => format!("failed: {}", reason.message),
        (Some(stopped), _) => format!("stopped: {stopped}"),
        (None, Some(reason)) => format!("waits: {}", reason.message),
        (None, None) => format!("steps: {}", steps.join(", ")),
    };
    put(buffer, line(area, 3), 1, &last, plain);
}

fn of_worker(buffer: &mut Buffer, state: &State, worker: &Worker, series: &WorkerSeries, area: Rect) {
    let (has, used) = (&worker.capacity, &worker.booked);
    let title = format!("worker {}, {}", worker.name, worker.state.as_str());
    put(buffer, area, 1, &title, style(state, Tone::Strong));
    let heard = worker.heard_ms.map(|at| elapsed(state.now.wall_ms.saturating_sub(at)));
    let gpus = if has.gpus > 0 { format!(", {}/{} gpus", used.gpus, has.gpus) } else { String::new() };
    let booked = format!(
        "booked {}/{} cpus, {} of {}{gpus}; heard {} ago; version {}",
        number(used.cpus),
        number(has.cpus),
        Bytes(used.memory),
        Bytes(has.memory),
        or_dash(heard),
        or_dash(worker.version.clone()),
    );
    put(buffer, line(area, 1), 1, &booked, style(state, Tone::Plain));
    let width = usize::from(area.width.saturating_sub(NAMES + 10));
    let lines: [(&str, &[Option<f64>], f64, &str); 5] = [
        ("cpus", &series.busy_cpus, has.cpus, ""),
        ("load", &series.load, 1.0, ""),
        ("p. cpu", &series.cpu_pressure, 100.0, "%"),
        ("p. memory", &series.memory_pressure, 100.0, "%"),
        ("p. io", &series.io_pressure, 100.0, "%"),
    ];
    for (n, (name, past, most, unit)) in lines.into_iter().enumerate() {
        let area = line(area, n as u16 + 2);
        let last = past.last().copied().flatten();
        put(buffer, area, 1, name, style(state, Tone::Faint));
        let shown = last.map(|last| format!("{}{unit}", number(last)));
        put(buffer, area, NAMES + 1, &or_dash(shown), style(state, Tone::Plain));
        if let Some((now, before)) = past.split_last() {
            let drawn = spark(before, *now, most, width);
            put(buffer, area, NAMES + 9, &drawn, style(state, Tone::Busy));
        }
    }
}

/// The lines of the explanation as they are drawn.
fn why_lines(state: &State) -> Vec<(String, Tone)> {
    let width = usize::from(state.size.0).saturating_sub(2).max(8);
    let mut lines = Vec::new();
    for part in &state.why.lines {
        let (text, tone, indent) = match part {
            WhyLine::Title(text) => (text.as_str(), Tone::Strong, 0),
            WhyLine::Reason(text) => (text.as_str(), Tone::Held, 0),
            WhyLine::Head(text) => {
                lines.push((String::new(), Tone::Plain));
                (*text, Tone::Strong, 0)
            }
            WhyLine::Change(text) => (text.as_str(), Tone::Good, 2),
            WhyLine::Text(text) => (text.as_str(), Tone::Plain, 2),
            WhyLine::Table(text) => {
                lines.push((text.clone(), Tone::Plain));
                continue;
            }
        };
        let lead = " ".repeat(indent);
        let wrapped = wrap(text, width.saturating_sub(indent), INDENT.saturating_sub(indent));
        lines.extend(wrapped.into_iter().map(|line| (format!("{lead}{line}"), tone)));
    }
    lines
}

/// Lines of the explanation after wrapping.
pub fn why_height(state: &State) -> usize {
    why_lines(state).len()
}

/// Draws the lines of the explanation that fit the area.
pub fn why(buffer: &mut Buffer, state: &State, area: Rect) {
    let caption = state.areas().caption;
    let subject = match &state.why.subject {
        None => " choose a job, a task or a worker on another screen, and press w".to_owned(),
        Some(Subject::Task(task)) => format!(" why of task {task}"),
        Some(Subject::Job(job)) => format!(" why of the first task of job {job} that waits"),
        Some(Subject::Worker(worker)) => format!(" why worker {worker} gets no work, or that it does"),
    };
    let x = put(buffer, caption, 0, &subject, style(state, Tone::Plain));
    if let Some(failure) = &state.failure {
        put(buffer, caption, x, &format!("  cannot read: {failure}"), style(state, Tone::Bad));
    }
    let lines = why_lines(state).into_iter().skip(state.why.top).take(area.height.into());
    for (n, (text, tone)) in lines.enumerate() {
        put(buffer, line(area, n as u16), 1, &text, style(state, tone));
    }
}

/// Draws the end of the output that fits the area.
pub fn logs(buffer: &mut Buffer, state: &State, area: Rect) {
    let logs = &state.logs;
    let caption = state.areas().caption;
    let Some(task) = &logs.task else {
        let text = " choose a task on another screen, and press l";
        put(buffer, caption, 0, text, style(state, Tone::Plain));
        return;
    };
    let end = match (&logs.ended, logs.is_following()) {
        (None, true) => "following",
        (None, false) => "stopped here; G follows again",
        (Some(None), _) => "the end",
        (Some(Some(_)), _) => "cut off",
    };
    let mut text = format!(" output of task {task}, {end}");
    if !logs.filter().is_empty() {
        text.push_str(&format!(", lines with: {}", logs.filter()));
    }
    if logs.shift > 0 {
        text.push_str(&format!(", from column {}", logs.shift + 1));
    }
    let x = put(buffer, caption, 0, &text, style(state, Tone::Plain));
    if let Some(Some(why)) = &logs.ended {
        put(buffer, caption, x, &format!(": {why}"), style(state, Tone::Bad));
    }
    for (n, shown) in logs.window(area.height.into()).into_iter().enumerate() {
        let (sign, tone) = if shown.is_error { ("│", Tone::Held) } else { (" ", Tone::Plain) };
        let area = line(area, n as u16);
        put(buffer, area, 0, sign, style(state, tone));
        let from = shown.text.char_indices().nth(logs.shift).map_or(shown.text.len(), |(at, _)| at);
        put(buffer, area, 1, &shown.text[from..], style(state, tone));
    }
}
