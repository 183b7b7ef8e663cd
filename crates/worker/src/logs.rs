//! Where tasks' output is: two files an attempt, written by the task itself, so that a task that
//! writes much costs the keeper nothing and output survives everything but the disk.
//!
//! A file over its limit keeps its beginning and its end: the middle is punched out, so that offsets
//! stay what they were and whoever follows reads on undisturbed.

use crate::protocol::TaskRef;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a file's beginning that are always kept.
const HEAD_BYTES: u64 = 1 << 20;

/// A multiple of the block size of every file system that we know.
const BLOCK_BYTES: u64 = 64 << 10;

/// Which output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The directory of all output.
#[derive(Clone, Debug)]
pub struct LogDir {
    root: PathBuf,
}

impl LogDir {
    /// The logs of the worker with this state directory.
    pub fn new(state: &Path) -> Self {
        LogDir { root: state.join("logs") }
    }

    /// The file of one attempt's output. There is none if it wrote nothing.
    pub fn path(&self, task: TaskRef, stream: Stream) -> PathBuf {
        let name = match stream {
            Stream::Out => "out",
            Stream::Err => "err",
        };
        self.job_dir(task.job).join(format!("{}.{}.{name}", task.index, task.attempt))
    }

    /// The directory itself, which need not be there yet.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The files of one attempt.
    pub fn paths(&self, task: TaskRef) -> [PathBuf; 2] {
        [Stream::Out, Stream::Err].map(|stream| self.path(task, stream))
    }

    /// Opens a file for a task to append to, making the job's directory at need.
    pub fn create(&self, task: TaskRef, stream: Stream) -> io::Result<File> {
        let path = self.path(task, stream);
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let file = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let mut dir = DirBuilder::new();
                dir.recursive(true).mode(0o700).create(self.job_dir(task.job))?;
                options.open(&path)
            }
            opened => opened,
        }?;
        // An attempt starts once: what is there is of another store's job of that number.
        file.set_len(0)?;
        Ok(file)
    }

    /// Reads up to `bytes_max` bytes of an attempt's output from `offset` on, counted from the end if
    /// negative. Returns where the next part begins and the bytes, with a note where the middle is gone;
    /// `None` where nothing was written.
    pub fn read(
        &self,
        task: TaskRef,
        stream: Stream,
        offset: i64,
        bytes_max: usize,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        let file = match File::open(self.path(task, stream)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let from = match u64::try_from(offset) {
            Ok(from) => from,
            Err(_) => file.metadata()?.len().saturating_sub(offset.unsigned_abs()),
        };
        let (at, mut bytes) = read_at(&file, from, bytes_max)?;
        let next = at + bytes.len() as u64;
        if at > from && offset >= 0 {
            let gone = at - from;
            let note = format!("\n[windlass: {gone} bytes are left out here, the log is over its limit]\n");
            bytes.splice(0..0, note.into_bytes());
        }
        Ok(Some((next, bytes)))
    }

    /// Removes the file of an attempt that wrote nothing.
    pub fn remove(&self, task: TaskRef, stream: Stream) {
        _ = std::fs::remove_file(self.path(task, stream));
    }

    /// Removes all output of a job.
    pub fn remove_job(&self, job: u64) -> io::Result<()> {
        match std::fs::remove_dir_all(self.job_dir(job)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes the output of jobs of which nothing was written for that long.
    pub fn sweep(&self, keep: Duration) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let dir = entry?.path();
            // A file here was put by somebody else: output is in a directory for each job.
            let Ok(files) = std::fs::read_dir(&dir) else { continue };
            let files = files.flatten().map(|file| file.path());
            let mut changed =
                files.chain([dir.clone()]).filter_map(|path| path.metadata().ok()?.modified().ok());
            if changed.all(|at| at.elapsed().is_ok_and(|age| age > keep)) {
                std::fs::remove_dir_all(&dir)?;
            }
        }
        Ok(())
    }

    fn job_dir(&self, job: u64) -> PathBuf {
        self.root.join(job.to_string())
    }
}

/// Lets go of the middle of a file that holds more than `max` bytes. `kept_from` is where the kept
/// end began after the last call, 0 at first; returns where it begins now.
pub fn rotate(file: &File, size: u64, max: u64, kept_from: u64) -> io::Result<u64> {
    // A task may cut its own output short.
    let kept = size.saturating_sub(kept_from.max(HEAD_BYTES));
    let max_tail = max.saturating_sub(HEAD_BYTES);
    if size <= max || kept <= max_tail {
        return Ok(kept_from);
    }
    // Half of the room, so that this is rare; whole blocks, for a part of one would become zeros.
    let from = (size - max_tail / 2) / BLOCK_BYTES * BLOCK_BYTES;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, HEAD_BYTES, from - HEAD_BYTES)?;
    Ok(from)
}

/// Reads from `offset`, passing over what `rotate` let go of. Returns the bytes and the offset of the
/// first; no bytes at the end of what is written so far.
pub fn read_at(file: &File, offset: u64, max: usize) -> io::Result<(u64, Vec<u8>)> {
    loop {
        let Some(data) = next_data(file, offset)? else { return Ok((offset, Vec::new())) };
        let end = next_hole(file, data)?;
        let mut bytes = vec![0; max.min((end - data) as usize)];
        let n = file.read_at(&mut bytes, data)?;
        bytes.truncate(n);
        // What was let go of while it was read may have been read as zeros.
        if next_data(file, data)? == Some(data) && next_hole(file, data)? >= data + n as u64 {
            return Ok((data, bytes));
        }
    }
}

/// Where the bytes that begin at `data` end.
fn next_hole(file: &File, data: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(data)) {
        Ok(hole) => Ok(hole),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NXIO) => Ok(file.metadata()?.len().max(data)),
        Err(e) => Err(e.into()),
    }
}

/// Where the next bytes are, from `offset` on. A file system that knows no holes says that all is data.
fn next_data(file: &File, offset: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(Some(data)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(rustix::io::Errno::INVAL) => Ok(Some(offset)),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn rotation_keeps_head_and_tail_and_offsets() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        let mut writer = logs.create(task, Stream::Out).unwrap();
        let file = File::open(logs.path(task, Stream::Out)).unwrap();
        let punch = OpenOptions::new().write(true).open(logs.path(task, Stream::Out)).unwrap();
        let (mut kept_from, max) = (0, 4 << 20);
        for block in 0u64..20 {
            writer.write_all(&[b'a' + block as u8; 1 << 20]).unwrap();
            kept_from = rotate(&punch, (block + 1) << 20, max, kept_from).unwrap();
        }
        assert!(kept_from > 15 << 20);
        let (at, head) = read_at(&file, 0, 10).unwrap();
        assert_eq!((at, &head[..]), (0, &b"aaaaaaaaaa"[..]));
        let (at, across) = read_at(&file, HEAD_BYTES - 5, 100).unwrap();
        assert_eq!((at, &across[..]), (HEAD_BYTES - 5, &b"aaaaa"[..]), "no zeros of the hole");
        let (at, next) = read_at(&file, HEAD_BYTES, 4).unwrap();
        assert!(at > HEAD_BYTES && at <= kept_from, "the middle is gone: {at}");
        assert_eq!(next.len(), 4);
        let (_, tail) = read_at(&file, (20 << 20) - 3, 10).unwrap();
        assert_eq!(tail, b"ttt");
        let (at, end) = read_at(&file, 20 << 20, 10).unwrap();
        assert_eq!((at, end.len()), (20 << 20, 0));
        use std::os::unix::fs::MetadataExt;
        assert!(file.metadata().unwrap().blocks() * 512 <= max + (1 << 20));
    }
}
