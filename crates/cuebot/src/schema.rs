//! OpenCue's tables as a compact schema, for tests and for a farm that starts without Cuebot.

/// Tables with their columns, keys and triggers. They are run in this order, in one transaction, on an empty
/// database.
pub const COMPACT: [&str; 3] = [
    include_str!("../schema/tables.sql"),
    include_str!("../schema/keys.sql"),
    include_str!("../schema/triggers.sql"),
];
