//! The progress of a job: a bar on a terminal, a line now and then elsewhere.

use crate::ui::message::{keep_clear_of, message};
use crate::ui::quantity::elapsed;
use crate::ui::terminal;
use crate::ui::text::{cut, width};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use windlass_api::Counts;

/// How often a line is printed if there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Cells inside the bar, where there is room for all figures, and where there is not.
const BAR_CELLS: [usize; 2] = [30, 10];

/// When progress is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    Never,
    /// Only if standard error is a terminal.
    OnTerminal,
    /// Always, as lines if there is no terminal.
    Always,
}

pub struct Progress {
    kind: Kind,
    job: u64,
    rate: Rate,
    counts: Counts,
    said: Option<Instant>,
}

enum Kind {
    Off,
    Lines,
    Bar(ProgressBar),
}

/// How fast tasks have ended since the job is followed.
struct Rate {
    began: Instant,
    base: Option<u32>,
}

impl Progress {
    /// The progress of a job whose counts are not known yet.
    pub fn new(show: Show, job: u64) -> Self {
        let kind = match (show, std::io::stderr().is_terminal()) {
            (Show::Never, _) | (Show::OnTerminal, false) => Kind::Off,
            (Show::Always, false) => Kind::Lines,
            (Show::OnTerminal | Show::Always, true) => Kind::Bar(bar()),
        };
        if let Kind::Bar(bar) = &kind {
            keep_clear_of(Some(bar.clone()));
        }
        let rate = Rate { began: Instant::now(), base: None };
        Progress { kind, job, rate, counts: Counts::default(), said: None }
    }

    /// The bar, for output to the same terminal.
    pub fn bar(&self) -> Option<ProgressBar> {
        match &self.kind {
            Kind::Bar(bar) => Some(bar.clone()),
            Kind::Off | Kind::Lines => None,
        }
    }

    /// Removes the bar: a single task that writes to the terminal needs none.
    pub fn hide(&mut self) {
        if let Kind::Bar(bar) = std::mem::replace(&mut self.kind, Kind::Off) {
            keep_clear_of(None);
            bar.finish_and_clear();
        }
    }

    /// Stores the counts and shows them.
    pub fn update(&mut self, counts: &Counts) {
        self.rate.base.get_or_insert(counts.ended());
        self.counts = *counts;
        self.tick();
    }

    /// Shows the last counts, with the rate until now.
    pub fn tick(&mut self) {
        if self.rate.base.is_none() {
            return;
        }
        match &self.kind {
            Kind::Off => {}
            Kind::Bar(bar) => {
                let figures = self.rate.figures(&self.counts, Instant::now());
                // The last column stays empty: a terminal may begin a new line after it.
                bar.set_message(drawn(&self.counts, &figures, terminal::size().0.saturating_sub(1)));
            }
            Kind::Lines => {
                if self.said.is_none_or(|said| said.elapsed() >= LINE_INTERVAL) {
                    self.say_line();
                }
            }
        }
    }

    /// Shows the last state and removes the bar.
    pub fn finish(&mut self) {
        if matches!(self.kind, Kind::Lines) && self.rate.base.is_some() {
            self.say_line();
            self.kind = Kind::Off;
        }
        self.hide();
    }

    fn say_line(&mut self) {
        self.said = Some(Instant::now());
        let figures = self.rate.figures(&self.counts, Instant::now());
        message!("job {}: {}", self.job, details(&self.counts, &figures, " of ").join(", "));
    }
}

/// A line of standard error that shows its message, and that later ones replace.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The bar and the figures behind it, in at most that many cells: a line that is wider than the terminal would leave
/// copies of itself. A failed task counts for the bar, which shows how much has ended.
fn drawn(counts: &Counts, figures: &Figures, cells: usize) -> String {
    let mut parts = details(counts, figures, "/");
    let taken = |parts: &[String], bar: usize| bar + 3 + width(&parts.join(", "));
    let [wide, narrow] = BAR_CELLS;
    let bar = if taken(&parts, wide) <= cells { wide } else { narrow };
    while parts.len() > 2 && taken(&parts, bar) > cells {
        parts.pop();
    }
    let ended = usize::try_from(u64::from(counts.ended()) * bar as u64 / u64::from(counts.total.max(1)));
    let ended = ended.unwrap_or(bar).min(bar);
    let head = if ended < bar { ">" } else { "" };
    let rest = " ".repeat(bar - ended - head.len());
    cut(&format!("[{}{head}{rest}] {}", "=".repeat(ended), parts.join(", ")), cells).into_owned()
}

/// Tasks per second and milliseconds left, if they can be computed.
struct Figures {
    per_second: Option<f64>,
    left_ms: Option<u64>,
}

impl Rate {
    fn figures(&self, counts: &Counts, now: Instant) -> Figures {
        let done = counts.ended().saturating_sub(self.base.unwrap_or(0));
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        if done == 0 || seconds <= 0.0 {
            return Figures { per_second: None, left_ms: None };
        }
        let per_second = f64::from(done) / seconds;
        let left = counts.total.saturating_sub(counts.ended());
        let left_ms = (left > 0).then(|| (f64::from(left) / per_second * 1000.0) as u64);
        Figures { per_second: Some(per_second), left_ms }
    }
}

/// "34 of 100 done", "1 failed", "12.0 s left", "2 running", "35/s": what is known, the most important first. A task that
/// failed is not done.
fn details(counts: &Counts, figures: &Figures, of: &str) -> Vec<String> {
    let mut parts =
        vec![format!("{}{of}{} done", counts.succeeded, counts.total), format!("{} failed", counts.failed)];
    parts.extend(figures.left_ms.map(|left| format!("{} left", elapsed(left))));
    parts.push(format!("{} running", counts.running));
    if let Some(rate) = figures.per_second {
        let digits = if rate >= 10.0 { 0 } else { 1 };
        parts.push(format!("{rate:.digits$}/s"));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_what_was_seen() {
        let began = Instant::now();
        let rate = Rate { began, base: Some(50) };
        let counts =
            Counts { total: 100, running: 2, succeeded: 59, failed: 1, ready: 38, ..Default::default() };
        let figures = rate.figures(&counts, began + Duration::from_secs(2));
        let details = details(&counts, &figures, " of ").join(", ");
        assert_eq!(details, "59 of 100 done, 1 failed, 8.0 s left, 2 running, 5.0/s");
    }

    #[test]
    fn the_line_fits_the_terminal() {
        let counts = Counts { total: 300, running: 2, succeeded: 149, failed: 1, ..Default::default() };
        let figures = Figures { per_second: Some(35.0), left_ms: Some(240_000) };
        let at = |cells| drawn(&counts, &figures, cells);
        let bar = format!("{}>{}", "=".repeat(15), " ".repeat(14));
        assert_eq!(at(99), format!("[{bar}] 149/300 done, 1 failed, 4m 00s left, 2 running, 35/s"));
        assert_eq!(at(79), "[=====>    ] 149/300 done, 1 failed, 4m 00s left, 2 running, 35/s");
        assert_eq!(at(59), "[=====>    ] 149/300 done, 1 failed, 4m 00s left, 2 running");
        assert_eq!(at(49), "[=====>    ] 149/300 done, 1 failed, 4m 00s left");
        assert_eq!(at(39), "[=====>    ] 149/300 done, 1 failed");
        assert!((0..120).all(|cells| width(&at(cells)) <= cells));
        let ended = Counts { total: 3, succeeded: 2, failed: 1, ..Default::default() };
        let figures = Figures { per_second: None, left_ms: None };
        assert_eq!(drawn(&ended, &figures, 50), "[==========] 2/3 done, 1 failed, 0 running");
    }

    #[test]
    fn nothing_is_told_before_something_ended() {
        let began = Instant::now();
        let rate = Rate { began, base: Some(0) };
        let counts = Counts { total: 3, running: 1, ready: 2, ..Default::default() };
        let figures = rate.figures(&counts, began + Duration::from_secs(9));
        assert_eq!(details(&counts, &figures, "/"), ["0/3 done", "0 failed", "1 running"]);
    }

    #[test]
    fn no_time_is_left_at_the_end() {
        let began = Instant::now();
        let rate = Rate { began, base: Some(0) };
        let counts = Counts { total: 40, succeeded: 40, ..Default::default() };
        let figures = rate.figures(&counts, began + Duration::from_secs(1));
        assert_eq!(details(&counts, &figures, "/"), ["40/40 done", "0 failed", "0 running", "40/s"]);
    }
}
