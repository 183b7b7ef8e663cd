//! Blobs that are compressed by zstd on their way. The store has them as they are without.
//!
//! A few bytes may become very many. So a blob is never larger than its digest says, one that grows beyond all measure is
//! refused before that, and a frame that wants a large window is not read.

use super::trouble::CacheTrouble;
use std::io::{self, Write};
use windlass_cas::BlobWriter;
use zstd::stream::write::{Decoder, Encoder};

/// The window that a frame may want, as a power of 2: what levels up to 15 use.
const WINDOW_LOG_MAX: u32 = 22;
pub(super) const WINDOW_BYTES_MAX: usize = 1 << WINDOW_LOG_MAX;
/// How many bytes may come of one, behind the first ones. Real files that grow more are zeros.
const GROWTH_MAX: u64 = 1_000;
const GROWTH_FREE_BYTES: u64 = 16 << 20;
/// How hard the server compresses. Networks are slower than that, and processors are other tasks'.
const LEVEL: i32 = 1;

/// Where the bytes of an upload go.
pub(super) enum UploadSink {
    Plain(Box<BlobWriter>),
    Zstd(Box<Decoder<'static, Grown<BlobWriter>>>),
}

impl UploadSink {
    /// For a blob of that size that comes compressed.
    pub fn zstd(writer: BlobWriter, size: u64) -> Result<UploadSink, CacheTrouble> {
        Ok(UploadSink::Zstd(Box::new(decoder(writer, size)?)))
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CacheTrouble> {
        match self {
            UploadSink::Plain(writer) => Ok(writer.write(bytes)?),
            UploadSink::Zstd(decoder) => {
                decoder.get_mut().taken += bytes.len() as u64;
                let written = decoder.write_all(bytes);
                written.map_err(|error| decoder.get_mut().why(error))
            }
        }
    }

    /// All bytes have come.
    pub fn commit(self, now_ms: u64) -> Result<(), CacheTrouble> {
        let writer = match self {
            UploadSink::Plain(writer) => *writer,
            UploadSink::Zstd(mut decoder) => {
                let done = decoder.do_finish();
                done.map_err(|error| decoder.get_mut().why(error))?;
                decoder.into_inner().to
            }
        };
        Ok(writer.commit(now_ms)?)
    }
}

fn decoder<T: ByteSink>(to: T, size: u64) -> io::Result<Decoder<'static, Grown<T>>> {
    let mut decoder = Decoder::new(Grown { to, size, taken: 0, made: 0, trouble: None })?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// What takes the bytes of a blob.
pub(super) trait ByteSink {
    fn take(&mut self, bytes: &[u8]) -> Result<(), CacheTrouble>;
}

impl ByteSink for BlobWriter {
    fn take(&mut self, bytes: &[u8]) -> Result<(), CacheTrouble> {
        Ok(self.write(bytes)?)
    }
}

impl ByteSink for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), CacheTrouble> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Bytes that were compressed, and how many they may become.
pub(super) struct Grown<T> {
    to: T,
    /// The size of the blob.
    size: u64,
    /// Compressed bytes, and what was made of them.
    taken: u64,
    made: u64,
    /// Why nothing more is taken.
    trouble: Option<CacheTrouble>,
}

impl<T: ByteSink> Grown<T> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), CacheTrouble> {
        self.made += bytes.len() as u64;
        if self.made > self.size {
            let why = format!("more than {} bytes came out of a compressed blob of that size", self.size);
            return Err(CacheTrouble::Bad(why));
        }
        if self.made > GROWTH_FREE_BYTES + GROWTH_MAX * self.taken {
            let why = format!("a compressed blob grows more than {GROWTH_MAX} times; send it as it is");
            return Err(CacheTrouble::Bad(why));
        }
        self.to.take(bytes)
    }

    fn why(&mut self, error: io::Error) -> CacheTrouble {
        let trouble = self.trouble.take();
        trouble
            .unwrap_or_else(|| CacheTrouble::Bad(format!("these bytes are not compressed by zstd: {error}")))
    }
}

impl<T: ByteSink> Write for Grown<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.take(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(trouble) => {
                self.trouble = Some(trouble);
                Err(io::Error::other("refused"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a small blob that came compressed.
pub(super) fn unpack(bytes: &[u8], size: u64) -> Result<Vec<u8>, CacheTrouble> {
    let mut decoder = decoder(Vec::new(), size)?;
    decoder.get_mut().taken = bytes.len() as u64;
    let done = decoder.write_all(bytes).and_then(|()| decoder.do_finish());
    done.map_err(|error| decoder.get_mut().why(error))?;
    Ok(decoder.into_inner().to)
}

/// A small blob, compressed.
pub(super) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(bytes, LEVEL)
}

/// Compresses a blob part by part.
pub(super) struct Packer(Encoder<'static, Vec<u8>>);

impl Packer {
    pub fn new() -> io::Result<Packer> {
        Encoder::new(Vec::new(), LEVEL).map(Packer)
    }

    /// What is to be sent for this part; empty where later parts are needed for it.
    pub fn pack(&mut self, part: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(part)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// What is to be sent at the end.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_packed_in_parts_is_unpacked() {
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut packer = Packer::new().unwrap();
        let mut packed = Vec::new();
        for part in bytes.chunks(70_000) {
            packed.extend(packer.pack(part).unwrap());
        }
        packed.extend(packer.finish().unwrap());
        assert!(packed.len() < bytes.len() / 2);
        assert_eq!(unpack(&packed, bytes.len() as u64).unwrap(), bytes);
    }

    #[test]
    fn what_grows_too_much_is_refused() {
        let said = |bytes: &[u8], size| unpack(bytes, size).unwrap_err().to_string();
        let zeros = vec![0; 64 << 20];
        let packed = pack(&zeros).unwrap();
        assert!(said(&packed, zeros.len() as u64).contains("1000 times"), "{} bytes", packed.len());
        let packed = pack(b"hello").unwrap();
        assert!(said(&packed, 4).contains("more than 4 bytes"));
        assert!(said(&packed[..packed.len() - 1], 5).contains("not compressed by zstd"), "it breaks off");
        assert_eq!(unpack(&packed, 6).unwrap(), b"hello", "that it is too short the digest tells");
        // A frame that wants a window of 128 MiB.
        let mut encoder = Encoder::new(Vec::new(), LEVEL).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(b"hello").unwrap();
        assert!(said(&encoder.finish().unwrap(), 5).contains("not compressed by zstd"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), size in 0..500_u64) {
            if let Ok(unpacked) = unpack(&bytes, size) {
                prop_assert!(unpacked.len() as u64 <= size);
            }
            let framed = [&[0x28, 0xb5, 0x2f, 0xfd][..], &bytes].concat();
            if let Ok(unpacked) = unpack(&framed, size) {
                prop_assert!(unpacked.len() as u64 <= size);
            }
        }

        #[test]
        fn what_is_packed_is_unpacked(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            prop_assert_eq!(unpack(&pack(&bytes).unwrap(), bytes.len() as u64).unwrap(), bytes);
        }
    }
}
