//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all wire::` runs one.

mod chunks;
mod fuzz;
mod hints;
#[cfg(feature = "client")]
mod servers;
mod wire;
mod worker_proto;
