//! What the gateway adds to OpenCue's schema.

/// Triggers that an operator may install: they notify the scheduler of work, so that it need not wait until it looks.
/// They fire where frames begin to wait, jobs begin to run, and hosts get room, and change nothing.
pub const WAKE: &str = include_str!("../schema/wake.sql");
