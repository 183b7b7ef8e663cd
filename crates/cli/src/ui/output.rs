//! Data on standard output in the requested format.

use crate::ui::error::CliError;
use crate::ui::message::message;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use comfy_table::{Table, TableStyle};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write};

/// Characters of one cell on a terminal. What is piped is never cut.
const CELL_CHARS_MAX: usize = 60;

/// Format of the data on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// A table or text for people.
    #[default]
    Table,
    /// One JSON value for all.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// Ids alone, one a line.
    Name,
}

impl Format {
    pub fn is_json(self) -> bool {
        matches!(self, Format::Json | Format::Jsonl)
    }
}

/// Prints a list; `name` is the id that `-o name` prints of an item.
pub fn print_list<T: Serialize>(
    format: Format,
    items: &[T],
    name: impl Fn(&T) -> String,
    grid: impl FnOnce(&[T]) -> Grid,
) -> Result<(), CliError> {
    match format {
        Format::Json => print_json(&items),
        Format::Jsonl => items.iter().try_for_each(print_jsonl),
        Format::Name => print_lines(items.iter().map(name)),
        Format::Table => {
            let limit = io::stdout().is_terminal().then_some(CELL_CHARS_MAX);
            print_text(&grid(items).render(limit))
        }
    }
}

/// Prints one item; `name` is the id that `-o name` prints, `text` the text for people.
pub fn print_one<T: Serialize>(
    format: Format,
    item: &T,
    name: impl FnOnce(&T) -> String,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    match format {
        Format::Json => print_json(item),
        Format::Jsonl => print_jsonl(item),
        Format::Name => print_lines([name(item)].into_iter()),
        Format::Table => print_text(&text(item)),
    }
}

/// Prints a JSON value over several lines.
pub fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    print_lines([text].into_iter())
}

pub fn print_jsonl<T: Serialize + ?Sized>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(anyhow::Error::from)?;
    print_lines([text].into_iter())
}

/// Prints text, with its colours if standard output shows them.
pub fn print_text(text: &str) -> Result<(), CliError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::output)
}

/// Prints lines as they are.
pub fn print_lines(mut lines: impl Iterator<Item = String>) -> Result<(), CliError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    written.map_err(CliError::output)
}

/// A table without borders.
pub struct Grid {
    pub header: &'static [&'static str],
    /// The rows, each as wide as the header.
    pub rows: Vec<Vec<String>>,
    /// The message if there are no rows.
    pub empty: &'static str,
}

impl Grid {
    /// The table as text. The second column is coloured if it is called STATE: the first holds an id, so its place in
    /// the line is known.
    pub fn render(&self, limit: Option<usize>) -> String {
        if self.rows.is_empty() {
            // A message and not data: a program that counts lines must count none.
            message!("{}", self.empty);
            return String::new();
        }
        let mut table = Table::new();
        table.load_style(TableStyle::new()).set_header(self.header.to_vec());
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| fit(cell, limit)).collect()).collect();
        for row in &rows {
            table.add_row(row.clone());
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let coloured = self.header.get(1) == Some(&"STATE");
        let mut text = String::new();
        for (number, line) in table.lines().enumerate() {
            let row = number.checked_sub(1).and_then(|place| rows.get(place)).filter(|_| coloured);
            let line = row.map_or_else(|| line.clone(), |row| colour_state(&line, row));
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A line of a table with its second cell in the colour of the state that it names.
fn colour_state(line: &str, row: &[String]) -> String {
    let (Some(id), Some(state)) = (row.first(), row.get(1)) else { return line.to_owned() };
    let split = line.strip_prefix(id.as_str()).and_then(|rest| {
        let gap = rest.len() - rest.trim_start().len();
        Some((&rest[..gap], rest[gap..].strip_prefix(state.as_str())?))
    });
    match split {
        Some((gap, rest)) => format!("{id}{gap}{}{rest}", paint(state)),
        None => line.to_owned(),
    }
}

/// A state in its colour.
pub fn paint(state: &str) -> String {
    let style = match state {
        "succeeded" | "up" | "ok" => AnsiColor::Green.on_default(),
        "failed" | "suspect" | "missing" => AnsiColor::Red.on_default(),
        "running" | "booked" => AnsiColor::Cyan.on_default(),
        "held" | "draining" | "cancelled" | "note" => AnsiColor::Yellow.on_default(),
        "skipped" | "waiting" => Style::new().dimmed(),
        _ => Style::new(),
    };
    format!("{style}{state}{style:#}")
}

/// A text for one line: control characters are escaped, and what exceeds the limit is cut.
pub fn fit(text: &str, limit: Option<usize>) -> String {
    let mut cell = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            cell.extend(character.escape_default());
        } else {
            cell.push(character);
        }
    }
    match limit {
        Some(limit) if cell.chars().count() > limit => {
            cell.chars().take(limit - 1).chain(std::iter::once('…')).collect()
        }
        _ => cell,
    }
}

/// The text, or `-` if it is not known or does not apply.
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// "1 task", "2 tasks".
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: Vec<Vec<String>>) -> Grid {
        Grid { header: &["ID", "STATE", "NAME"], rows, empty: "none" }
    }

    fn row(cells: [&str; 3]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_line_up_without_borders() {
        let text = grid(vec![row(["1", "queued", "a"]), row(["12", "ready", "b c"])]).render(None);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[0].find("NAME").unwrap();
        assert_eq!(&lines[1][lines[1].len() - 1..], "a");
        assert!(lines.iter().all(|line| !line.contains(['|', '+', '│'])));
        assert!(lines[0].starts_with("ID") && lines[2].starts_with("12"));
        assert!(at > 0);
    }

    #[test]
    fn states_are_coloured_and_nothing_else_changes() {
        let painted = grid(vec![row(["1", "failed", "failed"])]).render(None);
        let plain = anstream::adapter::strip_str(&painted).to_string();
        assert_ne!(painted, plain);
        assert_eq!(painted.matches("\u{1b}[31m").count(), 1);
        assert!(plain.lines().nth(1).unwrap().starts_with("1 "));
    }

    #[test]
    fn cells_keep_to_their_line() {
        assert_eq!(fit("a\nb\u{1b}[31m", None), "a\\nb\\u{1b}[31m");
        assert_eq!(fit("größer", Some(4)), "grö…");
        assert_eq!(fit("four", Some(4)), "four");
    }

    #[test]
    fn plurals() {
        assert_eq!(count(1, "task"), "1 task");
        assert_eq!(count(0, "task"), "0 tasks");
    }
}
