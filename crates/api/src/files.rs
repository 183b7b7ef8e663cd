//! Files of a step: what its tasks find in a directory of their own, and what is kept of it when they end. Files are named
//! by content, as the Remote Execution API names them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most globs of outputs of a step.
pub const OUTPUT_GLOBS_MAX: usize = 100;
/// Most bytes of one glob.
pub const OUTPUT_GLOB_BYTES_MAX: usize = 1_024;
/// Most blobs that one request asks about.
pub const BLOBS_ASKED_MAX: usize = 10_000;
/// Most bytes of the body of one request that uploads several blobs. A larger blob has a request of its own.
pub const BLOB_BATCH_BYTES_MAX: usize = 8 << 20;

/// The instance of the Remote Execution API over which workers read inputs and write outputs. Clients of the remote cache
/// have no access to it.
pub const JOB_FILES_INSTANCE: &str = "windlass-jobs";
/// Metadata of such calls: the attempt that they are for, as `JOB.INDEX.ATTEMPT`.
pub const ATTEMPT_METADATA: &str = "windlass-attempt";

/// Files of a step's tasks. With them each task runs in a new directory of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepFiles {
    /// The tree of inputs, which was uploaded before: `HASH/BYTES`, the SHA-256 and the length of its root `Directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Names of earlier steps, of which the outputs are put into the directory too. The step depends on each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs_of: Vec<String>,
    /// Globs of what is kept when a task ends, however it ends: `*.o`, `build/**`. Paths are those below the task's
    /// directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The standard input of each task, which was uploaded before: `HASH/BYTES`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

/// Why the files of a step are refused.
// The messages say what the fields are.
#[allow(missing_docs)]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StepFilesError {
    #[error(
        "files and a session exclude each other, because a session has a directory of its own, and a step with named \
         parameters has one; leave out one of them, or give the values as a list or a range"
    )]
    Session,
    #[error("files are of one task, and {0} of this step start together; leave out nodes, or the files")]
    Nodes(u32),
    #[error(
        "the working directory '{0}' is not one inside the task's directory, in which its files are; give a relative \
         path without '..', or leave it out"
    )]
    Cwd(String),
    #[error(
        "{0} globs of outputs are too many: at most {OUTPUT_GLOBS_MAX}; name a directory, as in 'build/**'"
    )]
    ManyGlobs(usize),
    #[error("a glob of outputs has {0} bytes, more than the limit of {OUTPUT_GLOB_BYTES_MAX}; shorten it")]
    LongGlob(usize),
    #[error(
        "outputs_of names '{0}', on which the step does not depend; add that step to depends, or leave it out"
    )]
    NoDependency(String),
    #[error(
        "outputs_of names '{0}', which keeps no outputs; give that step globs of outputs, or leave it out"
    )]
    NoOutputs(String),
    #[error(
        "outputs_of names '{0}', and one process may run several of its tasks or of this step's: depend on the whole \
         step, or leave out chunks"
    )]
    Chunks(String),
}

impl StepFiles {
    /// Checks what is about one step alone. Whether globs and digests can be read the server says.
    pub(crate) fn check(
        &self,
        cwd: Option<&str>,
        has_session: bool,
        nodes: u32,
    ) -> Result<(), StepFilesError> {
        if has_session {
            return Err(StepFilesError::Session);
        }
        if nodes > 1 {
            return Err(StepFilesError::Nodes(nodes));
        }
        if let Some(cwd) = cwd.filter(|cwd| !is_inside(cwd)) {
            return Err(StepFilesError::Cwd(cwd.to_owned()));
        }
        if self.outputs.len() > OUTPUT_GLOBS_MAX {
            return Err(StepFilesError::ManyGlobs(self.outputs.len()));
        }
        match self.outputs.iter().map(String::len).find(|bytes| *bytes > OUTPUT_GLOB_BYTES_MAX) {
            Some(bytes) => Err(StepFilesError::LongGlob(bytes)),
            None => Ok(()),
        }
    }
}

/// What is checked of a step with regard to others.
pub(crate) struct LinkedStep<'a> {
    pub name: &'a str,
    pub files: Option<&'a StepFiles>,
    /// The steps on which it depends, and whether task by task.
    pub depends: Vec<(&'a str, bool)>,
    /// One process may run several of its tasks.
    pub is_chunked: bool,
}

/// Checks that steps get outputs only of steps on which they depend, and that it is known of which tasks. The error names
/// the step.
pub(crate) fn check_links(steps: &[LinkedStep<'_>]) -> Result<(), (String, StepFilesError)> {
    for step in steps {
        for on in step.files.iter().flat_map(|files| &files.outputs_of) {
            let fault = |why: fn(String) -> StepFilesError| (step.name.to_owned(), why(on.clone()));
            let depends = step.depends.iter().find(|(first, _)| first == on);
            let first = steps.iter().find(|first| first.name == on);
            let (Some((_, by_task)), Some(first)) = (depends, first) else {
                return Err(fault(StepFilesError::NoDependency));
            };
            if first.files.is_none_or(|files| files.outputs.is_empty()) {
                return Err(fault(StepFilesError::NoOutputs));
            }
            // Outputs are those of the process, which belong to the first of its tasks.
            if *by_task && (step.is_chunked || first.is_chunked) {
                return Err(fault(StepFilesError::Chunks));
            }
        }
    }
    Ok(())
}

/// True of a working directory that is inside the task's own one.
fn is_inside(cwd: &str) -> bool {
    let leads_out = cwd.starts_with('/') || cwd.split('/').any(|name| name == "..");
    !cwd.is_empty() && !cwd.contains('\0') && !leads_out
}

/// A question which blobs must be uploaded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskBlobs {
    /// Up to 10,000, each as `HASH/BYTES`.
    pub blobs: Vec<String>,
}

/// The blobs that must be uploaded, because the user has not uploaded them before, or because they are gone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MissingBlobs {
    /// Each as `HASH/BYTES`, in the order of the question.
    pub missing: Vec<String>,
}

/// What was kept of the directories of a job's tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct JobFiles {
    /// Steps with files, in the order of the job.
    pub steps: Vec<StepFilesOf>,
    /// The outputs of tasks, in their order. Of a page of tasks.
    pub outputs: Vec<TaskOutputs>,
    /// The index of the task with which the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// The files of one step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StepFilesOf {
    /// The name of the step.
    pub step: String,
    /// Its inputs and outputs, as submitted.
    #[serde(flatten)]
    pub files: StepFiles,
    /// Files in the tree of inputs; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_files: Option<u64>,
    /// Bytes of the tree of inputs; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
}

/// The outputs of one task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TaskOutputs {
    /// The task's place in the job.
    pub index: u32,
    /// The attempt that made them.
    pub attempt: u32,
    /// The tree: `HASH/BYTES` of its root `Directory`.
    pub root: String,
    /// Files in the tree.
    pub files: u64,
    /// Bytes of these files, each counted wherever it is.
    pub bytes: u64,
    /// What was not kept, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_s_files_are_in_a_directory_of_its_own() {
        let files = StepFiles { outputs: vec!["*.o".to_owned()], ..StepFiles::default() };
        for cwd in [None, Some("."), Some("src/x"), Some("..x")] {
            assert_eq!(files.check(cwd, false, 1), Ok(()), "{cwd:?}");
        }
        for cwd in ["", "/", "/src", "..", "a/../..", "a\0"] {
            assert_eq!(files.check(Some(cwd), false, 1), Err(StepFilesError::Cwd(cwd.to_owned())));
        }
        assert_eq!(files.check(None, true, 1), Err(StepFilesError::Session));
        assert_eq!(files.check(None, false, 2), Err(StepFilesError::Nodes(2)));
    }

    #[test]
    fn globs_of_outputs_are_bounded() {
        let check =
            |globs: Vec<String>| StepFiles { outputs: globs, ..StepFiles::default() }.check(None, false, 1);
        assert_eq!(check(vec!["*".to_owned(); OUTPUT_GLOBS_MAX]), Ok(()));
        let many = OUTPUT_GLOBS_MAX + 1;
        assert_eq!(check(vec!["*".to_owned(); many]), Err(StepFilesError::ManyGlobs(many)));
        let long = OUTPUT_GLOB_BYTES_MAX + 1;
        assert_eq!(check(vec!["x".repeat(long)]), Err(StepFilesError::LongGlob(long)));
    }

    #[test]
    fn outputs_are_of_steps_that_come_before_and_keep_some() {
        let keeps = StepFiles { outputs: vec!["*.o".to_owned()], ..StepFiles::default() };
        let wants = StepFiles { outputs_of: vec!["compile".to_owned()], ..StepFiles::default() };
        let check = |keeps: Option<&StepFiles>, depends: Vec<(&str, bool)>, chunked: (bool, bool)| {
            let first =
                LinkedStep { name: "compile", files: keeps, depends: Vec::new(), is_chunked: chunked.0 };
            let then = LinkedStep { name: "link", files: Some(&wants), depends, is_chunked: chunked.1 };
            check_links(&[first, then])
        };
        let of = || "compile".to_owned();
        let refused = |why| Err(("link".to_owned(), why));
        let none = (false, false);
        for by_task in [false, true] {
            assert_eq!(check(Some(&keeps), vec![("compile", by_task)], none), Ok(()));
        }
        assert_eq!(check(Some(&keeps), vec![], none), refused(StepFilesError::NoDependency(of())));
        let other = vec![("test", false)];
        assert_eq!(check(Some(&keeps), other, none), refused(StepFilesError::NoDependency(of())));
        let depends = |by_task| vec![("compile", by_task)];
        assert_eq!(check(None, depends(false), none), refused(StepFilesError::NoOutputs(of())));
        assert_eq!(
            check(Some(&StepFiles::default()), depends(false), none),
            refused(StepFilesError::NoOutputs(of()))
        );
        for chunked in [(true, false), (false, true)] {
            assert_eq!(check(Some(&keeps), depends(false), chunked), Ok(()));
            let by_task = check(Some(&keeps), depends(true), chunked);
            assert_eq!(by_task, refused(StepFilesError::Chunks(of())));
        }
    }

    #[test]
    fn files_of_a_step_are_told_with_its_name() {
        let text = r#"{"step":"compile","outputs":["*.o"],"input_files":3}"#;
        let told: StepFilesOf = serde_json::from_str(text).unwrap();
        assert_eq!((told.files.outputs.len(), told.input_files, told.input_bytes), (1, Some(3), None));
        assert_eq!(serde_json::to_string(&told).unwrap(), text);
    }
}
