//! The tables of both databases, with the columns in which they differ.

pub struct Table {
    pub name: &'static str,
    /// As [`TableColumn::parse`] reads them.
    columns: &'static str,
    /// The columns by which its rows are read, so that rows that were added in an order are added in that order again.
    pub order: &'static str,
}

impl Table {
    /// Its columns, in one order for both databases.
    pub fn columns(&self) -> Vec<TableColumn> {
        self.columns.split_whitespace().map(TableColumn::parse).collect()
    }
}

/// A column: its name in SQLite, and its name and kind in PostgreSQL.
pub struct TableColumn {
    pub sqlite: &'static str,
    pub postgres: &'static str,
    pub kind: CellKind,
}

impl TableColumn {
    /// Reads `sqlite/postgres:kind`. One name is that of both, and without a kind it is a `bigint`.
    fn parse(text: &'static str) -> TableColumn {
        let (names, kind) = text.split_once(':').unwrap_or((text, "bigint"));
        let (sqlite, postgres) = names.split_once('/').unwrap_or((names, names));
        let kind = CellKind::ALL.into_iter().find(|known| known.sql() == kind);
        TableColumn { sqlite, postgres, kind: kind.expect("a kind of cells") }
    }
}

/// The type of a column in PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellKind {
    Int,
    Integer,
    Small,
    Bool,
    Text,
    Bytes,
}

impl CellKind {
    const ALL: [CellKind; 6] =
        [CellKind::Int, CellKind::Integer, CellKind::Small, CellKind::Bool, CellKind::Text, CellKind::Bytes];

    pub fn sql(self) -> &'static str {
        match self {
            CellKind::Int => "bigint",
            CellKind::Integer => "integer",
            CellKind::Small => "smallint",
            CellKind::Bool => "boolean",
            CellKind::Text => "text",
            CellKind::Bytes => "bytea",
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Null,
    /// Also true and false, as 1 and 0.
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    pub fn bytes(&self) -> usize {
        match self {
            Cell::Null | Cell::Int(_) => 8,
            Cell::Text(text) => text.len(),
            Cell::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The totals of users, which SQLite counts by itself as jobs are inserted.
pub const USER_TOTALS: &str = "user_totals";
/// The numbers of ended jobs, which SQLite counts by itself as jobs are inserted.
pub const ENDED_TOTALS: &str = "ended_totals";
/// Numbers under names. A new store has one already.
pub const META: &str = "meta";

/// All tables, those of the engine and of the server.
pub const TABLES: [Table; 22] = [
    Table { name: META, columns: "key:text value", order: "key" },
    Table {
        name: "turns",
        columns: "queue:text part:smallint user/submitter:text band start frac rest weight task since flags ahead \
            rate at",
        order: "queue, part",
    },
    Table {
        name: "turn_clocks",
        columns: "band queue:text time frac express_in charge",
        order: "band, queue",
    },
    Table {
        name: "workers",
        columns: "id name:text epoch incarnation draining:boolean capacity:text attributes:text identity \
            state:smallint lease_until note:text",
        order: "id",
    },
    Table {
        name: "jobs",
        columns: "id name:text queue:text user/submitter:text key:text spec:text created state:smallint stop \
            held:boolean ended counts:text parked:boolean back_offs:text done:text bytes priority:integer \
            cancels:text first_succeeded:text",
        order: "id",
    },
    Table { name: "bodies", columns: "job step:integer body:bytea", order: "job, step" },
    Table {
        name: "tasks",
        columns: "job idx state:smallint attempt failures losses worker epoch booked cpu memory \
            end/ending:smallint code why:text started finished cpu_ms peak out_bytes err_bytes disk",
        order: "job, idx",
    },
    Table {
        name: "attempts",
        columns: "job idx attempt worker epoch late:boolean end/ending:smallint code why:text started finished \
            cpu_ms peak out_bytes err_bytes disk booked",
        order: "ROW",
    },
    Table {
        name: "tokens",
        columns: "id:text hash:bytea role:text user/submitter:text worker:text note:text created expires revoked \
            serves:text for_users:text queue:text cache:text",
        order: "id",
    },
    Table { name: "history", columns: "signature:text samples:text at", order: "signature" },
    Table {
        name: "queues",
        columns: "name:text weight band quota_cpu burst_cpu paused:text users:text turns:boolean \
            user_weights:text jobserver:boolean",
        order: "name",
    },
    Table { name: "limits", columns: "name:text max per_worker busy_exits:text back_off_ms", order: "name" },
    Table { name: "parked", columns: "job queue:text class rank ranked ready tasks waiting", order: "job" },
    Table { name: "parked_counts", columns: "queue:text class jobs tasks waiting", order: "queue, class" },
    Table { name: "foreign_jobs", columns: "job open:boolean doc:text", order: "job" },
    Table { name: "foreign_hosts", columns: "name:text doc:text", order: "name" },
    Table { name: "deleted", columns: "job", order: "job" },
    Table { name: USER_TOTALS, columns: "user/submitter:text jobs bytes", order: "1" },
    Table { name: ENDED_TOTALS, columns: "state:smallint jobs", order: "state" },
    Table { name: "series", columns: "part:smallint step data:bytea", order: "part, step" },
    // The target gives numbers of its own, in the same order, and goes on behind them.
    Table { name: "notices", columns: "job user/submitter:text target:text body:text at", order: "ROW" },
    Table {
        name: "day_usage",
        columns: "day user/submitter:text queue:text cpu_ms tasks failed",
        order: "1, 2, 3",
    },
];
