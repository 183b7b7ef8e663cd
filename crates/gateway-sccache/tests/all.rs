//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all wire::` runs one.

mod service;
mod wire;
