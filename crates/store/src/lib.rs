//! Storage of jobs, tasks, workers, queues, limits and tokens: one interface over a store in memory, one in an SQLite
//! file and one in a PostgreSQL database, as an enum instead of a trait object.
//!
//! A store never decides. It applies the engine's writes, each guarded by the row that it expects, returns which of
//! them it refused, and answers reads. The server's shell commits and reads; the simulator does the same without a
//! server. [`Store::commit`] returns when the batch is durable (for [`Memory`], when it is applied). One suite, in
//! `tests/conformance.rs`, holds for all stores.
//!
//! Several servers may share a PostgreSQL database. `ownership` says which of them decides, and `mailbox` how they ask
//! each other.

mod codes;
mod copy;
mod done;
mod error;
mod gather;
mod join;
mod mailbox;
mod memory;
mod notices;
mod ownership;
mod postgres;
mod rows;
mod spec;
mod sqlite;
mod store;
mod turns;
mod usage;
mod view;

pub use copy::{CopiedTable, copy};
pub use done::{DoneRequest, DoneRow};
pub use error::{Cause, StoreError};
pub use mailbox::{
    ANSWERED, ASKED, Answered, Answers, AskId, Asked, Listener, Notice, RELAYED, TOKENS, WORK,
};
pub use memory::Memory;
pub use notices::{Beside, NewNotice, OwedNotice};
pub use ownership::{OwnerRow, Ownership, ServerId, ServerRow, ServerState};
pub use postgres::{Postgres, TlsDialer};
pub use sqlite::Sqlite;
pub use store::{
    Store, backup, clock_ahead_ms, failed_tasks, forget_notices, forget_usage, notices_arrive, owed_notices,
    shown_address, usage_since, weak_transport,
};
pub use usage::{AttemptUse, USAGE_OTHERS, USAGE_PAIRS_MAX, UsageKey, UsageRows, UsageSum};
pub use view::{
    AttemptView, EndedJob, EndedTotals, FOREIGN_NODE_NUMBERS, ForeignDocs, ForeignWrite, HISTORY_MAX,
    JobFilter, JobView, JobsPart, ParkedView, SeriesRow, Snapshot, StepBodies, StoredTask, TokenRecord,
    TokenWrite,
};
