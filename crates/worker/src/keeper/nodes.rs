//! Files that name the workers of tasks that started together, one on each line, in the order of their ranks. A program
//! such as `mpirun` finds its hosts there.

use crate::protocol::{Nodes, TaskRef};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory of the files in the worker's directory.
pub const NODES: &str = "nodes";

/// The files of attempts that hold one.
pub struct NodeFiles {
    dir: PathBuf,
    held: BTreeMap<TaskRef, NodePlace>,
}

struct NodePlace {
    rank: u32,
    count: usize,
}

impl NodeFiles {
    /// The files below a worker's directory.
    pub fn new(state: &Path) -> Self {
        NodeFiles { dir: state.join(NODES), held: BTreeMap::new() }
    }

    /// Removes what an earlier keeper left.
    pub fn clear(&self) {
        _ = fs::remove_dir_all(&self.dir);
    }

    /// Writes the file of an attempt, before it starts. Any user may read it: tasks may have the rights of another.
    pub fn write(&mut self, task: TaskRef, nodes: &Nodes) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o711).create(&self.dir)?;
        let path = self.path(task);
        _ = fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        self.held.insert(task, NodePlace { rank: nodes.rank, count: nodes.workers.len() });
        file.write_all(nodes.workers.iter().map(|name| format!("{name}\n")).collect::<String>().as_bytes())
    }

    /// The attempt is over.
    pub fn remove(&mut self, task: TaskRef) {
        if self.held.remove(&task).is_some() {
            _ = fs::remove_file(self.path(task));
        }
    }

    /// The variables that name the attempt's file; empty if it has none.
    pub fn variables(&self, task: TaskRef) -> Vec<(&'static str, String)> {
        let Some(held) = self.held.get(&task) else { return Vec::new() };
        vec![
            ("WINDLASS_NODE", held.rank.to_string()),
            ("WINDLASS_NODES", held.count.to_string()),
            ("WINDLASS_NODE_FILE", self.path(task).to_string_lossy().into_owned()),
        ]
    }

    /// After an upgrade of the keeper: this attempt still runs and has its file.
    pub fn adopt(&mut self, task: TaskRef, nodes: &Nodes) {
        self.held.insert(task, NodePlace { rank: nodes.rank, count: nodes.workers.len() });
    }

    fn path(&self, task: TaskRef) -> PathBuf {
        self.dir.join(format!("{}.{}.{}", task.job, task.index, task.attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_the_workers_until_its_attempt_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = NodeFiles::new(dir.path());
        let task = TaskRef { job: 7, index: 1, attempt: 2 };
        assert_eq!(files.variables(task), []);
        let nodes = Nodes { rank: 1, workers: vec!["a".to_owned(), "b".to_owned()] };
        files.write(task, &nodes).expect("it is written");
        let variables = files.variables(task);
        assert_eq!(variables[0], ("WINDLASS_NODE", "1".to_owned()));
        assert_eq!(variables[1], ("WINDLASS_NODES", "2".to_owned()));
        assert_eq!(fs::read_to_string(&variables[2].1).expect("a file"), "a\nb\n");
        files.remove(task);
        assert!(!Path::new(&variables[2].1).exists());
        files.write(task, &nodes).expect("again");
        NodeFiles::new(dir.path()).clear();
        assert!(!Path::new(&variables[2].1).exists());
    }
}
