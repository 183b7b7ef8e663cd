//! All tests of this crate as one program, which is linked once. Each file is a module:
//! `--test all conformance::` runs one.

mod conformance;
mod copy;
mod done;
mod ends;
mod figures;
mod invariants;
mod joined;
mod large_jobs;
mod lists;
mod lookups;
mod mailbox;
mod notices;
mod parked;
mod plans;
mod room;
mod same;
mod shared;
mod support;
mod tls;
mod turns;
mod turns_kept;
mod upgrade;
mod usage;
