//! Outputs of tasks as a tar archive, which is written while it is sent: a few parts of it are in memory, and no list of
//! what is in it.

use super::error::FilesTrouble;
use super::names::digest_of;
use super::outputs::outputs;
use super::state::FilesState;
use super::step_files::step_of;
use super::walk::each_entry;
use crate::cas::{PART_BYTES, PART_PATIENCE, SpaceBlobs, now_ms};
use crate::panics::in_request;
use crate::user_budget::UserShare;
use axum::body::Bytes;
use futures_util::{Stream, stream};
use std::io::{self, Read, Write};
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use tar::{Builder, EntryType, Header};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc;
use windlass_api::TaskOutputs;
use windlass_cas::tree::EntryKind;
use windlass_cas::{Blob, Digest};
use windlass_core::JobId;
use windlass_core::job::JobSpec;
use windlass_core::ranges::RangeSet;

/// Tasks whose notes are read at a time.
const PAGE: usize = 100;
/// Characters of a step's name in the name of a directory.
const NAME_CHARS_MAX: usize = 100;

/// Whose outputs are wanted.
pub(crate) struct TarAsked {
    pub job: JobId,
    /// The job's, which says the names of steps.
    pub spec: Arc<JobSpec>,
    /// The indexes of the tasks; `None` for all.
    pub tasks: Option<RangeSet>,
    /// Each task's outputs are in a directory of their own, named by its step and its index.
    pub has_directories: bool,
}

/// The archive, part by part. It ends with an error where it cannot be written to its end. The place is held as long.
pub(crate) fn tar_of(
    state: Arc<FilesState>,
    asked: TarAsked,
    place: UserShare,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let (parts, receiver) = mpsc::channel(1);
    let runtime = Runtime::current();
    tokio::spawn(in_request(async move {
        let _place = place;
        let written = state.with(move |blobs| {
            asked.write(blobs, TarParts { parts, runtime, part: Vec::new(), is_over: false });
            Ok(())
        });
        if let Err(trouble) = written.await {
            state.tell("an archive of outputs", &trouble);
        }
    }));
    stream::unfold(receiver, |mut receiver: mpsc::Receiver<io::Result<Bytes>>| async move {
        let part = receiver.recv().await?;
        Some((part, receiver))
    })
}

impl TarAsked {
    /// False if no task has outputs of those that are wanted.
    pub async fn has_some(&self, state: &FilesState) -> Result<bool, FilesTrouble> {
        for range in self.ranges() {
            let first = state.outputs(self.job, range.start, 1).await?.pop();
            if first.is_some_and(|first| first.index < range.end) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write(self, blobs: &SpaceBlobs, parts: TarParts) {
        let mut archive = Builder::new(parts);
        match self.fill(blobs, &mut archive) {
            // Readers refuse an archive without its end, and the client learns why it has none.
            Err(trouble) => archive.get_mut().fail(io::Error::other(trouble)),
            Ok(()) => {
                if let Ok(mut parts) = archive.into_inner() {
                    _ = parts.send_part();
                }
            }
        }
    }

    fn fill(&self, blobs: &SpaceBlobs, archive: &mut Builder<TarParts>) -> Result<(), FilesTrouble> {
        for range in self.ranges() {
            let mut from = range.start;
            while from < range.end {
                let page = outputs(blobs, self.job, from, PAGE)?;
                let Some(last) = page.last().map(|outputs| outputs.index) else { break };
                for outputs in page.iter().filter(|outputs| outputs.index < range.end) {
                    self.add(blobs, outputs, archive)?;
                }
                from = last.saturating_add(1);
            }
        }
        Ok(())
    }

    /// The indexes of the tasks.
    fn ranges(&self) -> Vec<Range<u32>> {
        match &self.tasks {
            Some(tasks) => tasks.ranges().collect(),
            None => iter::once(0..u32::MAX).collect(),
        }
    }

    fn add(
        &self,
        blobs: &SpaceBlobs,
        outputs: &TaskOutputs,
        archive: &mut Builder<TarParts>,
    ) -> Result<(), FilesTrouble> {
        let root = digest_of(&outputs.root, "root")?;
        let mut above = String::new();
        if self.has_directories {
            above = directory_of(&self.spec, outputs.index);
            archive.append_data(&mut header(EntryType::Directory, 0o755, 0), &above, io::empty())?;
            above.push('/');
        }
        each_entry(blobs, root, &mut |path, kind| {
            let path = format!("{above}{path}");
            match kind {
                EntryKind::Directory => {
                    archive.append_data(&mut header(EntryType::Directory, 0o755, 0), &path, io::empty())?;
                }
                EntryKind::Link { target } => {
                    archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), &path, &target)?;
                }
                EntryKind::File { digest, is_executable } => {
                    let mode = if is_executable { 0o755 } else { 0o644 };
                    let mut header = header(EntryType::Regular, mode, digest.size);
                    archive.append_data(&mut header, &path, whole(blobs, digest)?)?;
                }
            }
            Ok(())
        })
    }
}

fn header(kind: EntryType, mode: u32, bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    // Trees have no times, and programs such as make pass over files of 1970.
    header.set_mtime(now_ms() / 1_000);
    header
}

/// The directory of a task's outputs. Names of steps are any text.
fn directory_of(spec: &JobSpec, index: u32) -> String {
    let step = step_of(spec, index).and_then(|(step, _)| spec.steps.get(usize::from(step)));
    let name = step.map_or("task", |step| step.name.as_str());
    let plain = |c: char| if c.is_control() || c == '/' || c == '\\' { '_' } else { c };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(plain).collect();
    // One that begins with a dot is hidden, or leads elsewhere.
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}.{index}"),
        None => format!("{name}.{index}"),
    }
}

/// The bytes of a file, as many as its digest says: the archive has told that number.
fn whole(blobs: &SpaceBlobs, digest: Digest) -> Result<WholeFile, FilesTrouble> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("the file {digest} is not in the store"));
    let from: Box<dyn Read> = match blobs.read(digest)?.ok_or_else(gone)? {
        Blob::Bytes(bytes) => Box::new(io::Cursor::new(bytes)),
        Blob::File { file, .. } => Box::new(file),
    };
    Ok(WholeFile { from, left: digest.size })
}

struct WholeFile {
    from: Box<dyn Read>,
    left: u64,
}

impl Read for WholeFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.from.read(&mut into[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Where the archive is written: into parts that are sent one after the other, on a thread that may wait.
struct TarParts {
    parts: mpsc::Sender<io::Result<Bytes>>,
    runtime: Runtime,
    part: Vec<u8>,
    /// Nothing more is sent: the archive broke off.
    is_over: bool,
}

impl TarParts {
    fn send_part(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.part);
        let sent = match part.is_empty() {
            true => true,
            false => self.send(Ok(part.into())),
        };
        if sent { Ok(()) } else { Err(io::Error::other("the client does not read what it asked for")) }
    }

    /// False if the client is gone, or does not read.
    fn send(&mut self, part: io::Result<Bytes>) -> bool {
        let sending = tokio::time::timeout(PART_PATIENCE, self.parts.send(part));
        let sent = matches!(self.runtime.block_on(sending), Ok(Ok(())));
        self.is_over |= !sent;
        sent
    }

    fn fail(&mut self, error: io::Error) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.send(Err(error));
        }
    }
}

impl Write for TarParts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_over {
            return Err(io::Error::other("the archive broke off"));
        }
        self.part.extend_from_slice(bytes);
        if self.part.len() >= PART_BYTES {
            self.send_part()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::StepSpec;

    #[test]
    fn names_of_steps_lead_nowhere() {
        let named = |name: &str| {
            let step = StepSpec { name: name.to_owned(), tasks: 9, ..StepSpec::default() };
            directory_of(&JobSpec { steps: vec![step], ..JobSpec::default() }, 7)
        };
        for (name, is) in [
            ("compile", "compile.7"),
            ("a b ä", "a b ä.7"),
            ("../..", "_._...7"),
            (".", "_.7"),
            ("/etc", "_etc.7"),
            ("a\n\0", "a__.7"),
            ("", ".7"),
        ] {
            assert_eq!(named(name), is);
        }
        assert_eq!(named(&"x".repeat(1_000)).len(), NAME_CHARS_MAX + 2);
    }

    #[test]
    fn a_file_that_is_shorter_than_it_was_is_an_error() {
        let read = |bytes: &'static [u8], left| {
            let mut text = String::new();
            let read = WholeFile { from: Box::new(bytes), left }.read_to_string(&mut text);
            read.map(|_| text)
        };
        assert_eq!(read(b"hello", 5).unwrap(), "hello");
        assert_eq!(read(b"hello", 4).unwrap(), "hell");
        assert!(read(b"hello", 6).is_err() && read(b"", 0).is_ok());
    }
}
