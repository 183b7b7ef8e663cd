#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod ledger;
pub mod share;

pub use ledger::{LedgerError, LoadAggregator, LoadLedger};
