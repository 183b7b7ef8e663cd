//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all model::` runs one.

mod holders;
mod hostile;
mod model;
mod notes;
mod proto;
mod tree_directories;
mod tree_files;
mod tree_names;
mod tree_scan;
mod uploads;
