//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all model::` runs one.

mod hostile;
mod model;
mod proto;
mod uploads;
