//! Directories of attempts below the worker's own: where they are, and how they come and go.
//!
//! - A directory is made under another name, and gets its own when it is whole. So no task and no later agent sees a
//!   part of one.
//! - One that is needed no more is moved to a directory that tasks do not enter, and emptied there by
//!   [`FileDirs::remove_gone`]. That may take long, because a task may have made any number of files.
//! - No path comes from a job or a keeper: an attempt's number gives the name.

use super::server::FileCall;
use super::trouble::FileTrouble;
use crate::protocol::TaskRef;
use crate::random::fresh_number;
use parking_lot::Mutex;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_cas::tree::remove_below;

/// The directory of those that wait to be emptied.
const GONE: &str = "files-gone";
/// Ends the name of the directory of a standard input.
const STDIN_ENDING: &str = ".stdin";
/// The name of a standard input in its directory.
pub const STDIN: &str = "stdin";
/// Begins the names of directories that are being made.
const NEW: &str = "new-";
/// Users pass through to the directories of their tasks, whose names they know, and see no others.
const TOP_MODE: u32 = 0o711;

/// The places of directories.
pub struct FileDirs {
    top: PathBuf,
    gone: PathBuf,
    /// Tells directories that this process makes from those that an earlier one left.
    process: u64,
    number: AtomicU64,
    /// Held while a directory gets its name or is given up, so that neither is decided on what the other changes.
    naming: Mutex<()>,
}

impl FileDirs {
    /// Places below the worker's directory: `name` is that of the directory which tasks see.
    pub fn new(state: &Path, name: &str) -> FileDirs {
        let (top, gone) = (state.join(name), state.join(GONE));
        FileDirs { top, gone, process: fresh_number(), number: AtomicU64::new(0), naming: Mutex::default() }
    }

    /// Makes the directories that have all others. The first must be there before a keeper covers the worker's
    /// directory, or tasks would not see theirs.
    pub fn create(&self) -> io::Result<()> {
        for (dir, mode) in [(&self.top, TOP_MODE), (&self.gone, 0o700)] {
            DirBuilder::new().recursive(true).mode(mode).create(dir)?;
            // Whatever this process's mask is.
            fs::set_permissions(dir, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// The directory of an attempt.
    pub fn of(&self, task: TaskRef) -> PathBuf {
        self.top.join(name_of(task))
    }

    /// The file that is an attempt's standard input, in a directory of its own that its task does not see.
    pub fn stdin_of(&self, task: TaskRef) -> PathBuf {
        self.stdin_dir(task).join(STDIN)
    }

    /// Makes the directory of an attempt, in the place of what an earlier agent may have made. `fill` makes it under the
    /// path that it gets. An attempt that is over meanwhile has none.
    pub fn make(
        &self,
        call: &FileCall,
        fill: impl FnOnce(&Path) -> Result<(), FileTrouble>,
    ) -> Result<PathBuf, FileTrouble> {
        self.make_at(call, self.of(call.task), fill)
    }

    /// As [`FileDirs::make`], for the directory of the attempt's standard input.
    pub fn make_stdin(
        &self,
        call: &FileCall,
        fill: impl FnOnce(&Path) -> Result<(), FileTrouble>,
    ) -> Result<(), FileTrouble> {
        self.make_at(call, self.stdin_dir(call.task), fill).map(|_| ())
    }

    /// Gives up what an attempt has, unless it `is_held` by now.
    pub fn discard(&self, task: TaskRef, is_held: &dyn Fn(TaskRef) -> bool) -> Result<(), FileTrouble> {
        let _naming = self.naming.lock();
        if is_held(task) {
            return Ok(());
        }
        self.put_away(&self.of(task)).and(self.put_away(&self.stdin_dir(task)))
    }

    /// Gives up all that no attempt has which `is_held`, and what an earlier process did not make whole.
    pub fn discard_others(&self, is_held: &dyn Fn(TaskRef) -> bool) -> Result<(), FileTrouble> {
        let own = self.new_prefix();
        let list = || fs::read_dir(&self.top)?.collect::<io::Result<Vec<_>>>();
        let entries = list().map_err(|error| FileTrouble::io("list", &self.top, error))?;
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&own) {
                continue;
            }
            let task = task_of(name.strip_suffix(STDIN_ENDING).unwrap_or(&name));
            let _naming = self.naming.lock();
            if !task.is_some_and(is_held) {
                self.put_away(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Empties what was given up, until `is_over`.
    pub fn remove_gone(&self, is_over: &dyn Fn() -> bool) -> Result<u64, FileTrouble> {
        remove_below(&self.gone, is_over).map_err(|error| FileTrouble::io("empty", &self.gone, error))
    }

    /// The attempt whose directory a keeper names.
    pub fn task_at(&self, directory: &str) -> Option<TaskRef> {
        let path = Path::new(directory);
        let task = task_of(path.file_name()?.to_str()?)?;
        (self.of(task) == path).then_some(task)
    }

    fn stdin_dir(&self, task: TaskRef) -> PathBuf {
        self.top.join(name_of(task) + STDIN_ENDING)
    }

    fn new_prefix(&self) -> String {
        format!("{NEW}{:x}-", self.process)
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn make_at(
        &self,
        call: &FileCall,
        path: PathBuf,
        fill: impl FnOnce(&Path) -> Result<(), FileTrouble>,
    ) -> Result<PathBuf, FileTrouble> {
        let new = self.top.join(format!("{}{}", self.new_prefix(), self.next()));
        let named = fill(&new).and_then(|()| {
            let _naming = self.naming.lock();
            call.check()?;
            self.put_away(&path)?;
            fs::rename(&new, &path).map_err(|error| FileTrouble::io("make", &path, error))
        });
        match named {
            Ok(()) => Ok(path),
            Err(trouble) => {
                // The next agent gives it up, if this does not.
                _ = self.put_away(&new);
                Err(trouble)
            }
        }
    }

    /// Moves a directory to those that are emptied.
    fn put_away(&self, path: &Path) -> Result<(), FileTrouble> {
        let to = self.gone.join(format!("{:x}-{}", self.process, self.next()));
        let moved = match fs::rename(path, &to) {
            // A user who is this process's own may have taken the permission that a move needs.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                _ = fs::set_permissions(path, Permissions::from_mode(0o700));
                fs::rename(path, &to)
            }
            moved => moved,
        };
        match moved {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileTrouble::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }
}

/// The name of an attempt's directory.
fn name_of(task: TaskRef) -> String {
    let TaskRef { job, index, attempt } = task;
    format!("{job}.{index}.{attempt}")
}

/// The attempt of a directory's name.
fn task_of(name: &str) -> Option<TaskRef> {
    let mut parts = name.split('.');
    let (job, index, attempt) = (parts.next()?, parts.next()?, parts.next()?);
    let task = TaskRef { job: job.parse().ok()?, index: index.parse().ok()?, attempt: attempt.parse().ok()? };
    (name_of(task) == name).then_some(task)
}
