//! What passes from the source of a copy to its target: rows in batches of bounded size.

use super::tables::Cell;

/// Rows of a batch.
const ROWS_MAX: usize = 1_000;
/// Bytes of texts and bodies after which a batch ends.
const BATCH_BYTES: usize = 8 << 20;

/// What passes from the source to the target.
pub enum Parcel {
    /// Rows of a table, by its place in [`TABLES`](super::tables::TABLES).
    Rows(usize, Vec<Vec<Cell>>),
    /// Everything was read. Without this the target keeps nothing.
    End,
}

/// Collects rows into batches.
#[derive(Default)]
pub struct Batch {
    rows: Vec<Vec<Cell>>,
    bytes: usize,
}

impl Batch {
    /// Adds a row; true if the batch is full.
    pub fn add(&mut self, row: Vec<Cell>) -> bool {
        self.bytes += row.iter().map(Cell::bytes).sum::<usize>();
        self.rows.push(row);
        self.rows.len() >= ROWS_MAX || self.bytes >= BATCH_BYTES
    }

    /// The batch as a parcel; `None` if it is empty.
    pub fn take(&mut self, table: usize) -> Option<Parcel> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        (!rows.is_empty()).then_some(Parcel::Rows(table, rows))
    }
}
