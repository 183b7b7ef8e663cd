//! Recorded workloads in the Standard Workload Format, replayed in virtual time. The same jobs go through the
//! real engine with several settings, and through two baselines without any notion of fairness. `windlass
//! sim` uses this module.
//!
//! - [`Trace`] reads a trace, plain or gzipped, and [`write`](fn@write) writes one.
//! - [`Workload`] makes tasks of its jobs, for the machines of a [`Farm`].
//! - [`replay`] and [`replay_estimating`] run them through the engine, [`reference()`] through FIFO with or without backfill.
//! - [`Figures`] measure the outcome.
//!
//! The format: <https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>.

mod farm;
mod figures;
mod matching;
mod nodes;
mod read;
mod reference;
mod replay;
mod workload;
mod write;

pub use farm::{BadFarm, Farm, MachineGroup};
pub use figures::{Figures, Part, Spread};
pub use nodes::{BadNodes, NodeSpec};
pub use read::{BadLine, Record, Trace, TraceError};
pub use reference::{Baseline, reference};
pub use replay::{Turns, replay, replay_estimating};
pub use workload::{Estimate, Omitted, Schedule, Work, WorkPart, Workload};
pub use write::write;
