//! Numbers about load and entitlement: what machines report, how loaded that makes a worker, who is
//! entitled to how much. Text and numbers in, numbers out; no files.

pub mod formula;
pub mod ledger;
pub mod pressure;
pub mod share;
