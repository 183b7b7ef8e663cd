//! The side of a copy that is a PostgreSQL database.

use super::tables::{Cell, CellKind, META, TABLES, Table, TableColumn};
use super::{Batch, Parcel};
use crate::postgres::Trouble;
use crate::{Postgres, StoreError};
use futures_util::TryStreamExt;
use std::pin::pin;
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// No server can claim a shard or commit meanwhile.
const BEGIN: &str = "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s';
    BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE shards IN EXCLUSIVE MODE";

fn failed(error: tokio_postgres::Error) -> StoreError {
    Trouble::Sql(error).while_it("copied")
}

fn columns(table: &Table) -> String {
    table.columns.iter().map(|column| column.postgres).collect::<Vec<_>>().join(", ")
}

/// What becomes of the shards of a divided farm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopiedShards {
    /// The copy has the same.
    Kept,
    /// The copy has one, with all workers.
    Joined,
}

/// Jobs that hang on more than one engine: those with tasks in another shard than their home, or on the way between two,
/// and those of another home than the first shard.
const SPREAD_JOBS: &str = "SELECT (SELECT count(DISTINCT job) FROM delegated)
    + (SELECT count(*) FROM jobs WHERE state = 0 AND home <> 1)";

/// The statement that reads a table. Of a farm whose shards are joined it leaves out what only shards have: messages, of
/// which none moves tasks where none are away; turns and counts of other shards than the first, whose keys begin with a
/// mark; and the row of a worker that went to another shard, whose name another row has now.
fn select(table: &Table, shards: CopiedShards) -> String {
    let order = if table.order == "ROW" { "id" } else { table.order };
    let joins = shards == CopiedShards::Joined;
    let name = |column: &TableColumn| match column.postgres {
        "shard" | "home" if joins => "1",
        name => name,
    };
    let columns = table.columns.iter().map(name).collect::<Vec<_>>().join(", ");
    let rows = match table.name {
        _ if !joins => "true",
        "messages" | "messages_heard" | "delegated" | "farm_shards" => "false",
        "turns" | "turn_clocks" | "parked" | "parked_counts" => "left(queue, 1) <> chr(31)",
        "workers" => {
            "NOT EXISTS (SELECT 1 FROM workers AS other WHERE workers.state = 4 AND other.name = workers.name
                AND (other.state <> 4 OR other.id > workers.id) AND other.id <> workers.id)"
        }
        _ => "true",
    };
    format!("SELECT {columns} FROM {} WHERE {rows} ORDER BY {order}", table.name)
}

/// Reads everything as of one moment.
///
/// # Errors
/// [`StoreError::Divided`] if shards are to be joined and tasks are between them.
pub async fn read_all(
    from: &Postgres,
    shards: CopiedShards,
    sender: &mpsc::Sender<Parcel>,
) -> Result<(), StoreError> {
    let connection = from.own_connection().await?;
    let client = &connection.client;
    client.batch_execute(BEGIN).await.map_err(failed)?;
    if shards == CopiedShards::Joined {
        let jobs: i64 = client.query_one(SPREAD_JOBS, &[]).await.map_err(failed)?.get(0);
        if jobs > 0 {
            return Err(StoreError::Divided { database: from.shown().to_owned(), jobs: jobs as u64 });
        }
    }
    for (number, table) in TABLES.iter().enumerate() {
        let sql = select(table, shards);
        let none: [&(dyn ToSql + Sync); 0] = [];
        let mut rows = pin!(client.query_raw(&sql, none).await.map_err(failed)?);
        let mut batch = Batch::default();
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let cells = table.columns.iter().enumerate().map(|(at, column)| cell(&row, at, column.kind));
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
    let arrays = table.columns.iter().enumerate();
    let arrays = arrays.map(|(at, column)| format!("${}::{}[]", at + 1, column.kind.sql()));
    let mut sql = format!(
        "INSERT INTO {} ({}) SELECT * FROM unnest({})",
        table.name,
        columns(table),
        arrays.collect::<Vec<_>>().join(", ")
    );
    if table.name == META {
        sql.push_str(" ON CONFLICT (key) DO UPDATE SET value = excluded.value");
    }
    let values: Vec<Box<dyn ToSql + Sync + Send>> =
        table.columns.iter().enumerate().map(|(at, column)| array(rows, at, column.kind)).collect();
    let values: Vec<&(dyn ToSql + Sync)> =
        values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
    client.execute(&sql, &values).await.map(|_| ()).map_err(failed)
}

/// A column of these rows.
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
