//! Room by open files: how many tasks a keeper may run at a time under its limit. A start beyond it would fail, and so would
//! a connection of the agent.

use rustix::process::{Resource, getrlimit};

/// Open files of the keeper itself: its log, sockets and timers, what it reads for a moment, and actions of sessions.
const FILES_RESERVED: u64 = 48;
/// Most files that the keeper holds open for one task: its two outputs, the report of its start and then its jobserver, six
/// of its control groups, and its outputs once more where it reads what the task says.
const FILES_PER_TASK: u64 = 11;

/// The soft limit of this process's open files.
pub fn files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many tasks may run at a time with that many open files; at least one, which may have to be tried twice.
pub fn tasks_max(files: u64) -> usize {
    let tasks = files.saturating_sub(FILES_RESERVED) / FILES_PER_TASK;
    usize::try_from(tasks).unwrap_or(usize::MAX).max(1)
}

/// Said of a worker that declares more cpus than it can have tasks; `None` if the files suffice. `cpu` is in hundredths.
pub fn shortage(files: u64, cpu: u32) -> Option<String> {
    let (tasks, cpus) = (tasks_max(files), cpu / 100);
    (tasks < cpus as usize).then(|| {
        format!(
            "at most {tasks} tasks run at a time, because this process may have only {files} open files, although \
             {cpus} cpus are declared; raise the hard limit, with LimitNOFILE= of its unit or 'ulimit -n'"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_few_tasks_and_that_is_said() {
        assert_eq!([0, 59, 256, 1024, 20_000].map(tasks_max), [1, 1, 18, 88, 1813]);
        assert_eq!(tasks_max(u64::MAX) as u64, (u64::MAX - 48) / 11);
        let said = shortage(256, 40_000).unwrap();
        assert!(said.starts_with("at most 18 tasks") && said.contains("400 cpus"), "{said}");
        assert_eq!((shortage(256, 1_800), shortage(u64::MAX, u32::MAX)), (None, None));
    }
}
