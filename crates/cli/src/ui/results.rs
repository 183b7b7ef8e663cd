//! Results of tasks in files: a directory for each task with its output, and with its end as JSON.

use futures_util::StreamExt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use windlass_api::Task;
use windlass_api::client::{Client, ClientError, LogQuery};

/// Characters of a task's value in the name of its directory. With four bytes for each, the name stays below the 255
/// bytes of a file system.
const VALUE_CHARS_MAX: usize = 40;
/// The end of a task, written after its output: a directory that has it is whole.
const RESULT_FILE: &str = "result.json";

/// The directory of the results; cheap to clone.
#[derive(Clone, Debug)]
pub struct Results {
    dir: Arc<PathBuf>,
    missed: Arc<AtomicU32>,
}

/// Why the results of a task are not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The server did not send its output.
    #[error(transparent)]
    Request(#[from] ClientError),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Results {
    /// Creates the directory, so that a mistake in its name is told before anything runs.
    pub fn in_dir(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Results { dir: Arc::new(std::path::absolute(dir)?), missed: Arc::default() })
    }

    /// The directory, as an absolute path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Counts a task whose results are not kept.
    pub fn miss(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of tasks whose results are not kept.
    pub fn missed(&self) -> u32 {
        self.missed.load(Ordering::SeqCst)
    }

    /// Writes the files of a task that has ended; `tasks` is the number of tasks of its job. Files that are there already
    /// are replaced, so this can be repeated after an error.
    pub async fn keep(&self, client: &Client, task: &Task, tasks: u32) -> Result<(), KeepError> {
        let dir = self.dir.join(directory_name(task, tasks));
        let result = dir.join(RESULT_FILE);
        std::fs::create_dir_all(&dir).map_err(|source| write_error(&dir, source))?;
        match std::fs::remove_file(&result) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(write_error(&result, source));
            }
            _ => {}
        }
        let attempt = &task.attempt;
        for (stream, bytes) in [("stdout", attempt.out_bytes), ("stderr", attempt.err_bytes)] {
            let path = dir.join(stream);
            let mut file = File::create(&path).map_err(|source| write_error(&path, source))?;
            if bytes == 0 {
                continue;
            }
            let query = LogQuery { stream, attempt: Some(attempt.attempt), ..LogQuery::default() };
            let (_, parts) = client.log(&task.id, &query).await?;
            let mut parts = Box::pin(parts);
            while let Some(part) = parts.next().await {
                file = write_part(file, part?).await.map_err(|source| write_error(&path, source))?;
            }
        }
        let text = serde_json::to_string_pretty(task).expect("tasks always serialize");
        // It appears whole or not at all, whenever this process is killed.
        let part = dir.join("result.json.part");
        std::fs::write(&part, text + "\n").map_err(|source| write_error(&part, source))?;
        std::fs::rename(&part, &result).map_err(|source| write_error(&result, source))
    }
}

/// Writes on another thread: a directory on a slow disk must not delay Ctrl-C.
async fn write_part(mut file: File, part: Vec<u8>) -> io::Result<File> {
    let written = tokio::task::spawn_blocking(move || file.write_all(&part).map(|()| file)).await;
    written.unwrap_or_else(|ended| Err(io::Error::other(ended)))
}

fn write_error(path: &Path, source: io::Error) -> KeepError {
    KeepError::Write { path: path.to_owned(), source }
}

/// The task's id, padded so that names sort by index, and what a name can have of its value: `12.007-a_b.c`. The part
/// before the dash is an id that commands take.
fn directory_name(task: &Task, tasks: u32) -> String {
    let digits = tasks.saturating_sub(1).to_string().len();
    let id = format!("{}.{:0digits$}", task.job, task.index);
    let Some(value) = task.value.as_deref().filter(|value| !value.is_empty()) else { return id };
    let plain = |c: char| if c.is_alphanumeric() || "._+=-".contains(c) { c } else { '_' };
    format!("{id}-{}", value.chars().take(VALUE_CHARS_MAX).map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_api::{Attempt, TaskState};

    fn task(index: u32, value: Option<&str>) -> Task {
        Task {
            failure: None,
            id: format!("12.{index}"),
            job: 12,
            index,
            step: "main".to_owned(),
            value: value.map(str::to_owned),
            state: TaskState::Succeeded,
            progress: None,
            status: None,
            jobserver: None,
            expected_end_ms: None,
            attempt: Attempt::default(),
            history: Vec::new(),
        }
    }

    #[test]
    fn a_directory_is_named_by_the_task_and_its_value() {
        assert_eq!(directory_name(&task(0, None), 1), "12.0");
        assert_eq!(directory_name(&task(7, Some("src/a b.c")), 101), "12.007-src_a_b.c");
        assert_eq!(directory_name(&task(7, Some("")), 10), "12.7");
        assert_eq!(directory_name(&task(1, Some("größe")), 2), "12.1-größe");
    }

    proptest! {
        /// The properties of a name: it is one component of a path, it fits into a file system, and no other task has it.
        #[test]
        fn no_value_leads_out_of_the_directory(value in "\\PC*|.*", index in 0u32..2000) {
            let name = directory_name(&task(index, Some(&value)), 2000);
            prop_assert!(!name.contains(['/', '\\', '\0', '\n']) && name.len() <= 255, "{}", name);
            prop_assert_eq!(Path::new(&name).components().count(), 1);
            let id = format!("12.{index:04}");
            prop_assert!(name.starts_with(&id));
        }
    }
}
