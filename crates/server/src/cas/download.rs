//! Blobs that go out: in parts, of which one is read while the one before is sent.

use super::blobs::in_background;
use super::names::Packing;
use super::packing::Packer;
use super::places::PART_BYTES;
use super::trouble::CacheTrouble;
use crate::panics::in_request;
use crate::user_budget::UserShare;
use axum::body::Bytes;
use futures_util::{Stream, stream};
use std::fs::File;
use std::io::{Cursor, Read, Seek as _, SeekFrom};
use std::time::Duration;
use tokio::sync::mpsc;
use windlass_cas::Blob;

/// How long a client may take for one part. Those who hold a place and do not read make room for others.
pub(crate) const PART_PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of a blob that a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    pub offset: u64,
    /// `None` is to the end.
    pub limit: Option<u64>,
    pub packing: Packing,
}

impl Cut {
    /// All of it, as it is.
    pub const WHOLE: Cut = Cut { offset: 0, limit: None, packing: Packing::Plain };
}

/// The parts of a blob. They are read while this is asked for more, and the place is held as long as that.
pub(crate) async fn parts_of(
    blob: Blob,
    cut: Cut,
    place: UserShare,
) -> Result<impl Stream<Item = Result<Bytes, CacheTrouble>> + Send, CacheTrouble> {
    let source = in_background(move || BlobReading::open(blob, cut)).await?;
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(in_request(feed(source, sender, place)));
    Ok(stream::unfold(Some(receiver), |receiver: Option<mpsc::Receiver<SentPart>>| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(SentPart::Bytes(bytes)) => Some((Ok(bytes), Some(receiver))),
            Some(SentPart::End) => None,
            Some(SentPart::Failed(why)) => Some((Err(why), None)),
            // It gave up.
            None => Some((Err(CacheTrouble::Unread), None)),
        }
    }))
}

enum SentPart {
    Bytes(Bytes),
    End,
    Failed(CacheTrouble),
}

async fn feed(mut source: BlobReading, parts: mpsc::Sender<SentPart>, place: UserShare) {
    let _place = place;
    loop {
        let read = in_background(move || {
            let bytes = source.next()?;
            Ok((source, bytes))
        });
        let (part, rest) = match read.await {
            Ok((rest, Some(bytes))) => (SentPart::Bytes(bytes.into()), Some(rest)),
            Ok((_, None)) => (SentPart::End, None),
            Err(why) => (SentPart::Failed(why), None),
        };
        let sent = tokio::time::timeout(PART_PATIENCE, parts.send(part)).await;
        match (sent, rest) {
            (Ok(Ok(())), Some(rest)) => source = rest,
            // It is over, or the client is gone or does not read.
            _ => return,
        }
    }
}

/// What is left to be sent.
struct BlobReading {
    from: Box<dyn Read + Send>,
    left: u64,
    packer: Option<Packer>,
}

impl BlobReading {
    fn open(blob: Blob, Cut { offset, limit, packing }: Cut) -> Result<BlobReading, CacheTrouble> {
        let rest = blob.size().saturating_sub(offset);
        let from: Box<dyn Read + Send> = match blob {
            Blob::Bytes(bytes) => {
                let mut from = Cursor::new(bytes);
                from.set_position(offset);
                Box::new(from)
            }
            Blob::File { file, .. } => Box::new(at(file, offset)?),
        };
        let packer = (packing == Packing::Zstd).then(Packer::new).transpose()?;
        Ok(BlobReading { from, left: limit.map_or(rest, |limit| limit.min(rest)), packer })
    }

    /// The next bytes to send; `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>, CacheTrouble> {
        while self.left > 0 {
            let mut part = vec![0; self.left.min(PART_BYTES as u64) as usize];
            self.from.read_exact(&mut part)?;
            self.left -= part.len() as u64;
            let Some(packer) = &mut self.packer else { return Ok(Some(part)) };
            let packed = packer.pack(&part)?;
            // Some parts only fill what zstd looks back on.
            if !packed.is_empty() {
                return Ok(Some(packed));
            }
        }
        Ok(self.packer.take().map(Packer::finish).transpose()?)
    }
}

fn at(mut file: File, offset: u64) -> std::io::Result<File> {
    if offset > 0 {
        file.seek(SeekFrom::Start(offset))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::packing::unpack;
    use super::*;
    use crate::user_budget::UserBudget;
    use futures_util::StreamExt as _;
    use std::io::Write as _;

    fn bytes() -> Vec<u8> {
        (0..100_000_u32).flat_map(|n| (n * 7).to_le_bytes()).collect()
    }

    fn file() -> (tempfile::TempDir, Blob) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob");
        File::create(&path).unwrap().write_all(&bytes()).unwrap();
        let blob = Blob::File { file: File::open(&path).unwrap(), path, size: bytes().len() as u64 };
        (dir, blob)
    }

    async fn sent(blob: Blob, cut: Cut) -> Vec<u8> {
        let place = UserBudget::new(1, 1, 1).share("ann", 1).await.unwrap();
        let parts = parts_of(blob, cut, place).await.unwrap();
        let parts: Vec<_> = parts.collect().await;
        parts.into_iter().flat_map(Result::unwrap).collect()
    }

    #[tokio::test]
    async fn what_is_asked_for_is_sent() {
        let all = bytes();
        assert!(all.len() > 2 * PART_BYTES);
        assert_eq!(sent(file().1, Cut::WHOLE).await, all);
        let cut = Cut { offset: 5, limit: Some(200_000), ..Cut::WHOLE };
        assert_eq!(sent(file().1, cut).await, all[5..200_005]);
        let small = |cut| sent(Blob::Bytes(b"hello".to_vec()), cut);
        assert_eq!(small(Cut { offset: 1, limit: Some(99), ..Cut::WHOLE }).await, b"ello");
        assert_eq!(small(Cut { offset: 5, ..Cut::WHOLE }).await, b"");
        let packed = sent(file().1, Cut { offset: 3, packing: Packing::Zstd, ..Cut::WHOLE }).await;
        assert_eq!(unpack(&packed, all.len() as u64).unwrap(), all[3..]);
    }

    #[tokio::test]
    async fn a_blob_that_breaks_off_is_an_error_and_not_a_short_blob() {
        let (dir, blob) = file();
        let file = File::options().write(true).open(dir.path().join("blob")).unwrap();
        file.set_len(PART_BYTES as u64 + 5).unwrap();
        let place = UserBudget::new(1, 1, 1).share("ann", 1).await.unwrap();
        let parts: Vec<_> = parts_of(blob, Cut::WHOLE, place).await.unwrap().collect().await;
        assert_eq!(parts.len(), 2);
        assert!(parts[0].is_ok() && matches!(parts[1], Err(CacheTrouble::Io(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_place() {
        let places = UserBudget::new(1, 1, 1);
        let place = places.share("ann", 1).await.unwrap();
        let (_dir, blob) = file();
        let unread = parts_of(blob, Cut::WHOLE, place).await.unwrap();
        let mut unread = std::pin::pin!(unread);
        // The place becomes free before this gives up.
        while places.share("ann", 1).await.is_none() {}
        assert!(unread.next().await.unwrap().is_ok(), "what was read before");
        assert!(matches!(unread.next().await, Some(Err(CacheTrouble::Unread))));
        assert!(unread.next().await.is_none());
    }
}
