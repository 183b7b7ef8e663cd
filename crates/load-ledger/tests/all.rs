//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all shares::` runs one.

mod ledger;
mod shares;
