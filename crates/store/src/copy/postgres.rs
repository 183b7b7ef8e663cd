//! The side of a copy that is a PostgreSQL database.

use super::parcels::{Batch, Parcel};
use super::tables::{Cell, CellKind, META, TABLES, Table};
use crate::error::StoreError;
use crate::postgres::{Postgres, Trouble};
use futures_util::TryStreamExt;
use std::pin::pin;
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// No server can claim the farm or commit meanwhile.
const BEGIN: &str = "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s';
    BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE shards IN EXCLUSIVE MODE";

fn failed(error: tokio_postgres::Error) -> StoreError {
    Trouble::Sql(error).while_it("copied")
}

fn columns(table: &Table) -> String {
    table.columns().iter().map(|column| column.postgres).collect::<Vec<_>>().join(", ")
}

/// Reads everything as of one moment.
pub async fn read_all(from: &Postgres, sender: &mpsc::Sender<Parcel>) -> Result<(), StoreError> {
    let connection = from.own_connection().await?;
    let client = &connection.client;
    client.batch_execute(BEGIN).await.map_err(failed)?;
    for (number, table) in TABLES.iter().enumerate() {
        let kinds: Vec<CellKind> = table.columns().iter().map(|column| column.kind).collect();
        let order = if table.order == "ROW" { "id" } else { table.order };
        let sql = format!("SELECT {} FROM {} ORDER BY {order}", columns(table), table.name);
        let none: [&(dyn ToSql + Sync); 0] = [];
        let mut rows = pin!(client.query_raw(&sql, none).await.map_err(failed)?);
        let mut batch = Batch::default();
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let cells = kinds.iter().enumerate().map(|(at, kind)| cell(&row, at, *kind));
            if batch.add(cells.collect())
                && let Some(parcel) = batch.take(number)
            {
                sender.send(parcel).await.map_err(|_| StoreError::Closed)?;
            }
        }
        if let Some(parcel) = batch.take(number) {
            sender.send(parcel).await.map_err(|_| StoreError::Closed)?;
        }
    }
    client.batch_execute("COMMIT").await.map_err(failed)?;
    sender.send(Parcel::End).await.map_err(|_| StoreError::Closed)
}

fn cell(row: &Row, at: usize, kind: CellKind) -> Cell {
    let found = match kind {
        CellKind::Int => row.get::<_, Option<i64>>(at).map(Cell::Int),
        CellKind::Integer => row.get::<_, Option<i32>>(at).map(|n| Cell::Int(n.into())),
        CellKind::Small => row.get::<_, Option<i16>>(at).map(|n| Cell::Int(n.into())),
        CellKind::Bool => row.get::<_, Option<bool>>(at).map(|flag| Cell::Int(flag.into())),
        CellKind::Text => row.get::<_, Option<String>>(at).map(Cell::Text),
        CellKind::Bytes => row.get::<_, Option<Vec<u8>>>(at).map(Cell::Bytes),
    };
    found.unwrap_or(Cell::Null)
}

/// Writes everything in one transaction; returns the rows of each table.
pub async fn write_all(to: &Postgres, mut parcels: mpsc::Receiver<Parcel>) -> Result<Vec<u64>, StoreError> {
    let connection = to.own_connection().await?;
    let client = &connection.client;
    client.batch_execute(BEGIN).await.map_err(failed)?;
    for table in TABLES.iter().filter(|table| table.name != META) {
        let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
        if client.query_one(&any, &[]).await.map_err(failed)?.get(0) {
            return Err(StoreError::NotEmpty { store: to.shown().to_owned(), table: table.name });
        }
    }
    let mut counts = vec![0; TABLES.len()];
    loop {
        match parcels.recv().await {
            // The source has failed, and says so.
            None => return Err(StoreError::Closed),
            Some(Parcel::End) => break,
            Some(Parcel::Rows(number, rows)) => {
                counts[number] += rows.len() as u64;
                insert(client, &TABLES[number], &rows).await?;
            }
        }
    }
    client.batch_execute("COMMIT; ANALYZE").await.map_err(failed)?;
    Ok(counts)
}

async fn insert(client: &Client, table: &Table, rows: &[Vec<Cell>]) -> Result<(), StoreError> {
    let kinds = || table.columns().into_iter().map(|column| column.kind).enumerate();
    let arrays = kinds().map(|(at, kind)| format!("${}::{}[]", at + 1, kind.sql()));
    let mut sql = format!(
        "INSERT INTO {} ({}) SELECT * FROM unnest({})",
        table.name,
        columns(table),
        arrays.collect::<Vec<_>>().join(", ")
    );
    if table.name == META {
        sql.push_str(" ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    }
    let values: Vec<Box<dyn ToSql + Sync + Send>> = kinds().map(|(at, kind)| array(rows, at, kind)).collect();
    let values: Vec<&(dyn ToSql + Sync)> =
        values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
    client.execute(&sql, &values).await.map(|_| ()).map_err(failed)
}

fn array(rows: &[Vec<Cell>], at: usize, kind: CellKind) -> Box<dyn ToSql + Sync + Send> {
    let number = |row: &Vec<Cell>| match &row[at] {
        Cell::Int(n) => Some(*n),
        _ => None,
    };
    match kind {
        CellKind::Int => Box::new(rows.iter().map(number).collect::<Vec<Option<i64>>>()),
        CellKind::Integer => {
            Box::new(rows.iter().map(|row| number(row).map(|n| n as i32)).collect::<Vec<Option<i32>>>())
        }
        CellKind::Small => {
            Box::new(rows.iter().map(|row| number(row).map(|n| n as i16)).collect::<Vec<Option<i16>>>())
        }
        CellKind::Bool => {
            Box::new(rows.iter().map(|row| number(row).map(|n| n != 0)).collect::<Vec<Option<bool>>>())
        }
        CellKind::Text => {
            let text = |row: &Vec<Cell>| match &row[at] {
                // PostgreSQL's texts have no NUL.
                Cell::Text(text) => Some(text.replace('\0', "\u{fffd}")),
                // SQLite keeps what it was given, whatever the column's type.
                Cell::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")),
                _ => None,
            };
            Box::new(rows.iter().map(text).collect::<Vec<Option<String>>>())
        }
        CellKind::Bytes => {
            let bytes = |row: &Vec<Cell>| match &row[at] {
                Cell::Bytes(bytes) => Some(bytes.clone()),
                Cell::Text(text) => Some(text.clone().into_bytes()),
                _ => None,
            };
            Box::new(rows.iter().map(bytes).collect::<Vec<Option<Vec<u8>>>>())
        }
    }
}
