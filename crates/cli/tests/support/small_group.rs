//! Control groups with little memory, for what happens when the kernel kills.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group in which little memory is, by either version. It is removed at the end.
pub struct SmallGroup(PathBuf);

impl SmallGroup {
    /// A group with this name among those of the tests, and that much memory; `None` where none can be made.
    pub fn new(name: &str, limit: &str) -> Option<SmallGroup> {
        let name = format!("windlass-test-of-{name}-{}", std::process::id());
        for (mount, file) in [("memory", "memory.limit_in_bytes"), ("", "memory.max")] {
            let dir = Path::new("/sys/fs/cgroup").join(mount).join(&name);
            if fs::create_dir(&dir).is_ok() {
                let group = SmallGroup(dir);
                if group.0.join(file).exists() && fs::write(group.0.join(file), limit).is_ok() {
                    // Where swap is counted, none is had.
                    _ = fs::write(group.0.join("memory.memsw.limit_in_bytes"), limit);
                    _ = fs::write(group.0.join("memory.swap.max"), "0");
                    return Some(group);
                }
            }
        }
        None
    }

    /// The same command as a process of the group, to which arguments can be added.
    pub fn joining(&self, command: &Command) -> Command {
        let line = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            shell.current_dir(dir);
        }
        shell
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a group and those below it, as far as they are empty.
fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    _ = fs::remove_dir(dir);
}
