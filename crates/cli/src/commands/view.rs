//! How a list is shown: sorted by a column, or drawn again and again.

use crate::client::connect::connect;
use crate::client::context::Context;
use crate::ui::error::{CliError, may_pass};
use crate::ui::output::{Excerpt, Format, print_excerpt};
use crate::ui::table::{Grid, SortBy};
use crate::ui::terminal;
use crate::ui::text::cut;
use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use clap::Args;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;
use windlass_api::quantity::parse_duration;

/// The shortest interval of `--watch`. A shorter one would keep the server busy for what no person can read.
const WATCH_MS_MIN: u64 = 200;

/// Moves the cursor to the first cell of the terminal.
const HOME: &str = "\x1b[H";
/// Clears what follows the cursor in its line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears what follows the cursor on the terminal.
const CLEAR_REST: &str = "\x1b[J";

/// The order of a list, and whether it is drawn once.
#[derive(Args, Clone, Debug, Default)]
pub struct ViewArgs {
    /// Sort by this column, upwards, or downwards with :desc
    #[arg(long, value_name = "COLUMN[:desc]")]
    pub sort: Option<SortBy>,
    /// Draw the list again every 2 seconds until Ctrl-C, or at another interval, as in --watch=10s
    #[arg(
        long, short, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s",
        value_parser = parse_duration
    )]
    pub watch: Option<u64>,
}

impl ViewArgs {
    /// Prints the list that `read` returns, at most `limit` items of it, or draws it until the program is ended.
    pub async fn show<T: Serialize>(
        &self,
        context: &Context,
        limit: Option<usize>,
        read: impl AsyncFn() -> Result<Vec<T>, CliError>,
        name: impl Fn(&T) -> String,
        grid: impl Fn(&[T]) -> Grid,
    ) -> Result<(), CliError> {
        let excerpt = Excerpt { sort: self.sort.clone(), limit };
        let Some(interval) = self.interval(context)? else {
            return print_excerpt(context.format, &read().await?, &excerpt, name, grid);
        };
        let mut drawn = drawing(grid(&read().await?), &excerpt)?;
        let mut note: Option<String> = None;
        // What the terminal shows goes up, where it can still be read.
        print(&"\n".repeat(terminal::size().1.saturating_sub(1)))?;
        loop {
            print(&frame(&drawn, note.as_deref(), terminal::size()))?;
            tokio::time::sleep(interval).await;
            match read().await {
                Ok(items) => {
                    drawn = drawing(grid(&items), &excerpt)?;
                    note = None;
                }
                // The last drawing is the best that is known.
                Err(CliError::Request { source, doing }) if may_pass(&source) => {
                    note = Some(CliError::Request { source, doing }.message());
                    if context.server.is_none() {
                        // If the user's own server does not start, the next read fails, too.
                        _ = connect(None).await;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The time between two drawings; `None` if the list is printed once.
    fn interval(&self, context: &Context) -> Result<Option<Duration>, CliError> {
        let Some(ms) = self.watch else { return Ok(None) };
        let refused = if context.format != Format::Table {
            "--watch draws a table, and no other format"
        } else if !io::stdout().is_terminal() {
            "--watch draws on a terminal, and standard output is not one"
        } else {
            return Ok(Some(Duration::from_millis(ms.max(WATCH_MS_MIN))));
        };
        Err(CliError::Usage {
            message: refused.to_owned(),
            hint: Some("'windlass events' tells programs of each change".to_owned()),
        })
    }
}

/// The table as text, or the message if it has no rows; in colours if the terminal shows them.
fn drawing(mut grid: Grid, excerpt: &Excerpt) -> Result<String, CliError> {
    let order = excerpt.order(&grid)?;
    grid.arrange(&order);
    let text = if grid.rows.is_empty() { grid.empty.to_owned() } else { grid.render(terminal::columns()) };
    let is_plain = AutoStream::choice(&io::stdout()) == ColorChoice::Never;
    Ok(if is_plain { strip_str(&text).to_string() } else { text })
}

/// The text at the top of a terminal of that size in columns and rows, with a note below it. Rows that do not fit are
/// counted in the last line.
fn frame(text: &str, note: Option<&str>, (columns, rows): (usize, usize)) -> String {
    let room = rows.saturating_sub(1 + usize::from(note.is_some())).max(1);
    let lines: Vec<&str> = text.lines().collect();
    let hidden = if lines.len() > room { lines.len() - (room - 1) } else { 0 };
    let more = (hidden > 0).then(|| cut(&format!("… {hidden} more"), columns).into_owned());
    let note = note.map(|note| cut(note, columns).into_owned());
    let shown = lines[..lines.len() - hidden].iter().map(|line| (*line).to_owned());
    let mut frame = HOME.to_owned();
    for line in shown.chain(more).chain(note) {
        frame.push_str(&line);
        frame.push_str(CLEAR_LINE);
        frame.push('\n');
    }
    frame + CLEAR_REST
}

/// Writes to the terminal as it is. A stream of `anstream` may drop the sequences that move the cursor.
fn print(frame: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(frame.as_bytes()).and_then(|()| out.flush()).map_err(CliError::output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a terminal shows of a frame.
    fn seen(text: &str, note: Option<&str>, size: (usize, usize)) -> Vec<String> {
        strip_str(&frame(text, note, size)).to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_drawing_fits_the_terminal() {
        let rows = "ID\n1\n2\n3\n4\n";
        assert_eq!(seen(rows, None, (80, 6)), ["ID", "1", "2", "3", "4"]);
        assert_eq!(seen(rows, None, (80, 5)), ["ID", "1", "2", "… 2 more"]);
        assert_eq!(seen(rows, Some("no server answers"), (9, 5)), ["ID", "1", "… 3 more", "no serve…"]);
        assert_eq!(seen(rows, None, (80, 1)), ["… 5 more"]);
    }
}
