//! Names and values for people, one a line.

use crate::ui::terminal;
use crate::ui::text::{fit, wrap};

/// Cells of the names with the gap behind them.
const NAMES: usize = 11;
/// Cells that values have at least. A terminal that is narrower wraps their lines itself.
const VALUES_MIN: usize = 20;

/// Lines of a name and a value. On a terminal a long value goes on below itself, at words.
pub struct FieldLines {
    room: Option<usize>,
    text: String,
}

impl FieldLines {
    /// Lines as wide as standard output shows them.
    pub fn for_stdout() -> Self {
        FieldLines::within(terminal::columns())
    }

    /// For lines of that many cells; `None` does not bound them.
    pub fn within(room: Option<usize>) -> Self {
        FieldLines { room, text: String::new() }
    }

    /// Adds a line. Control characters of the value are escaped.
    pub fn add(&mut self, name: &str, value: &str) {
        let value = fit(value, None);
        let lines = match self.room {
            None => vec![value],
            Some(room) => wrap(&value, room.saturating_sub(NAMES).max(VALUES_MIN), 0),
        };
        for (number, line) in lines.iter().enumerate() {
            self.push(if number == 0 { name } else { "" }, line);
        }
    }

    /// Adds a line as it is, whose value may have colours.
    pub fn push(&mut self, name: &str, value: &str) {
        let line = format!("{name:<names$} {value}", names = NAMES - 1);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// All lines, each with its end.
    pub fn text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_goes_on_below_itself() {
        let text = |room| {
            let mut fields = FieldLines::within(room);
            fields.add("name", "film");
            fields.add("command", "render --frames 1-100 --out\t/films");
            fields.text()
        };
        let long = "name       film\ncommand    render --frames 1-100 --out\\t/films\n";
        assert_eq!(text(None), long);
        assert_eq!(text(Some(80)), long);
        let folded = "name       film\ncommand    render --frames\n           1-100 --out\\t/films\n";
        assert_eq!(text(Some(30)), folded);
    }
}
