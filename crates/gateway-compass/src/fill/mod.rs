//! What a job's machine needs and its author does not write: kernel, initial file systems, kernel parameters, the
//! machine's hardware, and where the scheduler is. Filled in when a host gets the job. What the author wrote stays,
//! except for `services`, which says how this host reaches the scheduler.

mod filling;
mod initrds;
mod kernel;
mod machine;
mod upload_dirs;

pub(crate) use filling::{DEFAULT_SERVER, Filling, Unfilled, is_private};
pub(crate) use initrds::job_archive_path;
pub(crate) use machine::machine_fields;
pub(crate) use upload_dirs::upload_dirs;
