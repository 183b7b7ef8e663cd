//! Random numbers for incarnations, identities and the jitter of pauses.

use std::fs::File;
use std::io::Read as _;

/// A random positive number that fits a signed 64-bit integer, for incarnations and identities.
pub fn fresh_number() -> u64 {
    let mut bytes = [0; 8];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if random.is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes =
            (now.map_or(0, |since| since.as_nanos() as u64) ^ u64::from(std::process::id())).to_le_bytes();
    }
    // SQL integers are signed, and 0 stands for no keeper.
    (u64::from_le_bytes(bytes) >> 1).max(1)
}
