//! Names: of blobs as requests have them, and of owners in the store of files.
//!
//! | owner | what it has |
//! |---|---|
//! | `tree/HASH-BYTES`, `blob/HASH-BYTES` | pins of an input, shared by all jobs that need it |
//! | `in/JOB` | a note that the job needs its inputs, until it ends |
//! | `job/JOB` | notes: number 0 says what its inputs are, number INDEX + 1 what was kept of a task |
//! | `job/JOB/INDEX/ATTEMPT` | pins of outputs |

use super::error::FilesTrouble;
use windlass_cas::{Digest, DigestError};
use windlass_core::{JobId, TaskId};

/// The beginnings of the owners' names.
pub(super) const INPUTS: &str = "in/";
pub(super) const JOBS: &str = "job/";
pub(super) const PINNED: [&str; 2] = ["tree/", "blob/"];

/// Reads `HASH/BYTES`. `what` says what it is, for people.
pub(crate) fn digest_of(text: &str, what: impl Into<String>) -> Result<Digest, FilesTrouble> {
    parse(text, '/').map_err(|source| FilesTrouble::Digest { what: what.into(), source })
}

fn parse(text: &str, between: char) -> Result<Digest, DigestError> {
    let (hash, bytes) = text.split_once(between).unwrap_or((text, ""));
    let is_number = !bytes.is_empty() && bytes.bytes().all(|byte| byte.is_ascii_digit());
    // Each blob has one name.
    let is_plain = is_number && (bytes == "0" || !bytes.starts_with('0'));
    Digest::parse(hash, bytes.parse().ok().filter(|_| is_plain).unwrap_or(-1))
}

/// One of the inputs that jobs need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum InputKey {
    /// A tree with all that is in it, by its root.
    Tree(Digest),
    /// One file without a tree.
    Blob(Digest),
}

impl InputKey {
    /// The name of its pins.
    pub fn owner(self) -> String {
        let (kind, digest) = match self {
            InputKey::Tree(digest) => (PINNED[0], digest),
            InputKey::Blob(digest) => (PINNED[1], digest),
        };
        format!("{kind}{}-{}", digest.hex(), digest.size)
    }

    /// The input of such a name; `None` of another one.
    pub fn parse(owner: &str) -> Option<InputKey> {
        let [tree, blob] = PINNED.map(|kind| owner.strip_prefix(kind));
        match (tree, blob) {
            (Some(name), _) => parse(name, '-').ok().map(InputKey::Tree),
            (_, Some(name)) => parse(name, '-').ok().map(InputKey::Blob),
            _ => None,
        }
    }
}

/// The owner of the note that a job needs its inputs.
pub(super) fn needs_inputs(job: JobId) -> String {
    format!("{INPUTS}{job}")
}

/// The owner of all that is kept of a job.
pub(super) fn of_job(job: JobId) -> String {
    format!("{JOBS}{job}")
}

/// The owner of the pins of an attempt's outputs.
pub(super) fn of_outputs(task: TaskId, attempt: u32) -> String {
    format!("{JOBS}{}/{}/{attempt}", task.job, task.index)
}

/// The number of the note with a task's outputs.
pub(super) fn outputs_number(index: u32) -> u64 {
    u64::from(index) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_blob_has_one_name() {
        let digest = digest_of(&format!("{HEX}/12"), "root").unwrap();
        assert_eq!((digest.size, digest.to_string()), (12, format!("{HEX}/12")));
        let long = "9".repeat(40);
        for bytes in ["", "-1", "+1", "01", "x", "1/2", " 1", &long] {
            let refused = digest_of(&format!("{HEX}/{bytes}"), "root").unwrap_err().to_string();
            assert!(refused.contains("root is not HASH/BYTES"), "{refused}");
        }
        for text in ["", HEX, "/5", "../5", &format!("{}/5", HEX.to_uppercase())] {
            assert!(digest_of(text, "root").is_err(), "{text}");
        }
    }

    #[test]
    fn owners_are_read_as_they_are_written() {
        let digest = digest_of(&format!("{HEX}/12"), "root").unwrap();
        for key in [InputKey::Tree(digest), InputKey::Blob(digest)] {
            assert_eq!(InputKey::parse(&key.owner()), Some(key));
        }
        assert_eq!(InputKey::parse("job/7"), None);
        let task = TaskId { job: JobId(7), index: 3 };
        assert_eq!(of_outputs(task, 2), "job/7/3/2");
        assert!(of_outputs(task, 2).starts_with(&format!("{}/", of_job(task.job))));
    }
}
