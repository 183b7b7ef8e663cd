//! The text of the cells of each list.

use crate::commands::top::draw::header::number;
use crate::commands::top::draw::paint::{Tone, sign_of};
use crate::commands::top::draw::table::{DrawnRow, Piece};
use crate::commands::top::keys::Screen;
use crate::commands::top::rows::{JobRow, QueueRow, TaskRow, WorkerRow};
use crate::commands::top::state::State;
use crate::ui::quantity::{elapsed, in_one_unit};
use windlass_api::{JobState, TaskState, WorkerState};
use windlass_core::resources::Bytes;

/// Percent of pressure from which a worker deserves a look.
const PRESSED_PERCENT: f64 = 50.0;
/// The text of a cell whose value is unknown.
const UNKNOWN: &str = "-";

fn plain(text: impl Into<String>) -> Vec<Piece> {
    vec![(text.into(), Tone::Plain)]
}

fn toned(text: impl Into<String>, tone: Tone) -> Vec<Piece> {
    vec![(text.into(), tone)]
}

fn known(value: Option<String>) -> Vec<Piece> {
    value.map_or_else(|| toned(UNKNOWN, Tone::Faint), plain)
}

/// An amount in at most five characters: 12345, 123k, 4.5M.
fn short(amount: u64) -> String {
    match amount {
        0..100_000 => amount.to_string(),
        100_000..1_000_000 => format!("{}k", amount / 1000),
        _ => format!("{:.1}M", amount as f64 / 1e6),
    }
}

/// How long ago, in one unit.
fn age(state: &State, since_ms: u64) -> String {
    in_one_unit(state.now.wall_ms.saturating_sub(since_ms))
}

/// A bar of parts; what they leave is `-`. Each part that is not empty has a character as long as there is room.
fn bar(parts: &[(f64, char, Tone)], whole: f64, width: usize) -> Vec<Piece> {
    let room = width.saturating_sub(2);
    let scale = room as f64 / whole.max(parts.iter().map(|part| part.0).sum()).max(f64::MIN_POSITIVE);
    let (mut pieces, mut filled, mut sum) = (vec![("[".to_owned(), Tone::Plain)], 0, 0.0);
    for (amount, sign, tone) in parts.iter().filter(|part| part.0 > 0.0) {
        sum += amount;
        let end = ((sum * scale).round() as usize).max(filled + 1).min(room);
        pieces.push((sign.to_string().repeat(end - filled.min(end)), *tone));
        filled = filled.max(end);
    }
    pieces.push(("-".repeat(room - filled), Tone::Faint));
    pieces.push(("]".to_owned(), Tone::Plain));
    pieces
}

impl DrawnRow for WorkerRow {
    const WHAT: &'static str = "worker";

    fn empty(_: &State) -> &'static str {
        "no workers; 'windlass worker start' on a machine makes it one"
    }

    fn cell(&self, state: &State, column: usize, width: usize) -> Vec<Piece> {
        let percent = |value: Option<f64>| match value {
            None => toned(UNKNOWN, Tone::Faint),
            Some(value) if value >= PRESSED_PERCENT => toned(format!("{value:.0}%"), Tone::Bad),
            Some(value) => plain(format!("{value:.0}%")),
        };
        match column {
            0 => toned(&self.seen.name, Tone::Strong),
            1 => self.slots(state, width),
            2 => {
                let booked = self.booked.map_or_else(|| UNKNOWN.to_owned(), number);
                plain(format!("{booked}/{}", number(self.seen.cpus)))
            }
            3 => plain(short(self.seen.assigned_jobs as u64)),
            4..=6 => percent(self.pressure[column - 4]),
            7 => known(
                self.load.map(|load| if load < 9.995 { format!("{load:.2}") } else { format!("{load:.0}") }),
            ),
            8 => known(self.seen.heard_at.map(|at| age(state, at))),
            _ => {
                let tone = match self.seen.state {
                    WorkerState::Up | WorkerState::Draining => Tone::Held,
                    _ => Tone::Bad,
                };
                toned(self.why(), tone)
            }
        }
    }
}

impl WorkerRow {
    /// The bar of its cpus by queue. What no queue is known for is drawn as if it were of one more queue.
    fn slots(&self, state: &State, width: usize) -> Vec<Piece> {
        let Some(booked) = self.booked else { return toned(UNKNOWN, Tone::Faint) };
        let mut parts: Vec<(f64, char, Tone)> = Vec::new();
        for holds in &self.seen.queues {
            let place = state.queue_signs.iter().position(|queue| *queue == holds.queue);
            let place = place.unwrap_or(state.queue_signs.len());
            parts.push((holds.cpus, sign_of(place), Tone::Queue(place)));
        }
        let rest = booked - parts.iter().map(|part| part.0).sum::<f64>();
        if rest > 0.005 {
            parts.push((rest, if parts.is_empty() { '#' } else { ':' }, Tone::Busy));
        }
        bar(&parts, self.seen.cpus, width)
    }
}

fn job_tone(state: JobState) -> Tone {
    match state {
        JobState::Running => Tone::Busy,
        JobState::Succeeded => Tone::Good,
        JobState::Failed => Tone::Bad,
        JobState::Held | JobState::Canceled => Tone::Held,
        JobState::Pending => Tone::Plain,
    }
}

/// The tone of a task's state.
fn task_tone(state: TaskState) -> Tone {
    match state {
        TaskState::Booked | TaskState::Running => Tone::Busy,
        TaskState::Succeeded => Tone::Good,
        TaskState::Failed => Tone::Bad,
        TaskState::Canceled => Tone::Held,
        TaskState::Waiting | TaskState::Skipped => Tone::Faint,
        TaskState::Ready => Tone::Plain,
    }
}

impl DrawnRow for JobRow {
    const WHAT: &'static str = "job";

    fn empty(state: &State) -> &'static str {
        if !state.filter().is_empty() {
            "no job passes the filter; Esc clears it"
        } else if state.jobs.active {
            "no active jobs; 'a' shows those that have ended"
        } else {
            "no jobs; 'windlass run -- COMMAND' submits one"
        }
    }

    fn cell(&self, state: &State, column: usize, width: usize) -> Vec<Piece> {
        let counts = &self.counts;
        match column {
            0 => plain(self.id.to_string()),
            1 => toned(self.state.shown(), job_tone(self.state)),
            2 => toned(&self.name, Tone::Strong),
            3 => {
                let parts = [
                    (counts.succeeded, '#', Tone::Good),
                    (counts.failed, '!', Tone::Bad),
                    (counts.canceled + counts.skipped, 'x', Tone::Held),
                    (counts.running, '=', Tone::Busy),
                ];
                bar(&parts.map(|(n, sign, tone)| (f64::from(n), sign, tone)), counts.total.into(), width)
            }
            4 => plain(format!("{}/{}", counts.succeeded, counts.total)),
            5 => plain(short(counts.running.into())),
            6 if counts.failed > 0 => toned(short(counts.failed.into()), Tone::Bad),
            6 => plain("0"),
            7 => plain(&self.queue),
            8 => plain(&self.user),
            9 => plain(age(state, self.created_ms)),
            _ => plain(self.priority.to_string()),
        }
    }
}

impl DrawnRow for QueueRow {
    const WHAT: &'static str = "queue";

    fn empty(_: &State) -> &'static str {
        "no queues; the first job of a user makes one"
    }

    fn cell(&self, _: &State, column: usize, _: usize) -> Vec<Piece> {
        let queue = &self.0;
        match column {
            0 => toned(&queue.name, Tone::Strong),
            1 => plain(queue.band.to_string()),
            2 => plain(queue.weight.to_string()),
            3 => plain(short(queue.running.into())),
            4 => plain(number(queue.running_cpus)),
            5 => plain(short(queue.waiting)),
            6 => known(queue.demand_cpus.map(number)),
            7 => known(queue.entitled_cpus.map(number)),
            _ => match queue.paused.as_deref() {
                None => plain(""),
                Some("") => toned("paused", Tone::Held),
                Some(note) => toned(format!("paused: {note}"), Tone::Held),
            },
        }
    }
}

impl DrawnRow for TaskRow {
    const WHAT: &'static str = "task";

    fn empty(state: &State) -> &'static str {
        match state.screen {
            Screen::Workers => "no task holds a part of it",
            _ => "no tasks",
        }
    }

    fn cell(&self, state: &State, column: usize, _: usize) -> Vec<Piece> {
        match column {
            0 => toned(&self.id, Tone::Strong),
            1 => self.state.map_or_else(|| known(None), |state| toned(state.shown(), task_tone(state))),
            2 => plain(&self.what),
            3 => known(self.worker.clone()),
            4 => plain(if self.attempt > 0 { self.attempt.to_string() } else { UNKNOWN.to_owned() }),
            5 => plain(&self.ended),
            6 => {
                let end = self.ran.1.unwrap_or(state.now.wall_ms);
                let took = self.ran.0.map(|start| end.saturating_sub(start));
                known(took.map(|ms| elapsed(ms).replace(' ', "")))
            }
            7 => known(self.peak_bytes.map(|bytes| Bytes(bytes).to_string())),
            _ => plain(&self.progress),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(parts: &[(f64, char)], whole: f64, width: usize) -> String {
        let parts: Vec<_> = parts.iter().map(|(n, sign)| (*n, *sign, Tone::Plain)).collect();
        bar(&parts, whole, width).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn bars_fill_their_width() {
        assert_eq!(drawn(&[(2.0, '#'), (1.0, '=')], 6.0, 8), "[##=---]");
        assert_eq!(drawn(&[(1.0, '#'), (1.0, '!'), (998.0, '=')], 1000.0, 8), "[#!====]");
        assert_eq!(drawn(&[(9.0, '#')], 6.0, 8), "[######]");
        assert_eq!(drawn(&[], 0.0, 8), "[------]");
        assert_eq!(drawn(&[(1.0, '#'), (1.0, '=')], 2.0, 3), "[#]");
    }

    #[test]
    fn large_amounts_are_short() {
        assert_eq!([short(99_999), short(123_456), short(4_500_000)], ["99999", "123k", "4.5M"]);
    }
}
