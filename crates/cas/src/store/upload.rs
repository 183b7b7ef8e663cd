//! How a blob comes in: reserved, written beside the others, verified, and shown to readers when all of it is there.

use super::{Cas, Inner, seconds};
use crate::digest::{Digest, Hasher};
use crate::error::CasError;
use crate::files::{TempFile, is_file};
use crate::index::Space;
use crate::rows::statements::{self, NewBlob};

/// An upload under way. Dropped before [`BlobWriter::commit`] it leaves nothing.
pub struct BlobWriter {
    digest: Digest,
    space: Space,
    hasher: Hasher,
    sink: Sink,
    reservation: Reservation,
}

/// Where the bytes of an upload go.
enum Sink {
    /// A small blob's, up to their announced size.
    Memory(Vec<u8>),
    File(TempFile),
    /// Nowhere: the blob is there. They are only compared with its digest, so that who uploads it proves to have it.
    Known(KnownBlob),
}

/// A blob that is there, and is not evicted while it is uploaded again.
struct KnownBlob {
    cas: Cas,
    slot: u32,
}

impl Drop for KnownBlob {
    fn drop(&mut self) {
        self.cas.0.release(&[self.slot]);
    }
}

/// Room in the store, given back when it is dropped.
pub(super) struct Reservation {
    cas: Cas,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cas.0.index.lock().unreserve(self.bytes);
    }
}

impl Cas {
    /// Begins an upload, for which room of the digest's size is reserved. A blob that is there already is taken again,
    /// so that an upload tells nothing of other spaces and users. Its bytes are verified and not written.
    pub fn writer(&self, space: Space, digest: Digest) -> Result<BlobWriter, CasError> {
        let known = self.known(digest);
        let reservation = self.reserve(if known.is_some() { 0 } else { digest.size })?;
        let sink = if let Some(known) = known {
            Sink::Known(known)
        } else if is_file(digest) {
            Sink::File(self.0.files.temp()?)
        } else {
            Sink::Memory(Vec::with_capacity(digest.size as usize))
        };
        Ok(BlobWriter { digest, space, hasher: Hasher::default(), sink, reservation })
    }

    /// The blob, if it is there, held until this is dropped.
    fn known(&self, digest: Digest) -> Option<KnownBlob> {
        let mut index = self.0.index.lock();
        let slot = index.get(digest)?;
        index.hold(slot);
        Some(KnownBlob { cas: self.clone(), slot })
    }

    /// Uploads a blob whose bytes are in memory.
    pub fn put(&self, space: Space, digest: Digest, bytes: &[u8], now_ms: u64) -> Result<(), CasError> {
        let mut writer = self.writer(space, digest)?;
        writer.write(bytes)?;
        writer.commit(now_ms)
    }

    /// Takes room out of the limits, and evicts blobs for it if there is not enough.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, CasError> {
        let limits = self.0.limits;
        if bytes > limits.bytes {
            return Err(CasError::TooLarge { bytes, bytes_max: limits.bytes });
        }
        let given = self.0.index.lock().reserve(bytes, limits)?;
        if !given {
            self.0.make_room(bytes)?;
        }
        Ok(Reservation { cas: self.clone(), bytes })
    }
}

impl BlobWriter {
    /// Takes the next bytes. More than were announced are refused at once.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CasError> {
        let size = self.hasher.size() + bytes.len() as u64;
        if size > self.digest.size {
            return Err(CasError::Mismatch { expected: self.digest, bytes: size });
        }
        self.hasher.update(bytes);
        match &mut self.sink {
            Sink::Memory(all) => {
                all.extend_from_slice(bytes);
                Ok(())
            }
            Sink::File(temp) => temp.write(bytes),
            Sink::Known(_) => Ok(()),
        }
    }

    /// Bytes that were taken so far.
    pub fn written(&self) -> u64 {
        self.hasher.size()
    }

    /// Keeps the blob if the bytes are what the digest names. It is found from then on.
    pub fn commit(self, now_ms: u64) -> Result<(), CasError> {
        let BlobWriter { digest, space, hasher, mut sink, mut reservation } = self;
        let bytes = hasher.size();
        if hasher.finish() != digest {
            return Err(CasError::Mismatch { expected: digest, bytes });
        }
        if digest == Digest::EMPTY {
            return Ok(());
        }
        let cas = reservation.cas.clone();
        match &sink {
            Sink::Known(known) => return cas.0.keep_known(known.slot, digest, space, seconds(now_ms)),
            Sink::File(temp) => cas.0.files.finish(temp)?,
            Sink::Memory(_) => {}
        }
        cas.0.keep(digest, space, &mut sink, &mut reservation, seconds(now_ms))?;
        if is_file(digest) { cas.0.files.sync_name(digest) } else { Ok(()) }
    }
}

impl Inner {
    /// Keeps a verified blob, or adds the space to the one that is there.
    fn keep(
        &self,
        digest: Digest,
        space: Space,
        sink: &mut Sink,
        reservation: &mut Reservation,
        now_s: u32,
    ) -> Result<(), CasError> {
        let mut index = self.index.lock();
        let (slot, written_s) = loop {
            if let Some(slot) = index.get(digest) {
                index.hold(slot);
                drop(index);
                return self.share(slot, space, now_s);
            }
            if index.coming.insert(digest.hash) {
                break (index.claim(), index.stamp(now_s));
            }
            self.came.wait(&mut index);
        };
        drop(index);
        let body = match &*sink {
            Sink::Memory(bytes) => Some(bytes.as_slice()),
            Sink::File(_) | Sink::Known(_) => None,
        };
        let row = NewBlob { slot, digest, spaces: space.bit(), used_s: now_s, written_s, body };
        let kept = match self.rows.write("kept a blob", |db| statements::insert(db, &row)) {
            Ok(()) => self.show(slot, digest, space, sink, reservation, now_s),
            Err(error) => {
                self.index.lock().free(&[slot]);
                Err(error)
            }
        };
        self.index.lock().coming.remove(&digest.hash);
        self.came.notify_all();
        kept
    }

    /// Names the file of a blob whose row is there, and lets it be found.
    fn show(
        &self,
        slot: u32,
        digest: Digest,
        space: Space,
        sink: &mut Sink,
        reservation: &mut Reservation,
        now_s: u32,
    ) -> Result<(), CasError> {
        let names = self.names.lock();
        if let Sink::File(temp) = sink
            && let Err(error) = self.files.publish(temp, digest)
        {
            drop(names);
            // The upload's own error is the one to tell. Rows that stay are removed with the next ones.
            _ = self.remove_rows(&[slot]);
            return Err(error);
        }
        let mut index = self.index.lock();
        index.link(slot, digest, space.bit(), now_s);
        index.figures.reserved_bytes -= std::mem::take(&mut reservation.bytes);
        Ok(())
    }

    /// Adds the space to a blob that was uploaded again. One that a reader found damaged meanwhile is gone, and its bytes
    /// were not kept.
    fn keep_known(&self, slot: u32, digest: Digest, space: Space, now_s: u32) -> Result<(), CasError> {
        {
            let mut index = self.index.lock();
            if index.get(digest) != Some(slot) {
                return Err(CasError::Lost(digest));
            }
            index.hold(slot);
        }
        self.share(slot, space, now_s)
    }

    /// Adds a space to a blob that the caller holds, and lets go of it.
    fn share(&self, slot: u32, space: Space, now_s: u32) -> Result<(), CasError> {
        let is_in = self.index.lock().is_in(slot, space);
        let shared = if is_in {
            Ok(())
        } else {
            self.rows.write("shared a blob", |db| statements::add_spaces(db, slot, space.bit()))
        };
        let mut index = self.index.lock();
        if shared.is_ok() {
            index.add_space(slot, space.bit());
            index.touch(slot, now_s);
        }
        index.release(slot);
        shared
    }
}
