//! The name of a blob: its SHA-256 and its size.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};

/// Bytes that are read at a time from what is hashed.
const PIECE_BYTES: usize = 1 << 16;
/// Characters of a refused name that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A blob's SHA-256 and its size in bytes. A hash with another size than its blob's names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    /// SHA-256 of the bytes.
    pub hash: [u8; 32],
    /// Number of the bytes.
    pub size: u64,
}

/// The reason why a text is not a digest.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("'{found}' is not a SHA-256; give 64 digits of 0-9 and a-f")]
    Hash { found: String },
    #[error("{found} is not a size in bytes; give 0 or more")]
    Size { found: i64 },
}

impl Digest {
    /// The blob without bytes, which every store has.
    pub const EMPTY: Digest = Digest {
        hash: [
            0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
            0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
        ],
        size: 0,
    };

    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest { hash: Sha256::digest(bytes).into(), size: bytes.len() as u64 }
    }

    /// The name of all that can be read from here on.
    pub fn of_reader(from: &mut impl Read) -> io::Result<Digest> {
        let mut hasher = Hasher::default();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(read) => hasher.update(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a digest as messages and names of files have it. Only lower case digits are taken, so each blob has one
    /// name.
    pub fn parse(hex: &str, size: i64) -> Result<Digest, DigestError> {
        let wrong = || DigestError::Hash { found: hex.chars().take(SHOWN_CHARS_MAX).collect() };
        let digits = <&[u8; 64]>::try_from(hex.as_bytes()).map_err(|_| wrong())?;
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else { return Err(wrong()) };
            *byte = (high << 4) | low;
        }
        let size = u64::try_from(size).map_err(|_| DigestError::Size { found: size })?;
        Ok(Digest { hash, size })
    }

    /// The hash as 64 digits in lower case.
    pub fn hex(&self) -> String {
        let digits = self.hash.iter().flat_map(|byte: &u8| [*byte >> 4, *byte & 15]);
        digits.map(|digit| char::from(HEX[usize::from(digit)])).collect()
    }
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hex(), self.size)
    }
}

/// Hashes and counts bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Hasher {
    sha: Sha256,
    size: u64,
}

impl Hasher {
    /// Takes the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// Bytes that were taken so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The name of all pieces together.
    pub fn finish(self) -> Digest {
        Digest { hash: self.sha.finalize().into(), size: self.size }
    }
}
