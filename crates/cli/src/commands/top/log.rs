//! The output of the task that is followed, as lines.

use crate::commands::top::clean::LineMaker;
use crate::commands::top::message::LogNews;
use std::collections::VecDeque;

/// Lines that are kept; older ones are dropped.
pub const LINES_MAX: usize = 10_000;
/// Bytes of each stream before which a following begins.
pub const TAIL_BYTES: i64 = 64 << 10;
/// Columns by which output moves to the side.
const SHIFT: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    pub is_error: bool,
    /// The text, which is safe to draw.
    pub text: String,
}

/// The end of a task's output, as it is shown.
#[derive(Default)]
pub struct LogView {
    /// The task; `None` before one was chosen.
    pub task: Option<String>,
    /// The number of this following.
    pub number: u64,
    /// True once the streams have ended.
    pub ended: Option<Option<String>>,
    /// Columns that are left of the window.
    pub shift: usize,
    lines: VecDeque<LogLine>,
    makers: [LineMaker; 2],
    /// Lines between the end and the end of the window; 0 follows the output.
    behind: usize,
    /// A part of the lines that are shown; empty shows all.
    filter: String,
}

impl LogView {
    /// Follows another task, or the same one again.
    pub fn begin(&mut self, task: String) {
        let number = self.number + 1;
        *self = LogView { task: Some(task), number, ..LogView::default() };
    }

    /// Takes in what came.
    pub fn take(&mut self, news: LogNews) {
        match news {
            LogNews::End(why) => self.ended = Some(why),
            LogNews::Bytes(is_error, bytes) => {
                let (lines, filter) = (&mut self.lines, &self.filter);
                let mut more = 0;
                self.makers[usize::from(is_error)].feed(&bytes, |text| {
                    more += usize::from(text.contains(filter.as_str()));
                    lines.push_back(LogLine { is_error, text });
                    if lines.len() > LINES_MAX {
                        lines.pop_front();
                    }
                });
                // A window that does not follow stays where it is.
                if self.behind > 0 {
                    self.behind += more;
                }
            }
        }
        self.behind = self.behind.min(self.shown().count());
    }

    fn shown(&self) -> impl DoubleEndedIterator<Item = LogLineView<'_>> {
        let open = [false, true].into_iter().filter_map(|is_error| {
            let text = self.makers[usize::from(is_error)].open_line();
            (!text.is_empty()).then_some(LogLineView { is_error, text })
        });
        let whole = self.lines.iter().map(|line| LogLineView { is_error: line.is_error, text: &line.text });
        whole.chain(open).filter(|line| line.text.contains(self.filter.as_str()))
    }

    /// The lines of a window of that height.
    pub fn window(&self, height: usize) -> Vec<LogLineView<'_>> {
        let total = self.shown().count();
        let behind = self.behind.min(total.saturating_sub(height));
        let mut lines: Vec<_> = self.shown().rev().skip(behind).take(height).collect();
        lines.reverse();
        lines
    }

    /// True if new output is shown as it comes.
    pub fn is_following(&self) -> bool {
        self.behind == 0
    }

    /// Moves the window by lines, down if positive; `height` is its own.
    pub fn step(&mut self, lines: isize, height: usize) {
        let most = self.shown().count().saturating_sub(height);
        self.behind = self.behind.saturating_add_signed(lines.saturating_neg()).min(most);
    }

    /// Moves to the first line that is kept.
    pub fn rewind(&mut self, height: usize) {
        self.step(isize::MIN + 1, height);
    }

    /// Moves to the end, and follows it.
    pub fn follow_end(&mut self) {
        self.behind = 0;
    }

    /// Moves to the side.
    pub fn shift_by(&mut self, to_the_right: bool) {
        let most = crate::commands::top::clean::LINE_CHARS_MAX;
        self.shift =
            if to_the_right { (self.shift + SHIFT).min(most) } else { self.shift.saturating_sub(SHIFT) };
    }

    /// Shows the lines with this text alone.
    pub fn set_filter(&mut self, text: &str) {
        text.clone_into(&mut self.filter);
        self.behind = 0;
    }

    /// The text that shown lines have.
    pub fn filter(&self) -> &str {
        &self.filter
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogLineView<'a> {
    pub is_error: bool,
    /// The text, which is safe to draw.
    pub text: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> LogView {
        let mut view = LogView::default();
        view.begin("1.0".to_owned());
        view.take(LogNews::Bytes(false, text.as_bytes().to_vec()));
        view
    }

    fn texts(view: &LogView, height: usize) -> Vec<&str> {
        view.window(height).iter().map(|line| line.text).collect()
    }

    #[test]
    fn the_end_is_followed_until_the_window_is_moved() {
        let mut view = view("a\nb\nc\nd");
        assert_eq!(texts(&view, 2), ["c", "d"]);
        view.step(-1, 2);
        view.take(LogNews::Bytes(true, b"err\n".to_vec()));
        assert_eq!((texts(&view, 2), view.is_following()), (vec!["b", "c"], false));
        view.rewind(2);
        assert_eq!(texts(&view, 2), ["a", "b"]);
        view.follow_end();
        assert_eq!(texts(&view, 2), ["err", "d"]);
        view.set_filter("r");
        assert_eq!(texts(&view, 9), ["err"]);
    }

    #[test]
    fn old_lines_are_dropped() {
        let mut view = view(&"x\n".repeat(LINES_MAX + 5));
        view.take(LogNews::Bytes(false, b"last\n".to_vec()));
        assert_eq!((view.lines.len(), texts(&view, 1)), (LINES_MAX, vec!["last"]));
    }

    #[test]
    fn another_task_begins_empty() {
        let mut view = view("a\n");
        view.take(LogNews::End(None));
        view.begin("2.0".to_owned());
        assert_eq!((view.number, view.ended.is_none(), texts(&view, 5).len()), (2, true, 0));
    }
}
