//! A list of rows with a selection, an order and a filter. Only the rows in the window are laid out.
//!
//! - The selection stays with its row, by id, when rows are read again. If that row is gone, it stays at its place.
//! - The window always holds the selection, and never begins behind the last page.

use std::cmp::Ordering;
use windlass_api::state_word;

pub struct ColumnSpec {
    pub title: &'static str,
    /// Least width of the column in cells.
    pub width: u16,
    /// Its greatest width, to which it grows where there is room.
    pub most: u16,
    /// True for numbers, which stand at the right.
    pub right: bool,
    /// Columns of a greater rank are left out first where room is short.
    pub rank: u8,
}

pub trait Listed {
    /// The columns, in order.
    const COLUMNS: &'static [ColumnSpec];
    /// The id that tells rows apart.
    type Id: PartialEq + Clone;
    /// Id of the row, which stays while the row changes.
    fn id(&self) -> Self::Id;
    /// The field that a filter's key names; `None` for keys that the rows do not have.
    fn field(&self, key: &str) -> Option<&str>;
    /// The text in which a filter without a key is looked for.
    fn name(&self) -> &str;
    /// The order by a column.
    fn compare(&self, other: &Self, column: usize) -> Ordering;
}

/// Words that rows must have: a text is a part of the name, `KEY=VALUE` is a field with exactly that value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowFilter {
    /// As it was written.
    pub text: String,
}

impl RowFilter {
    /// The words with a key, and those without.
    pub fn words(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        self.text.split_whitespace().map(|word| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => (Some(key), value),
            _ => (None, word),
        })
    }

    /// True if the row has all words.
    pub fn passes<T: Listed>(&self, row: &T) -> bool {
        self.words().all(|(key, value)| match key {
            Some(key) => row
                .field(key)
                .is_some_and(|field| value.split(',').any(|one| one == field || state_word(one) == field)),
            None => row.name().contains(value),
        })
    }
}

/// A list of rows with its order, filter and selection.
pub struct RowList<T: Listed> {
    rows: Vec<T>,
    /// The rows that pass the filter, in order.
    order: Vec<usize>,
    selected: usize,
    top: usize,
    /// The column by which it is sorted; `None` is the order in which the rows were given.
    pub sort: Option<usize>,
    pub reversed: bool,
    filter: RowFilter,
}

impl<T: Listed> Default for RowList<T> {
    fn default() -> Self {
        let filter = RowFilter::default();
        RowList {
            rows: Vec::new(),
            order: Vec::new(),
            selected: 0,
            top: 0,
            sort: None,
            reversed: false,
            filter,
        }
    }
}

impl<T: Listed> RowList<T> {
    /// All rows, those that the filter hides too.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Changes the rows, then sorts and filters them again.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let kept = self.selected().map(Listed::id);
        let changed = change(&mut self.rows);
        self.arrange(kept);
        changed
    }

    /// Changes rows where neither their order nor what the filter shows depends on the change.
    pub fn put(&mut self, change: impl FnOnce(&mut [T])) {
        change(&mut self.rows);
    }

    pub fn set_filter(&mut self, text: &str) {
        let kept = self.selected().map(Listed::id);
        self.filter = RowFilter { text: text.to_owned() };
        self.arrange(kept);
    }

    pub fn filter(&self) -> &RowFilter {
        &self.filter
    }

    /// Sorts by the next column, and after the last one not at all.
    pub fn sort_further(&mut self) {
        let kept = self.selected().map(Listed::id);
        let next = self.sort.map_or(0, |column| column + 1);
        self.sort = (next < T::COLUMNS.len()).then_some(next);
        self.arrange(kept);
    }

    pub fn reverse(&mut self) {
        let kept = self.selected().map(Listed::id);
        self.reversed = !self.reversed;
        self.arrange(kept);
    }

    fn arrange(&mut self, kept: Option<T::Id>) {
        let passing = self.rows.iter().enumerate().filter(|(_, row)| self.filter.passes(*row));
        self.order = passing.map(|(place, _)| place).collect();
        if let Some(column) = self.sort {
            let rows = &self.rows;
            self.order.sort_by(|a, b| rows[*a].compare(&rows[*b], column));
        }
        if self.reversed {
            self.order.reverse();
        }
        let found = kept.and_then(|id| self.order.iter().position(|place| self.rows[*place].id() == id));
        self.selected = found.unwrap_or(self.selected).min(self.order.len().saturating_sub(1));
    }

    /// Number of rows that pass the filter.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The selected row; `None` if there are no rows.
    pub fn selected(&self) -> Option<&T> {
        self.order.get(self.selected).map(|place| &self.rows[*place])
    }

    /// The place of the selected row among those that pass the filter.
    pub fn place(&self) -> usize {
        self.selected
    }

    /// Selects the row that is `rows` further down; up if it is negative.
    pub fn step(&mut self, rows: isize) {
        self.selected = self.selected.saturating_add_signed(rows).min(self.order.len().saturating_sub(1));
    }

    pub fn select_first(&mut self) {
        self.selected = 0;
    }

    /// Moves the window so that it holds the selection; `height` is in rows.
    pub fn settle(&mut self, height: usize) {
        let height = height.max(1);
        let last_top = self.order.len().saturating_sub(height);
        self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(height)).min(last_top);
    }

    /// The rows in a window of that height, and whether each is selected.
    pub fn window(&self, height: usize) -> impl Iterator<Item = (bool, &T)> {
        let places = self.order.iter().enumerate().skip(self.top).take(height);
        places.map(|(at, place)| (at == self.selected, &self.rows[*place]))
    }

    /// The place of the first row of the window.
    pub fn top(&self) -> usize {
        self.top
    }
}

/// Columns with their widths, as far as they fit side by side with one space between.
pub fn fit_columns(columns: &[ColumnSpec], width: u16) -> Vec<(usize, u16)> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| {
        shown.iter().map(|n| u32::from(columns[*n].width) + 1).sum::<u32>().saturating_sub(1)
    };
    while shown.len() > 1 && needed(&shown) > u32::from(width) {
        // Of equal ranks the last goes first.
        let least = shown.iter().enumerate().max_by_key(|(at, n)| (columns[**n].rank, *at)).map(|(at, _)| at);
        shown.remove(least.unwrap_or_default());
    }
    let mut fitted: Vec<(usize, u16)> = shown.iter().map(|n| (*n, columns[*n].width.min(width))).collect();
    let mut spare = u32::from(width).saturating_sub(needed(&shown));
    // All columns that may grow do so evenly.
    while spare > 0 {
        let before = spare;
        for (n, width) in &mut fitted {
            if spare > 0 && *width < columns[*n].most {
                *width += 1;
                spare -= 1;
            }
        }
        if spare == before {
            break;
        }
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Numbered(u32, String);

    impl Listed for Numbered {
        const COLUMNS: &'static [ColumnSpec] = &[
            ColumnSpec { title: "N", width: 4, most: 4, right: true, rank: 0 },
            ColumnSpec { title: "NAME", width: 5, most: 15, right: false, rank: 1 },
        ];
        type Id = u32;
        fn id(&self) -> u32 {
            self.0
        }
        fn field(&self, key: &str) -> Option<&str> {
            (key == "name").then_some(self.1.as_str())
        }
        fn name(&self) -> &str {
            &self.1
        }
        fn compare(&self, other: &Self, column: usize) -> Ordering {
            if column == 0 { self.0.cmp(&other.0) } else { self.1.cmp(&other.1) }
        }
    }

    fn list(numbers: &[u32]) -> RowList<Numbered> {
        let mut list = RowList::default();
        list.change(|rows| rows.extend(numbers.iter().map(|n| Numbered(*n, format!("n{}", n % 3)))));
        list
    }

    fn shown(list: &RowList<Numbered>) -> Vec<u32> {
        list.window(usize::MAX).map(|(_, row)| row.0).collect()
    }

    #[test]
    fn the_selection_stays_with_its_row() {
        let mut list = list(&[5, 3, 9]);
        list.step(1);
        list.sort_further();
        assert_eq!((shown(&list), list.selected().unwrap().0), (vec![3, 5, 9], 3));
        list.reverse();
        list.change(|rows| rows.push(Numbered(4, "new".to_owned())));
        assert_eq!((shown(&list), list.selected().unwrap().0), (vec![9, 5, 4, 3], 3));
        list.change(|rows| rows.retain(|row| row.0 != 3));
        assert_eq!(list.selected().unwrap().0, 4);
        list.change(Vec::clear);
        assert!(list.selected().is_none());
        list.settle(0);
    }

    #[test]
    fn a_filter_has_texts_and_fields() {
        let mut list = list(&[0, 1, 2, 3]);
        list.set_filter("n0");
        assert_eq!(shown(&list), [0, 3]);
        list.set_filter("n name=n1,n2");
        assert_eq!(shown(&list), [1, 2]);
        list.set_filter("colour=red");
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn columns_share_the_room_and_the_least_important_go_first() {
        assert_eq!(fit_columns(Numbered::COLUMNS, 18), [(0, 4), (1, 13)]);
        assert_eq!(fit_columns(Numbered::COLUMNS, 30), [(0, 4), (1, 15)]);
        assert_eq!(fit_columns(Numbered::COLUMNS, 10), [(0, 4), (1, 5)]);
        assert_eq!(fit_columns(Numbered::COLUMNS, 9), [(0, 4)]);
        assert_eq!(fit_columns(Numbered::COLUMNS, 2), [(0, 2)]);
    }

    proptest! {
        #[test]
        fn the_window_holds_the_selection(
            count in 0_u32..60,
            moves in prop::collection::vec((0_usize..6, -50_isize..50, 0_usize..30), 0..20),
        ) {
            let mut list = list(&(0..count).collect::<Vec<_>>());
            for (what, by, height) in moves {
                match what {
                    0 => list.step(by),
                    1 => list.step(isize::MAX),
                    2 => list.select_first(),
                    3 => list.sort_further(),
                    4 => list.change(|rows| rows.truncate(by.unsigned_abs())),
                    _ => list.set_filter(if by > 0 { "n1" } else { "" }),
                }
                list.settle(height);
                let window: Vec<(bool, u32)> = list.window(height.max(1)).map(|(on, row)| (on, row.0)).collect();
                prop_assert_eq!(window.iter().filter(|(on, _)| *on).count(), usize::from(list.len() > 0));
                prop_assert!(window.len() == list.len().min(height.max(1)));
            }
        }
    }
}
