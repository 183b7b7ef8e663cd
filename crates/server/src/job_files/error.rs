//! Why files of jobs are not given or taken, in the words of HTTP, of gRPC, and of the agent in this process.

use crate::api_error::ApiError;
use crate::cas::CacheTrouble;
use crate::unavailable::Unavailable;
use std::fmt;
use std::io;
use tonic::{Code, Status};
use windlass_api::ErrorCode;
use windlass_cas::tree::TreeError;
use windlass_cas::{CasError, Digest, DigestError};
use windlass_core::{JobId, TaskId};
use windlass_store::StoreError;

/// Missing files that an error names.
const SHOWN_MAX: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesTrouble {
    #[error(transparent)]
    Cache(#[from] CacheTrouble),
    #[error("{what} is not HASH/BYTES: {source}")]
    Digest { what: String, source: DigestError },
    #[error("{what}: {source}")]
    Tree { what: String, source: TreeError },
    #[error("{what}: {} {}: {}", .missing.len(), not_uploaded(.missing), shown(.missing))]
    NotUploaded { what: String, missing: Vec<Digest> },
    #[error("the files of job {0} are not here any more, because the store had no room for them")]
    Gone(JobId),
    #[error("{0} files of the outputs are not here")]
    OutputsMissing(usize),
    #[error("task {task} gets the outputs of more than {roots_max} tasks")]
    ManyRoots { task: TaskId, roots_max: usize },
    #[error("the step of task {0} has no files")]
    NoFiles(TaskId),
    #[error("a message does not say {0}")]
    Lacks(&'static str),
    #[error(transparent)]
    Away(#[from] Unavailable),
}

fn not_uploaded(missing: &[Digest]) -> &'static str {
    if missing.len() == 1 {
        "file was not uploaded by you, or is gone"
    } else {
        "files were not uploaded by you, or are gone"
    }
}

/// The first of them.
fn shown(missing: &[Digest]) -> String {
    let names: Vec<String> = missing.iter().take(SHOWN_MAX).map(Digest::to_string).collect();
    let more = if missing.len() > SHOWN_MAX { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

impl From<CasError> for FilesTrouble {
    fn from(error: CasError) -> Self {
        CacheTrouble::from(error).into()
    }
}

impl From<io::Error> for FilesTrouble {
    fn from(error: io::Error) -> Self {
        CacheTrouble::from(error).into()
    }
}

impl From<StoreError> for FilesTrouble {
    fn from(error: StoreError) -> Self {
        Unavailable::from_store(&error).into()
    }
}

impl FilesTrouble {
    fn code(&self) -> Code {
        match self {
            FilesTrouble::Cache(trouble) => trouble.code(),
            FilesTrouble::Digest { .. }
            | FilesTrouble::Tree { .. }
            | FilesTrouble::ManyRoots { .. }
            | FilesTrouble::Lacks(_) => Code::InvalidArgument,
            FilesTrouble::NotUploaded { .. } | FilesTrouble::Gone(_) | FilesTrouble::NoFiles(_) => {
                Code::NotFound
            }
            FilesTrouble::OutputsMissing(_) => Code::FailedPrecondition,
            FilesTrouble::Away(_) => Code::Unavailable,
        }
    }

    pub fn into_status(self) -> Status {
        Status::new(self.code(), self.to_string())
    }

    pub fn into_api_error(self) -> ApiError {
        let message = self.to_string();
        match self {
            FilesTrouble::Cache(trouble) => trouble.into_api_error(),
            FilesTrouble::NotUploaded { .. } => ApiError::new(ErrorCode::BadRequest, message)
                .hint("ask POST /api/v1/files/missing which files to upload, upload them, and submit again"),
            FilesTrouble::Gone(_) => ApiError::new(ErrorCode::Conflict, message)
                .hint("submit the job again: what is missing is uploaded then; more room is cas.bytes"),
            FilesTrouble::Away(why) => why.into(),
            _ => ApiError::new(ErrorCode::BadRequest, message),
        }
    }
}

/// Whose fault it is that files are not given or taken, and so what the agent does about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilesFault {
    /// The attempt is not booked, or not any more: it is given up.
    Attempt,
    /// The job's own: its files are gone, or break a rule.
    Job,
    /// Files of the outputs are missing: they are uploaded, and this is tried again.
    Outputs,
    /// It passes: too much is under way, the store or the user's day is full, or the database is away.
    Passing,
    /// A defect of the server.
    Server,
}

/// Why the files of an attempt are not given or taken. It is shown as what failed, why and what to do.
#[derive(Clone, Debug)]
pub struct FilesError {
    /// Whose fault it is.
    pub fault: FilesFault,
    why: String,
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for FilesError {}

impl From<FilesTrouble> for FilesError {
    fn from(trouble: FilesTrouble) -> Self {
        let fault = match trouble.code() {
            Code::PermissionDenied | Code::Unauthenticated => FilesFault::Attempt,
            Code::NotFound | Code::InvalidArgument | Code::OutOfRange => FilesFault::Job,
            Code::FailedPrecondition => FilesFault::Outputs,
            Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Cancelled => {
                FilesFault::Passing
            }
            _ => FilesFault::Server,
        };
        FilesError { fault, why: trouble.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_word() {
        let fault = |trouble: FilesTrouble| FilesError::from(trouble).fault;
        let not_booked = CacheTrouble::NotBooked("7.0.1".to_owned());
        assert_eq!(fault(not_booked.into()), FilesFault::Attempt);
        assert_eq!(fault(FilesTrouble::Gone(JobId(7))), FilesFault::Job);
        assert_eq!(fault(FilesTrouble::OutputsMissing(3)), FilesFault::Outputs);
        assert_eq!(fault(CacheTrouble::Busy.into()), FilesFault::Passing);
        assert_eq!(fault(CacheTrouble::Defect.into()), FilesFault::Server);
        assert!(FilesTrouble::from(CacheTrouble::Defect).code() == Code::Internal);
    }

    #[test]
    fn missing_files_are_named_up_to_a_few() {
        let missing = |count: u8| {
            let missing = (0..count).map(|seed| Digest { hash: [seed; 32], size: 1 }).collect();
            FilesTrouble::NotUploaded { what: "step 'main'".to_owned(), missing }.to_string()
        };
        assert!(missing(1).starts_with("step 'main': 1 file was not uploaded by you"), "{}", missing(1));
        assert!(missing(5).contains("5 files were not uploaded") && missing(5).ends_with(", …"));
        assert_eq!(missing(5).matches("/1").count(), SHOWN_MAX);
    }
}
