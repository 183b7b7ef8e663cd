//! Numbers about load and entitlement: what machines report, how loaded that makes a worker, and to how much each queue is
//! entitled. Text and numbers in, numbers out; no files.

pub mod formula;
pub mod pressure;

pub use windlass_load_ledger::{ledger, share};
