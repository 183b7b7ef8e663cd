//! Where tests let the store fail, as a full disk or the end of the process would.

use std::io;
use std::sync::Arc;

/// What the store is about to do to its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    MakeDir,
    Create,
    Write,
    Sync,
    Commit,
    Rename,
    SyncDir,
    Remove,
}

/// Says before each step whether it fails. Only tests give one.
pub(crate) type Fault = Arc<dyn Fn(Step) -> io::Result<()> + Send + Sync>;

/// The faults of an open store; as a rule there are none.
#[derive(Clone, Default)]
pub(crate) struct Faults(pub Option<Fault>);

impl Faults {
    /// The error that the step meets, if a test says so.
    pub fn at(&self, step: Step) -> io::Result<()> {
        match &self.0 {
            Some(fault) => fault(step),
            None => Ok(()),
        }
    }
}
