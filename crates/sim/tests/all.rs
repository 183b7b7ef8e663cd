//! All tests of this crate as one program, which is linked once. Each file is a module: `--test all seeds::` runs one.

mod placement;
mod scripts;
mod seeds;
mod swf;
mod swf_gangs;
