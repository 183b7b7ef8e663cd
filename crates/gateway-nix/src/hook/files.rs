//! Files of Nix, up to a bound.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Reads a file of at most this number of bytes.
pub fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}
