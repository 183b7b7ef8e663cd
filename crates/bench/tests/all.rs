//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all cost::` runs one.

mod cost;
#[path = "../../store/tests/support/postgres.rs"]
mod database;
mod postgres;
mod small;
