//! The progress of a job: a bar on a terminal, a line now and then elsewhere.

use crate::ui::message::message;
use crate::ui::quantity::elapsed;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use windlass_api::Counts;

/// How often a line is printed if there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

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
                bar.set_length(u64::from(self.counts.total));
                bar.set_position(u64::from(self.counts.ended()));
                bar.set_message(details(&self.counts, &self.rate.figures(&self.counts, Instant::now())));
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
        let (counts, job) = (&self.counts, self.job);
        let figures = self.rate.figures(counts, Instant::now());
        message!("job {job}: {} of {} done, {}", counts.ended(), counts.total, details(counts, &figures));
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} done, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
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

/// "2 running, 1 failed, 35/s, 12.0 s left".
fn details(counts: &Counts, figures: &Figures) -> String {
    let mut text = format!("{} running, {} failed", counts.running, counts.failed);
    if let Some(rate) = figures.per_second {
        let digits = if rate >= 10.0 { 0 } else { 1 };
        text.push_str(&format!(", {rate:.digits$}/s"));
    }
    if let Some(left) = figures.left_ms {
        text.push_str(&format!(", {} left", elapsed(left)));
    }
    text
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
        assert_eq!(details(&counts, &figures), "2 running, 1 failed, 5.0/s, 8.0 s left");
    }

    #[test]
    fn nothing_is_told_before_something_ended() {
        let began = Instant::now();
        let rate = Rate { began, base: Some(0) };
        let counts = Counts { total: 3, running: 1, ready: 2, ..Default::default() };
        let figures = rate.figures(&counts, began + Duration::from_secs(9));
        assert_eq!(details(&counts, &figures), "1 running, 0 failed");
    }

    #[test]
    fn no_time_is_left_at_the_end() {
        let began = Instant::now();
        let rate = Rate { began, base: Some(0) };
        let counts = Counts { total: 40, succeeded: 40, ..Default::default() };
        let figures = rate.figures(&counts, began + Duration::from_secs(1));
        assert_eq!(details(&counts, &figures), "0 running, 0 failed, 40/s");
    }
}
