//! Data on standard output in the requested format.

use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::table::{Grid, SortBy};
use crate::ui::terminal;
pub use crate::ui::text::{fit, paint};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{self, BufWriter, Write};

/// The value of `--output`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OutputArg {
    /// A table or text for people, as wide as their terminal.
    Table,
    /// The same with all columns, uncut.
    Wide,
    /// One JSON value for all.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// Ids alone, one a line.
    Name,
}

impl OutputArg {
    /// The format; how wide a table is, [`terminal`] knows from now on.
    pub fn apply(self) -> Format {
        match self {
            OutputArg::Table => Format::Table,
            OutputArg::Wide => {
                terminal::show_wide();
                Format::Table
            }
            OutputArg::Json => Format::Json,
            OutputArg::Jsonl => Format::Jsonl,
            OutputArg::Name => Format::Name,
        }
    }
}

/// Format of the data on standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    print_excerpt(format, items, &Excerpt::default(), name, grid)
}

/// The part of a list that is printed, and its order.
#[derive(Clone, Debug, Default)]
pub struct Excerpt {
    /// The column by which it is sorted; `None` keeps the order of the items.
    pub sort: Option<SortBy>,
    /// Most items, counted after they were sorted; `None` is all.
    pub limit: Option<usize>,
}

/// Prints a part of a list; `name` is the id that `-o name` prints of an item.
pub fn print_excerpt<T: Serialize>(
    format: Format,
    items: &[T],
    excerpt: &Excerpt,
    name: impl Fn(&T) -> String,
    grid: impl FnOnce(&[T]) -> Grid,
) -> Result<(), CliError> {
    let (order, grid) = match (&excerpt.sort, format) {
        (None, Format::Json | Format::Jsonl | Format::Name) => (excerpt.places(items.len()), None),
        (Some(_), _) | (None, Format::Table) => {
            let grid = grid(items);
            (excerpt.order(&grid)?, Some(grid))
        }
    };
    let mut shown = order.iter().map(|place| &items[*place]);
    match (format, grid) {
        (Format::Json, _) => print_json(&shown.collect::<Vec<_>>()),
        (Format::Jsonl, _) => shown.try_for_each(print_jsonl),
        (Format::Name, _) => print_lines(shown.map(name)),
        (Format::Table, Some(grid)) if grid.rows.is_empty() => {
            // A message and not data: a program that counts lines must count none.
            message!("{}", grid.empty);
            Ok(())
        }
        (Format::Table, Some(mut grid)) => {
            grid.arrange(&order);
            print_text(&grid.render(terminal::columns()))
        }
        (Format::Table, None) => Ok(()),
    }
}

impl Excerpt {
    /// The places of the rows of a table that are shown, in order.
    pub fn order(&self, grid: &Grid) -> Result<Vec<usize>, CliError> {
        match &self.sort {
            None => Ok(self.places(grid.rows.len())),
            Some(by) => {
                let mut order = grid.order(by)?;
                order.truncate(self.limit.unwrap_or(usize::MAX));
                Ok(order)
            }
        }
    }

    fn places(&self, items: usize) -> Vec<usize> {
        (0..items.min(self.limit.unwrap_or(usize::MAX))).collect()
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

/// The text, or `-` if it is not known or does not apply.
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Cpus in words: `1 cpu`, `2.5 cpus`.
pub fn cpus(cpus: f64) -> String {
    if cpus == 1.0 { "1 cpu".to_owned() } else { format!("{cpus} cpus") }
}

/// "1 task", "2 tasks".
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The numbers that are not 0, each with its word: "98 succeeded, 2 failed".
pub fn numbers(all: &[(u32, &str)]) -> String {
    let some = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    some.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals() {
        assert_eq!(count(1, "task"), "1 task");
        assert_eq!(count(0, "task"), "0 tasks");
        assert_eq!([1.0, 0.5, 2.0, 0.0].map(cpus), ["1 cpu", "0.5 cpus", "2 cpus", "0 cpus"]);
    }
}
