//! All tests of this crate as one program, which is linked once. Each file is a module:
//! `--test all chunks::` runs one.

mod chunks;
mod templates;
