//! Room for output files. As the worker's disk fills, or its output takes more than the operator allows, the
//! oldest output of ended tasks is cut to its beginning. A thread of the agent calls it at each [`interval`].
//! Output of attempts that run is never cut here, and no file is deleted. Marks are small, and stay.

use crate::logs::{LogDir, TIMES_ENDING};
use crate::protocol::TaskRef;
use rustix::fs::statvfs;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use windlass_core::load::formula::kept_free_bytes;
use windlass_core::load::pressure::DiskSpace;

/// Interval between two checks, and that while the disk is full and submissions may be refused for it.
const EVERY: Duration = Duration::from_secs(30);
const EVERY_FULL: Duration = Duration::from_secs(5);
/// Bytes that are kept of a file that is cut.
const HEAD_BYTES: u64 = 4 << 10;
/// A file that was written to more recently may belong to a task whose start the keeper has not reported yet, and is
/// not cut. A start is reported within 10 s, and an agent finds its keeper again within 10 s.
const SETTLED: Duration = Duration::from_secs(30);

/// With less than this left a write fails, or the next one does. On a small disk it is one part in this many.
const FULL_BYTES: u64 = 1 << 20;
const FULL_PART: u64 = 64;

/// Interval until the next check, on a disk with that space.
pub fn interval(space: Option<DiskSpace>) -> Duration {
    let lacks = |space: DiskSpace| space.free_bytes < kept_free_bytes(space.total_bytes);
    if space.is_some_and(lacks) { EVERY_FULL } else { EVERY }
}

/// Whether output of running tasks may have to go soon, on a disk with that space.
pub fn is_filling(space: DiskSpace) -> bool {
    space.free_bytes < kept_free_bytes(space.total_bytes) / 4 * 3
}

/// Bytes of the output of running tasks that have to go, on a disk with that space. It goes where new work no longer
/// comes, when half of what is kept free is left.
pub fn lacking_bytes(space: DiskSpace) -> u64 {
    (kept_free_bytes(space.total_bytes) / 2).saturating_sub(space.free_bytes)
}

/// Whether writes fail on a disk with that space.
pub fn is_full(space: DiskSpace) -> bool {
    space.free_bytes < FULL_BYTES.min(space.total_bytes / FULL_PART)
}

/// What is known of the attempts whose output is there.
pub struct Writers {
    /// Those that still write.
    pub running: BTreeSet<TaskRef>,
    /// Those that ended last, and write no more.
    pub ended: BTreeSet<TaskRef>,
}

/// Cuts output, oldest first, until enough of the disk is free and all output takes at most `bytes_max`. Returns the
/// bytes that were freed.
pub fn make_room(logs: &LogDir, bytes_max: Option<u64>, writers: &Writers) -> io::Result<u64> {
    let roots = logs.roots()?;
    let Some(first) = roots.first() else { return Ok(0) };
    let DiskSpace { free_bytes, total_bytes } = space(first)?;
    let lacking = kept_free_bytes(total_bytes).saturating_sub(free_bytes);
    if lacking == 0 && bytes_max.is_none() {
        return Ok(0);
    }
    cut_oldest(logs, &roots, (lacking, bytes_max), writers)
}

/// Cuts output until `lacking` bytes are freed, and all output takes at most `bytes_max`. Where the disk lacks room,
/// submissions may be refused, so output of tasks that have just ended goes, too.
fn cut_oldest(
    logs: &LogDir,
    roots: &[PathBuf],
    (lacking, bytes_max): (u64, Option<u64>),
    writers: &Writers,
) -> io::Result<u64> {
    let paths = |tasks: &BTreeSet<TaskRef>| -> BTreeSet<PathBuf> {
        tasks.iter().flat_map(|task| logs.paths(*task)).collect()
    };
    let written = paths(&writers.running);
    let ended = if lacking > 0 { paths(&writers.ended) } else { BTreeSet::new() };
    let mut files: Vec<Output> = Vec::new();
    for root in roots {
        files.append(&mut outputs(root)?);
    }
    let taken: u64 = files.iter().map(|file| file.bytes).sum();
    let wanted = lacking.max(taken.saturating_sub(bytes_max.unwrap_or(u64::MAX)));
    files.sort_by_key(|file| file.changed);
    let (mut given, mut failed) = (0, None);
    for file in files {
        if given >= wanted {
            return Ok(given);
        }
        let settled = file.changed.elapsed().is_ok_and(|age| age > SETTLED) || ended.contains(&file.path);
        if settled && file.bytes > 2 * HEAD_BYTES && !written.contains(&file.path) {
            match cut(&file.path) {
                Ok(()) => given += file.bytes - HEAD_BYTES,
                // Its job was deleted meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // The others may give enough.
                Err(e) => failed = Some(e),
            }
        }
    }
    failed.map_or(Ok(given), Err)
}

/// The space of the file system that holds a directory.
pub fn space(dir: &Path) -> io::Result<DiskSpace> {
    let found = statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskSpace { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

struct Output {
    path: PathBuf,
    /// Allocated bytes, so holes do not count.
    bytes: u64,
    changed: SystemTime,
}

fn outputs(root: &Path) -> io::Result<Vec<Output>> {
    let mut files = Vec::new();
    for dir in fs::read_dir(root)?.flatten() {
        // Output is in a directory for each job; a plain file here is not output.
        let Ok(entries) = fs::read_dir(dir.path()) else { continue };
        for entry in entries.flatten() {
            // What is put behind the beginning of output would be read as a mark.
            if entry.path().extension().is_some_and(|ending| ending == TIMES_ENDING) {
                continue;
            }
            let Ok(found) = entry.metadata() else { continue };
            if let (true, Ok(changed)) = (found.is_file(), found.modified()) {
                files.push(Output { path: entry.path(), bytes: found.blocks() * 512, changed });
            }
        }
    }
    Ok(files)
}

fn cut(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.set_len(HEAD_BYTES)?;
    file.write_all(b"\n[windlass: the rest was deleted, for the disk of this worker was full]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{ASIDE, Stream};
    use std::fs::File;

    #[test]
    fn the_oldest_output_of_ended_tasks_is_cut_first() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let task = |index| TaskRef { job: 1, index, attempt: 1 };
        let write = |index, age_s, bytes: usize| {
            let mut file = logs.create(task(index), Stream::Out).unwrap();
            file.write_all(&vec![7; bytes]).unwrap();
            file.sync_all().unwrap();
            let changed = SystemTime::now() - Duration::from_secs(age_s);
            file.set_modified(changed).unwrap();
        };
        let bytes = |index| fs::metadata(logs.path(task(index), Stream::Out)).unwrap().len();
        write(1, 4000, 1 << 20);
        write(2, 3000, 1 << 20);
        write(3, 5000, 1 << 20);
        write(4, 1, 1 << 20);
        write(5, 9000, 100);
        // Marks of the oldest output.
        let times = logs.path(task(5), Stream::Times);
        fs::write(&times, vec![7; 100 << 10]).unwrap();
        File::open(&times).unwrap().set_modified(SystemTime::now() - Duration::from_secs(9000)).unwrap();
        let writers = Writers { running: [task(3)].into(), ended: [task(4)].into() };
        let given = make_room(&logs, Some(5 << 20), &writers).unwrap();
        assert_eq!(given, 0, "there is room");
        let given = make_room(&logs, Some((3 << 20) + (100 << 10)), &writers).unwrap();
        assert!(given > 900 << 10, "{given}");
        assert!(bytes(1) < 5000, "the oldest that has ended");
        assert_eq!([bytes(2), bytes(3), bytes(4), bytes(5)], [1 << 20, 1 << 20, 1 << 20, 100]);
        make_room(&logs, Some(0), &writers).unwrap();
        assert!(bytes(2) < 5000);
        assert_eq!([bytes(3), bytes(4)], [1 << 20, 1 << 20], "what is still written stays");
        assert_eq!(
            fs::metadata(&times).unwrap().len(),
            100 << 10,
            "half a mark would be read as another one"
        );
        // What another server's tasks left is all of ended tasks.
        let aside = dir.path().join(format!("{ASIDE}7/1"));
        fs::create_dir_all(&aside).unwrap();
        fs::write(aside.join("3.1.out"), vec![7; 1 << 20]).unwrap();
        let old = SystemTime::now() - Duration::from_secs(5000);
        File::options().write(true).open(aside.join("3.1.out")).unwrap().set_modified(old).unwrap();
        make_room(&logs, Some(0), &writers).unwrap();
        assert!(fs::metadata(aside.join("3.1.out")).unwrap().len() < 5000);
        let (_, text) = logs.read(task(1), Stream::Out, -100, 1000).unwrap().unwrap();
        assert!(String::from_utf8_lossy(&text).contains("disk of this worker was full"));
        // The output of a task that has just ended goes where the disk lacks room.
        assert_eq!(bytes(4), 1 << 20, "the disk has room");
        let roots = logs.roots().unwrap();
        cut_oldest(&logs, &roots, (1 << 20, None), &writers).unwrap();
        assert!(bytes(4) < 5000 && bytes(3) == 1 << 20);
        let space = |free_bytes| Some(DiskSpace { free_bytes, total_bytes: 60 << 20 });
        assert_eq!([space(0), space(4 << 20), None].map(interval), [EVERY_FULL, EVERY, EVERY]);
    }
}
