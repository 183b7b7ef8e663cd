//! Which pending jobs are in memory. The store has all of them.

pub mod subqueues;
