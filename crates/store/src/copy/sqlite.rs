//! The side of a copy that is an SQLite file.

use super::parcels::{Batch, Parcel};
use super::tables::{Cell, ENDED_TOTALS, META, TABLES, Table, USER_TOTALS};
use crate::error::StoreError;
use crate::sqlite::Sqlite;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, TransactionBehavior, params_from_iter};
use tokio::sync::mpsc;

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Cell::Null => ValueRef::Null,
            Cell::Int(n) => ValueRef::Integer(*n),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Database { doing: "copied", source: Box::new(error) }
}

fn columns(table: &Table) -> String {
    let names = table.columns().into_iter().map(|column| format!("\"{}\"", column.sqlite));
    names.collect::<Vec<_>>().join(", ")
}

/// Reads everything as of one moment.
pub fn read_all(from: &Sqlite, sender: &mpsc::Sender<Parcel>) -> Result<(), StoreError> {
    let db = from.connection()?;
    let moment = db.unchecked_transaction().map_err(failed)?;
    for (number, table) in TABLES.iter().enumerate() {
        read_table(&db, number, table, sender)?;
    }
    moment.finish().map_err(failed)?;
    sender.blocking_send(Parcel::End).map_err(|_| StoreError::Closed)
}

fn read_table(
    db: &Connection,
    number: usize,
    table: &Table,
    sender: &mpsc::Sender<Parcel>,
) -> Result<(), StoreError> {
    let order = if table.order == "ROW" { "rowid" } else { table.order };
    let sql = format!("SELECT {} FROM {} ORDER BY {order}", columns(table), table.name);
    let mut statement = db.prepare(&sql).map_err(failed)?;
    let width = statement.column_count();
    let mut rows = statement.query([]).map_err(failed)?;
    let mut batch = Batch::default();
    while let Some(row) = rows.next().map_err(failed)? {
        let mut cells = Vec::with_capacity(width);
        for column in 0..width {
            cells.push(match row.get_ref(column).map_err(failed)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(n) => Cell::Int(n),
                ValueRef::Real(n) => Cell::Int(n as i64),
                ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
            });
        }
        if batch.add(cells)
            && let Some(parcel) = batch.take(number)
        {
            sender.blocking_send(parcel).map_err(|_| StoreError::Closed)?;
        }
    }
    match batch.take(number) {
        Some(parcel) => sender.blocking_send(parcel).map_err(|_| StoreError::Closed),
        None => Ok(()),
    }
}

/// Writes everything in one transaction; returns the rows of each table.
pub fn write_all(to: &Sqlite, mut parcels: mpsc::Receiver<Parcel>) -> Result<Vec<u64>, StoreError> {
    let mut db = to.connection()?;
    let at = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for table in TABLES.iter().filter(|table| table.name != META) {
        let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
        if at.query_row(&any, [], |row| row.get(0)).map_err(failed)? {
            return Err(StoreError::NotEmpty { store: to.path().display().to_string(), table: table.name });
        }
    }
    let mut counts = vec![0; TABLES.len()];
    loop {
        match parcels.blocking_recv() {
            // The source has failed, and says so.
            None => return Err(StoreError::Closed),
            Some(Parcel::End) => break,
            Some(Parcel::Rows(number, rows)) => {
                let table = &TABLES[number];
                counts[number] += rows.len() as u64;
                if [USER_TOTALS, ENDED_TOTALS].contains(&table.name) {
                    continue;
                }
                let places = vec!["?"; table.columns().len()].join(", ");
                let sql =
                    format!("INSERT OR REPLACE INTO {} ({}) VALUES ({places})", table.name, columns(table));
                let mut insert = at.prepare_cached(&sql).map_err(failed)?;
                for row in rows {
                    insert.execute(params_from_iter(row)).map_err(failed)?;
                }
            }
        }
    }
    at.commit().map_err(failed)?;
    Ok(counts)
}
