//! The tables of both databases, with the columns in which they differ.

/// A table and its columns.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [TableColumn],
    /// The columns by which its rows are read, so that rows that were added in an order are added in that order again.
    pub order: &'static str,
}

/// A column: its name in SQLite, and its name and kind in PostgreSQL.
pub struct TableColumn {
    pub sqlite: &'static str,
    pub postgres: &'static str,
    pub kind: CellKind,
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

/// A value.
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

const fn same(name: &'static str, kind: CellKind) -> TableColumn {
    TableColumn { sqlite: name, postgres: name, kind }
}

const fn int(name: &'static str) -> TableColumn {
    same(name, CellKind::Int)
}

const fn small(name: &'static str) -> TableColumn {
    same(name, CellKind::Small)
}

const fn flag(name: &'static str) -> TableColumn {
    same(name, CellKind::Bool)
}

const fn text(name: &'static str) -> TableColumn {
    same(name, CellKind::Text)
}

const SUBMITTER: TableColumn = TableColumn { sqlite: "user", postgres: "submitter", kind: CellKind::Text };
const ENDING: TableColumn = TableColumn { sqlite: "end", postgres: "ending", kind: CellKind::Small };

/// The totals of users, which SQLite counts by itself as jobs are inserted.
pub const USER_TOTALS: &str = "user_totals";
/// The numbers of ended jobs, which SQLite counts by itself as jobs are inserted.
pub const ENDED_TOTALS: &str = "ended_totals";
/// Numbers under names. A new store has one already.
pub const META: &str = "meta";

/// All tables, those of the engine and of the server.
pub const TABLES: [Table; 20] = [
    Table { name: META, columns: &[text("key"), int("value")], order: "key" },
    Table {
        name: "turns",
        columns: &[
            text("queue"),
            small("part"),
            SUBMITTER,
            int("band"),
            int("start"),
            int("frac"),
            int("rest"),
            int("weight"),
            int("task"),
            int("since"),
            int("flags"),
            int("ahead"),
            int("rate"),
            int("at"),
        ],
        order: "queue, part",
    },
    Table {
        name: "turn_clocks",
        columns: &[int("band"), text("queue"), int("time"), int("frac"), int("express_in"), int("charge")],
        order: "band, queue",
    },
    Table {
        name: "workers",
        columns: &[
            int("id"),
            text("name"),
            int("epoch"),
            int("incarnation"),
            flag("draining"),
            text("capacity"),
            text("attributes"),
            int("identity"),
            small("state"),
            int("lease_until"),
            text("note"),
        ],
        order: "id",
    },
    Table {
        name: "jobs",
        columns: &[
            int("id"),
            text("name"),
            text("queue"),
            SUBMITTER,
            text("key"),
            text("spec"),
            int("created"),
            small("state"),
            int("stop"),
            flag("held"),
            int("ended"),
            text("counts"),
            flag("parked"),
            text("back_offs"),
            text("done"),
            int("bytes"),
            same("priority", CellKind::Integer),
        ],
        order: "id",
    },
    Table {
        name: "bodies",
        columns: &[int("job"), same("step", CellKind::Integer), same("body", CellKind::Bytes)],
        order: "job, step",
    },
    Table {
        name: "tasks",
        columns: &[
            int("job"),
            int("idx"),
            small("state"),
            int("attempt"),
            int("failures"),
            int("losses"),
            int("worker"),
            int("epoch"),
            int("booked"),
            int("cpu"),
            int("memory"),
            ENDING,
            int("code"),
            text("why"),
            int("started"),
            int("finished"),
            int("cpu_ms"),
            int("peak"),
            int("out_bytes"),
            int("err_bytes"),
            int("disk"),
        ],
        order: "job, idx",
    },
    Table {
        name: "attempts",
        columns: &[
            int("job"),
            int("idx"),
            int("attempt"),
            int("worker"),
            int("epoch"),
            flag("late"),
            ENDING,
            int("code"),
            text("why"),
            int("started"),
            int("finished"),
            int("cpu_ms"),
            int("peak"),
            int("out_bytes"),
            int("err_bytes"),
            int("disk"),
        ],
        order: "ROW",
    },
    Table {
        name: "tokens",
        columns: &[
            text("id"),
            same("hash", CellKind::Bytes),
            text("role"),
            SUBMITTER,
            text("worker"),
            text("note"),
            int("created"),
            int("expires"),
            int("revoked"),
            text("serves"),
            text("for_users"),
            text("queue"),
        ],
        order: "id",
    },
    Table { name: "history", columns: &[text("signature"), text("samples"), int("at")], order: "signature" },
    Table {
        name: "queues",
        columns: &[
            text("name"),
            int("weight"),
            int("band"),
            int("quota_cpu"),
            int("burst_cpu"),
            text("paused"),
            text("users"),
            flag("turns"),
            text("user_weights"),
        ],
        order: "name",
    },
    Table {
        name: "limits",
        columns: &[text("name"), int("max"), int("per_worker"), text("busy_exits"), int("back_off_ms")],
        order: "name",
    },
    Table {
        name: "parked",
        columns: &[
            int("job"),
            text("queue"),
            int("class"),
            int("rank"),
            int("ranked"),
            int("ready"),
            int("tasks"),
            int("waiting"),
        ],
        order: "job",
    },
    Table {
        name: "parked_counts",
        columns: &[text("queue"), int("class"), int("jobs"), int("tasks"), int("waiting")],
        order: "queue, class",
    },
    Table { name: "foreign_jobs", columns: &[int("job"), flag("open"), text("doc")], order: "job" },
    Table { name: "foreign_hosts", columns: &[text("name"), text("doc")], order: "name" },
    Table { name: "deleted", columns: &[int("job")], order: "job" },
    Table { name: USER_TOTALS, columns: &[SUBMITTER, int("jobs"), int("bytes")], order: "1" },
    Table { name: ENDED_TOTALS, columns: &[small("state"), int("jobs")], order: "state" },
    Table {
        name: "series",
        columns: &[small("part"), int("step"), same("data", CellKind::Bytes)],
        order: "part, step",
    },
];
