//! The fields that a job's machine needs and its author leaves out: kernel, initial file systems, kernel parameters,
//! the machine's hardware, and the scheduler's address. They are filled in when a host gets the job. The author's own
//! fields stay, except for `services`: these hold the addresses at which this host reaches the scheduler.

mod filling;
mod initrds;
mod kernel;
mod machine;
mod upload_dirs;

pub(crate) use filling::{DEFAULT_SERVER, Filling, Unfilled, is_private};
pub(crate) use initrds::job_archive_path;
pub(crate) use machine::machine_fields;
pub(crate) use upload_dirs::upload_dirs;
