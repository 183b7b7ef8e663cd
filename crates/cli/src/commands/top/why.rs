//! Explanations as lines of text.

use crate::commands::list::counts;
use crate::commands::top::clean::clean;
use crate::commands::top::message::Subject;
use crate::commands::why::{
    change_line, failure_lines, jobserver_lines, passed_lines, ruled_out_line, score_table, turn_lines,
    worker_lines,
};
use windlass_api::{Job, JobState, Why, WorkerWhy};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyLine {
    /// The task or worker that is explained, and its state.
    Title(String),
    /// The reason for which the task waits.
    Reason(String),
    Head(&'static str),
    /// A change that would make it run.
    Change(String),
    Text(String),
    /// A line of a table, which is cut and not wrapped.
    Table(String),
}

#[derive(Default)]
pub struct WhyView {
    /// The task or worker that is explained; `None` before one was chosen.
    pub subject: Option<Subject>,
    /// The explanation; empty until it was read.
    pub lines: Vec<WhyLine>,
    /// The task that is explained.
    pub task: Option<String>,
    /// Lines above the window.
    pub top: usize,
}

impl WhyView {
    /// Clears the view and explains `subject` from now on.
    pub fn begin(&mut self, subject: Subject) {
        *self = WhyView { subject: Some(subject), ..WhyView::default() };
    }
}

/// Why a task is where it is, and what would make it run. `holds` are those of the whole farm.
pub fn task_lines(why: &Why, job: &Job, holds: &[String], now_ms: u64) -> Vec<WhyLine> {
    let text = |line: String| WhyLine::Text(clean(&line).into_owned());
    let mut lines = vec![
        WhyLine::Title(clean(&format!("task {} is {}", why.task, why.state.shown())).into_owned()),
        WhyLine::Reason(clean(&why.message).into_owned()),
    ];
    lines.push(text(format!(
        "job {} '{}' is {}: {}",
        job.id,
        job.name,
        job.state.shown(),
        counts(&job.counts)
    )));
    if let Some(failed) = &why.failure {
        lines.push(WhyLine::Head("How it failed"));
        lines.extend(failure_lines(failed).into_iter().map(text));
    }
    lines.extend(why.jobserver.iter().flat_map(jobserver_lines).map(text));
    lines.extend(why.turn.iter().flat_map(|turn| turn_lines(turn, now_ms)).map(text));
    if !why.changes.is_empty() {
        lines.push(WhyLine::Head("What would make it run"));
        lines.extend(
            why.changes.iter().map(|change| WhyLine::Change(clean(&change_line(change)).into_owned())),
        );
    }
    let mut held: Vec<WhyLine> = holds.iter().cloned().map(text).collect();
    if job.state == JobState::Held {
        held.push(text(format!("the job is held; 'windlass job release {}' releases it", job.id)));
    }
    held.extend(job.stopped.iter().map(|stopped| text(format!("the job was stopped: {stopped}"))));
    let until = why.backs_off_until_ms.map(|at| at.saturating_sub(now_ms).div_ceil(1000));
    held.extend(
        until.map(|s| text(format!("its step backs off for another {s} s, because a licence was busy"))),
    );
    if !held.is_empty() {
        lines.push(WhyLine::Head("Holds"));
        lines.extend(held);
    }
    if !why.ruled_out.is_empty() || why.open_workers > 0 {
        lines.push(WhyLine::Head("Workers"));
        if why.open_workers > 0 {
            lines.push(text(format!(
                "{} could take it now",
                crate::ui::output::count(why.open_workers as u64, "worker")
            )));
        }
        lines.extend(why.ruled_out.iter().map(ruled_out_line).map(text));
    }
    let table = score_table(why, None);
    // How a task was placed that has ended seldom matters.
    if !table.is_empty() && !why.state.is_end() {
        lines.push(WhyLine::Head("Scores"));
        lines.extend(table.lines().map(|line| WhyLine::Table(clean(line).into_owned())));
    }
    lines
}

/// Why a worker gets no work, or that it does.
pub fn worker_why_lines(why: &WorkerWhy, now_ms: u64) -> Vec<WhyLine> {
    let text = |line: &String| WhyLine::Text(clean(line).into_owned());
    let mut lines = vec![
        WhyLine::Title(clean(&format!("worker {} is {}", why.worker, why.state.as_str())).into_owned()),
        WhyLine::Reason(clean(&why.message).into_owned()),
    ];
    lines.extend(worker_lines(why, now_ms).iter().map(text));
    let passed = passed_lines(why);
    if !passed.is_empty() {
        lines.push(WhyLine::Head("Work that is not there"));
        lines.extend(passed.iter().map(text));
    }
    lines
}
