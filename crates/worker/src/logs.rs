//! Output files of tasks: two for each attempt. The task writes to them by itself, so output costs the keeper
//! nothing, and it survives everything but the disk. The keeper makes and trims the files, and the agent
//! reads and removes them. A third file has the marks by which the lines of both get their times and their order.
//!
//! A file over its limit keeps its beginning and its end. The middle becomes a hole, so offsets stay valid
//! and a reader that follows the file goes on undisturbed. Bytes are never moved.

use crate::protocol::TaskRef;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of a file's beginning that trimming always keeps.
const HEAD_BYTES: u64 = 1 << 20;

/// A multiple of the block size of common file systems.
const BLOCK_BYTES: u64 = 64 << 10;

/// A file of an attempt: one of its two outputs, or their marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output of the task.
    Out,
    /// Standard error of the task.
    Err,
    /// When both grew, as [`LogMark`](windlass_api::LogMark)s; absent of an attempt that ended at once.
    Times,
}

/// The directory of all output, in the worker's directory.
const LOGS: &str = "logs";
/// How the name of a directory begins that has the output of another server's tasks. Its store's id follows.
pub const ASIDE: &str = "logs-of-";

/// How the names of the files with marks end.
pub const TIMES_ENDING: &str = "times";

impl Stream {
    /// Both outputs, standard output first.
    pub const BOTH: [Stream; 2] = [Stream::Out, Stream::Err];
}

/// The directory of all output.
#[derive(Clone, Debug)]
pub struct LogDir {
    root: PathBuf,
}

impl LogDir {
    /// The output directory below a worker's directory.
    pub fn new(state: &Path) -> Self {
        LogDir { root: state.join(LOGS) }
    }

    /// The file of one attempt's output, which does not exist if the attempt wrote nothing.
    pub fn path(&self, task: TaskRef, stream: Stream) -> PathBuf {
        let name = match stream {
            Stream::Out => "out",
            Stream::Err => "err",
            Stream::Times => TIMES_ENDING,
        };
        self.job_dir(task.job).join(format!("{}.{}.{name}", task.index, task.attempt))
    }

    /// The directory itself, which need not exist yet.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directories that there are of output: this one, and those that were put aside for other servers' stores.
    pub fn roots(&self) -> io::Result<Vec<PathBuf>> {
        let Some(state) = self.root.parent() else { return Ok(Vec::new()) };
        let is_root = |entry: &std::fs::DirEntry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name == LOGS || name.starts_with(ASIDE))
        };
        Ok(std::fs::read_dir(state)?.flatten().filter(is_root).map(|entry| entry.path()).collect())
    }

    /// Both files of an attempt's output.
    pub fn paths(&self, task: TaskRef) -> [PathBuf; 2] {
        Stream::BOTH.map(|stream| self.path(task, stream))
    }

    /// Opens a file for a task to append to. Creates the job's directory if needed.
    pub fn create(&self, task: TaskRef, stream: Stream) -> io::Result<File> {
        let path = self.path(task, stream);
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600);
        let created = match options.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let mut dir = DirBuilder::new();
                dir.recursive(true).mode(0o700).create(self.job_dir(task.job))?;
                options.open(&path)
            }
            created => created,
        };
        match created {
            // An attempt starts once, so what is there is of an earlier try to start it, or of another store's job with
            // that number.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = OpenOptions::new().append(true).open(&path)?;
                file.set_len(0)?;
                Ok(file)
            }
            created => created,
        }
    }

    /// Reads up to `bytes_max` bytes of an attempt's output from `offset`, which counts from the end if it is
    /// negative. Returns the offset of the next part and the bytes, which begin with a note where the middle is
    /// missing. `None` if nothing was written.
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
            let why = "the log was over its limit, or the disk of its worker full";
            let note = format!("\n[windlass: {gone} bytes are left out here, {why}]\n");
            bytes.splice(0..0, note.into_bytes());
        }
        Ok(Some((next, bytes)))
    }

    /// Removes a file of an attempt. A missing file is not an error.
    pub fn remove(&self, task: TaskRef, stream: Stream) {
        _ = std::fs::remove_file(self.path(task, stream));
    }

    /// Removes all output of these jobs. What cannot be removed is logged, and found again by its age.
    pub fn remove_jobs(&self, jobs: impl IntoIterator<Item = u64>) {
        for job in jobs {
            match std::fs::remove_dir_all(self.job_dir(job)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("cannot delete the output of job {job}: {e}");
                }
                _ => {}
            }
        }
    }

    /// Jobs with a number above `after` that have output and wrote nothing since `before`, in the order of their numbers.
    pub fn unchanged_since(&self, before: SystemTime, after: u64) -> io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut jobs = Vec::new();
        for entry in entries {
            let entry = entry?;
            let job = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            let Some(job) = job.filter(|job| *job > after) else { continue };
            let dir = entry.path();
            // Output is in a directory for each job; a plain file here is not output.
            let Ok(files) = std::fs::read_dir(&dir) else { continue };
            let files = files.flatten().map(|file| file.path());
            let mut changed = files.chain([dir]).filter_map(|path| path.metadata().ok()?.modified().ok());
            if changed.all(|at| at < before) {
                jobs.push(job);
            }
        }
        jobs.sort_unstable();
        Ok(jobs)
    }

    fn job_dir(&self, job: u64) -> PathBuf {
        self.root.join(job.to_string())
    }
}

/// Punches a hole into the middle of a file that has more than `max` bytes. `kept_from` is the result of the
/// last call, 0 at first. Returns the offset from which the end is kept.
pub fn rotate(file: &File, size: u64, max: u64, kept_from: u64) -> io::Result<u64> {
    // A task may truncate its own output.
    let kept = size.saturating_sub(kept_from.max(HEAD_BYTES));
    let max_tail = max.saturating_sub(HEAD_BYTES);
    if size <= max || kept <= max_tail {
        return Ok(kept_from);
    }
    // Half of the room is freed, so that this is rare. Only whole blocks are: parts of a block would become zeros.
    let from = (size - max_tail / 2) / BLOCK_BYTES * BLOCK_BYTES;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, HEAD_BYTES, from - HEAD_BYTES)?;
    Ok(from)
}

/// Reads from `offset`, past any hole. Returns the offset of the first byte and the bytes, which are empty at
/// the end of the file.
pub fn read_at(file: &File, offset: u64, max: usize) -> io::Result<(u64, Vec<u8>)> {
    loop {
        let Some(data) = next_data(file, offset)? else { return Ok((offset, Vec::new())) };
        let end = next_hole(file, data)?;
        let mut bytes = vec![0; max.min((end - data) as usize)];
        let n = file.read_at(&mut bytes, data)?;
        bytes.truncate(n);
        // A hole that was punched meanwhile may have been read as zeros.
        if next_data(file, data)? == Some(data) && next_hole(file, data)? >= data + n as u64 {
            return Ok((data, bytes));
        }
    }
}

/// The end of the data that begins at `data`.
fn next_hole(file: &File, data: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(data)) {
        Ok(hole) => Ok(hole),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NXIO) => Ok(file.metadata()?.len().max(data)),
        Err(e) => Err(e.into()),
    }
}

/// The beginning of the next data at or after `offset`. A file system without holes reports all as data.
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
