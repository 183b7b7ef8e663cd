//! OpenCue's tables in our own words: for tests, and for a farm that starts without Cuebot.

/// Tables with their columns, keys and triggers, to be run in this order in one transaction on an empty database.
pub const COMPACT: [&str; 3] = [
    include_str!("../schema/tables.sql"),
    include_str!("../schema/keys.sql"),
    include_str!("../schema/triggers.sql"),
];

/// Triggers that an operator may install: they notify the scheduler of work, so that it need not wait until it looks.
/// They fire where frames begin to wait, jobs begin to run, and hosts get room, and change nothing.
pub const WAKE: &str = include_str!("../schema/wake.sql");
