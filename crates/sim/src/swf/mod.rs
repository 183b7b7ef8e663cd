//! Recorded workloads in Standard Workload Format, replayed in virtual time: the same jobs through the real
//! engine under several settings, and beside it through two plain schedulers that know nothing of fairness.
//!
//! - [`Trace`] reads a trace, plain or packed with gzip, and [`write`](fn@write) writes one.
//! - [`Workload`] makes tasks of its jobs, for the machines of a [`Farm`].
//! - [`replay`] plays them through the engine, [`reference()`] through FIFO with or without backfill.
//! - [`Figures`] say what came of it.
//!
//! The format: <https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>.

mod farm;
mod figures;
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
pub use replay::replay;
pub use workload::{Omitted, Schedule, Work, Workload};
pub use write::write;
