//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all report::` runs one.

mod ends;
mod farm;
mod follow;
mod jobs;
mod locks;
#[path = "support/postgres.rs"]
mod postgres;
mod proto;
mod report;
mod schema;
mod shows;
mod spec;
