//! Tables for people.
//!
//! - No line is wider than its room, and a header that is shown is whole.
//! - Where room is short, texts are cut to the least width of their column, and then columns are left out: first those in
//!   which nothing is known, then by their rank. A cell is whole or ends with `…`.
//! - Without a bound of the room nothing is left out or cut.

use crate::ui::error::CliError;
use crate::ui::text::{cut, fit, paint, width, wrap};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::str::FromStr;

/// Cells between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    title: Cow<'static, str>,
    rank: u8,
    least: Option<usize>,
    is_right: bool,
    is_folded: bool,
}

impl Column {
    /// A column of short values, which are never cut. Columns of a greater rank are left out first where room is short;
    /// of equal ranks the last one goes first.
    pub fn whole(title: impl Into<Cow<'static, str>>, rank: u8) -> Self {
        Column { title: title.into(), rank, least: None, is_right: false, is_folded: false }
    }

    /// A column of texts, which are cut to `least` cells, or to the width of the title, before a column is left out.
    pub fn text(title: impl Into<Cow<'static, str>>, rank: u8, least: usize) -> Self {
        Column { least: Some(least), ..Column::whole(title, rank) }
    }

    /// Aligned right, as numbers that are compared.
    pub fn right(self) -> Self {
        Column { is_right: true, ..self }
    }

    /// The last column of a table, whose texts go on in further lines instead of being cut. Tables of sentences have it,
    /// which only commands of this machine print.
    #[cfg(target_os = "linux")]
    pub fn folded(self) -> Self {
        Column { is_folded: true, ..self }
    }

    /// The title as `--sort` takes it: `per-worker`.
    fn word(&self) -> String {
        self.title.to_lowercase().replace([' ', '_'], "-")
    }
}

/// A cell: its text, and its place in the order of its column.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    key: SortKey,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
enum SortKey {
    /// Comes last in either direction.
    #[default]
    Unknown,
    Number(f64),
    /// By the text itself.
    Text,
}

impl Cell {
    /// A value that is not known or does not apply: `-`.
    pub fn unknown() -> Self {
        Cell { text: "-".to_owned(), key: SortKey::Unknown }
    }

    /// A text that is sorted by a number, such as a duration or an amount in words.
    pub fn figure(text: impl Into<String>, number: f64) -> Self {
        Cell { text: text.into(), key: SortKey::Number(number) }
    }

    /// A whole number, sorted as such.
    pub fn number(number: impl Into<i128>) -> Self {
        let number: i128 = number.into();
        Cell::figure(number.to_string(), number as f64)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let key = if matches!(text.as_str(), "" | "-") { SortKey::Unknown } else { SortKey::Text };
        Cell { text, key }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::from(text.to_owned())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(Cell::unknown, Into::into)
    }
}

/// The value of `--sort`: a column, and the direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortBy {
    column: String,
    is_descending: bool,
}

impl FromStr for SortBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, is_descending) = match text.split_once(':') {
            None => (text, false),
            Some((column, "asc")) => (column, false),
            Some((column, "desc")) => (column, true),
            Some((_, other)) => return Err(format!("invalid direction '{other}': give asc or desc")),
        };
        Ok(SortBy { column: column.to_lowercase().replace([' ', '_'], "-"), is_descending })
    }
}

/// A table without borders.
pub struct Grid {
    pub columns: Vec<Column>,
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The message if there are no rows.
    pub empty: &'static str,
}

/// The place of a column in its table, and its width in cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shown {
    column: usize,
    width: usize,
}

impl Grid {
    /// The columns as `--sort` takes them.
    pub fn words(&self) -> Vec<String> {
        self.columns.iter().map(Column::word).collect()
    }

    /// The places of the rows in the order of a column. Rows that are equal there keep their order.
    pub fn order(&self, by: &SortBy) -> Result<Vec<usize>, CliError> {
        let Some(column) = self.columns.iter().position(|column| column.word() == by.column) else {
            return Err(CliError::usage(format!(
                "there is no column '{}' to sort by; the columns are {}",
                by.column,
                self.words().join(", ")
            )));
        };
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by(|a, b| compare(&self.rows[*a][column], &self.rows[*b][column], by.is_descending));
        Ok(order)
    }

    /// Keeps these rows, in this order; each place is there once at most.
    pub fn arrange(&mut self, order: &[usize]) {
        let mut rows = std::mem::take(&mut self.rows);
        self.rows = order.iter().map(|place| std::mem::take(&mut rows[*place])).collect();
    }

    /// The table as text, each line of at most `room` cells. A column that is called STATE is coloured.
    pub fn render(&self, room: Option<usize>) -> String {
        let mut text = String::new();
        for line in self.lines(room) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn lines(&self, room: Option<usize>) -> Vec<String> {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| fit(&cell.text, None)).collect()).collect();
        let shown = layout(&self.columns, &rows, room);
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_string()).collect();
        let head = (!titles.iter().all(String::is_empty)).then(|| self.row_lines(&shown, &titles, false));
        let body = rows.iter().flat_map(|row| self.row_lines(&shown, row, true));
        head.into_iter().flatten().chain(body).collect()
    }

    /// A row, in several lines if its last column is folded.
    fn row_lines(&self, shown: &[Shown], cells: &[String], is_coloured: bool) -> Vec<String> {
        let (mut line, mut begins) = (String::new(), 0);
        let mut more = Vec::new();
        for (place, Shown { column: n, width: cells_max }) in shown.iter().copied().enumerate() {
            let column = &self.columns[n];
            let folded = column.is_folded && place + 1 == shown.len() && width(&cells[n]) > cells_max;
            let text: Cow<'_, str> = if folded {
                let mut lines = wrap(&cells[n], cells_max, 0).into_iter();
                let first = lines.next().unwrap_or_default();
                more = lines.map(|line| format!("{}{line}", " ".repeat(begins))).collect();
                Cow::Owned(first)
            } else {
                cut(&cells[n], cells_max)
            };
            let pad = " ".repeat(cells_max.saturating_sub(width(&text)));
            let is_state = is_coloured && column.title == "STATE";
            let text = if is_state { Cow::Owned(paint(&text)) } else { text };
            let gap = if place == 0 { "" } else { "  " };
            line += gap;
            line += &if column.is_right { format!("{pad}{text}") } else { format!("{text}{pad}") };
            begins += cells_max + GAP;
        }
        std::iter::once(line.trim_end().to_owned()).chain(more).collect()
    }
}

/// The columns that are shown in that room, with their widths.
fn layout(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> Vec<Shown> {
    let mut wanted: Vec<usize> = columns.iter().map(|column| width(&column.title)).collect();
    for row in rows {
        for (wanted, cell) in wanted.iter_mut().zip(row) {
            *wanted = width(cell).max(*wanted);
        }
    }
    let Some(room) = room else {
        return wanted.into_iter().enumerate().map(|(column, width)| Shown { column, width }).collect();
    };
    let least: Vec<usize> = columns
        .iter()
        .zip(&wanted)
        .map(|(column, wanted)| {
            column.least.map_or(*wanted, |least| least.max(width(&column.title)).min(*wanted))
        })
        .collect();
    let mut places: Vec<usize> = (0..columns.len()).collect();
    let needed = |places: &[usize]| places.iter().map(|n| least[*n] + GAP).sum::<usize>().saturating_sub(GAP);
    while places.len() > 1 && needed(&places) > room {
        let first = places.iter().enumerate().max_by_key(|(at, n)| {
            let is_told =
                columns[**n].rank == 0 || rows.iter().any(|row| !matches!(row[**n].as_str(), "" | "-"));
            (if is_told { columns[**n].rank } else { u8::MAX }, *at)
        });
        let first = first.map_or(0, |(at, _)| at);
        places.remove(first);
    }
    let mut spare = room.saturating_sub(needed(&places));
    let mut shown: Vec<Shown> =
        places.iter().map(|n| Shown { column: *n, width: least[*n].min(room) }).collect();
    // All texts that are longer get the same part of the room that is left.
    while spare > 0 {
        let before = spare;
        for Shown { column, width } in &mut shown {
            if spare > 0 && *width < wanted[*column] {
                *width += 1;
                spare -= 1;
            }
        }
        if spare == before {
            break;
        }
    }
    shown
}

/// The order of two cells of a column. What is unknown comes last.
fn compare(a: &Cell, b: &Cell, is_descending: bool) -> Ordering {
    let order = match (a.key, b.key) {
        (SortKey::Unknown, SortKey::Unknown) => return Ordering::Equal,
        (SortKey::Unknown, _) => return Ordering::Greater,
        (_, SortKey::Unknown) => return Ordering::Less,
        (SortKey::Number(a), SortKey::Number(b)) => a.total_cmp(&b),
        (SortKey::Number(_), SortKey::Text) => Ordering::Less,
        (SortKey::Text, SortKey::Number(_)) => Ordering::Greater,
        (SortKey::Text, SortKey::Text) => a.text.cmp(&b.text),
    };
    if is_descending { order.reverse() } else { order }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(rows: Vec<Vec<Cell>>) -> Grid {
        let columns = vec![
            Column::whole("ID", 0),
            Column::whole("STATE", 0),
            Column::text("NAME", 1, 6),
            Column::whole("TOOK", 2),
        ];
        Grid { columns, rows, empty: "none" }
    }

    fn row(cells: [&str; 3], took: Option<(&str, f64)>) -> Vec<Cell> {
        let took = took.map(|(text, number)| Cell::figure(text, number));
        cells.into_iter().map(Cell::from).chain([Cell::from(took)]).collect()
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn columns_line_up_without_borders() {
        let grid =
            grid(vec![row(["1", "queued", "a"], None), row(["12", "ready", "b c"], Some(("1 s", 1.0)))]);
        assert_eq!(
            plain(&grid.render(None)),
            "ID  STATE   NAME  TOOK\n1   queued  a     -\n12  ready   b c   1 s\n"
        );
    }

    #[test]
    fn states_are_coloured_and_nothing_else_changes() {
        let painted = grid(vec![row(["1", "failed", "failed"], None)]).render(None);
        assert_ne!(painted, plain(&painted));
        assert_eq!(painted.matches("\u{1b}[31m").count(), 1);
        assert!(plain(&painted).lines().nth(1).unwrap().starts_with("1   failed  failed"));
    }

    #[test]
    fn columns_share_the_room_and_the_least_important_go_first() {
        let grid = grid(vec![row(["1", "failed", "a-name-that-is-long"], Some(("1.0 s", 1.0)))]);
        let at = |room| plain(&grid.render(Some(room)));
        assert_eq!(at(80), plain(&grid.render(None)));
        assert_eq!(at(26), "ID  STATE   NAME     TOOK\n1   failed  a-name…  1.0 s\n");
        assert_eq!(at(20), "ID  STATE   NAME\n1   failed  a-name-…\n");
        assert_eq!(at(17), "ID  STATE\n1   failed\n");
        assert_eq!(at(5), "ID\n1\n");
        let unknown = Grid { rows: vec![row(["1", "failed", "-"], Some(("1.0 s", 1.0)))], ..grid };
        assert_eq!(plain(&unknown.render(Some(18))), "ID  STATE   TOOK\n1   failed  1.0 s\n");
    }

    #[test]
    fn the_last_column_may_go_on_in_further_lines() {
        let columns = vec![Column::whole("CHECK", 0), Column::text("DETAIL", 0, 10).folded()];
        let grid = Grid { columns, rows: vec![vec!["a".into(), "one two three four".into()]], empty: "" };
        assert_eq!(grid.render(Some(17)), "CHECK  DETAIL\na      one two\n       three four\n");
        assert_eq!(grid.render(None), "CHECK  DETAIL\na      one two three four\n");
    }

    #[test]
    fn rows_are_sorted_by_what_they_mean() {
        let mut grid = grid(vec![
            row(["2", "b", "x"], Some(("1m 00s", 60_000.0))),
            row(["1", "a", "y"], None),
            row(["3", "a", "z"], Some(("9.0 s", 9_000.0))),
        ]);
        let order = |grid: &Grid, by: &str| grid.order(&by.parse().unwrap());
        assert_eq!(order(&grid, "took").unwrap(), [2, 0, 1]);
        assert_eq!(order(&grid, "TOOK:desc").unwrap(), [0, 2, 1], "what is unknown stays last");
        assert_eq!(order(&grid, "state:asc").unwrap(), [1, 2, 0], "equal rows keep their order");
        let error = order(&grid, "size").unwrap_err();
        assert!(error.message().contains("the columns are id, state, name, took"), "{}", error.message());
        assert!("took:up".parse::<SortBy>().is_err());
        grid.arrange(&[2, 0]);
        assert_eq!(plain(&grid.render(None)).lines().count(), 3);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_room(
            cells in prop::collection::vec(prop::collection::vec("\\PC{0,24}", 4), 0..5),
            least in prop::collection::vec(prop::option::of(0_usize..12), 4),
            room in 1_usize..60,
        ) {
            let titles = ["ID", "LONG TITLE", "A", "NOTE"];
            let columns = titles.iter().zip(least).zip([0, 3, 1, 2]).map(|((title, least), rank)| match least {
                Some(least) => Column::text(*title, rank, least),
                None => Column::whole(*title, rank),
            });
            let rows: Vec<Vec<Cell>> =
                cells.into_iter().map(|row| row.into_iter().map(Cell::from).collect()).collect();
            let grid = Grid { columns: columns.collect(), rows, empty: "" };
            for line in grid.lines(Some(room)) {
                prop_assert!(width(&plain(&line)) <= room, "{:?}", line);
            }
        }
    }
}
