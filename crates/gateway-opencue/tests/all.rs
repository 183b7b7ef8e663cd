//! All tests of this crate as one program, which is linked once. Each file is a module:
//! `--test all booking::` runs one.

mod board;
mod booking;
mod ends;
#[path = "../../cuebot/tests/farm/mod.rs"]
mod farm;
mod faults;
mod partitions;
mod planning;
#[path = "../../cuebot/tests/support/postgres.rs"]
mod postgres;
#[path = "support/rqd.rs"]
mod rqd;
#[path = "support/running.rs"]
mod running;
mod scheduler;
mod strays;
mod workers;
