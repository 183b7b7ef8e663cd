//! Bodies whose digests nobody says before they have come: values of keys.

use super::blobs::{SpaceBlobs, in_background};
use super::places::PART_BYTES;
use super::trouble::CacheTrouble;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_cas::{Digest, Hasher};

/// Names of files. The store's own are in another directory.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Bytes that have come. A small body stays in memory, a larger one goes to a file without a name.
pub(super) struct Spool {
    dir: PathBuf,
    hasher: Hasher,
    part: Vec<u8>,
    file: Option<File>,
}

impl Spool {
    /// Files are made in that directory, which is on the disk of the store.
    pub fn new(dir: PathBuf) -> Spool {
        Spool { dir, hasher: Hasher::default(), part: Vec::new(), file: None }
    }

    pub async fn add(mut self, mut bytes: &[u8]) -> Result<Spool, CacheTrouble> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART_BYTES {
                self = in_background(move || self.write_part()).await?;
            }
        }
        Ok(self)
    }

    /// All has come. The bytes become a blob.
    pub fn keep(mut self, blobs: &SpaceBlobs) -> Result<Digest, CacheTrouble> {
        let Some(mut file) = self.file.take() else {
            let digest = Digest::of(&self.part);
            blobs.put(digest, &self.part)?;
            return Ok(digest);
        };
        self.hasher.update(&self.part);
        file.write_all(&self.part)?;
        file.rewind()?;
        let digest = self.hasher.finish();
        let mut writer = blobs.writer(digest)?;
        let mut part = vec![0; PART_BYTES];
        loop {
            match file.read(&mut part)? {
                0 => break,
                count => writer.write(&part[..count])?,
            }
        }
        writer.commit(blobs.now_ms)?;
        Ok(digest)
    }

    fn write_part(mut self) -> Result<Spool, CacheTrouble> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => nameless(&self.dir)?,
        };
        file.write_all(&self.part)?;
        self.hasher.update(&self.part);
        self.part.clear();
        Ok(Spool { file: Some(file), ..self })
    }
}

/// A file that is gone when it is closed.
fn nameless(dir: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(format!("{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
