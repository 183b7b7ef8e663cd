//! Numbers about load and entitlement: what machines report, how loaded that makes a worker, who is
//! entitled to how much. Text and numbers in, numbers out; no files.

pub mod formula;
pub mod pressure;

pub use windlass_load_ledger::{ledger, share};
