//! Files of tasks, as their user sees them: what is uploaded before a submission, and what is fetched after it.
//!
//! `args` has the flags. `gather` finds the files and their digests, and `upload` sends what the server lacks. `fetch` asks
//! which outputs there are, `download` gets them, and `unpack` writes them to a directory. `shown` says which files a job
//! has.

pub mod args;
pub mod download;
pub mod fetch;
pub mod gather;
pub mod known;
pub mod shown;
pub mod unpack;
pub mod upload;
