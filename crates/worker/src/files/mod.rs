//! The agent's part in files of tasks. For each attempt whose step has files, the keeper asks for a directory before it
//! starts and for its outputs when it has ended. The agent fetches what the worker's cache lacks, makes the directory for
//! the task's user, and afterwards uploads what the server lacks of the outputs.
//!
//! - Everything is done on threads of its own, of which there are few. The thread that hears the keeper only queues.
//! - The keeper repeats its questions after each hello, so what is under way is not begun again, and what is answered is
//!   answered again. The agent may be killed at any moment.
//! - What tasks left in their directories is never trusted, least of all by an agent that is root.

mod cache;
mod dirs;
mod input_keys;
mod inputs;
mod news;
mod outputs;
mod over_grpc;
mod server;
mod trees;
mod trouble;
mod work;

pub use cache::FileCache;
pub use dirs::FileDirs;
pub use inputs::InputBlobs;
pub use over_grpc::RemoteFiles;
pub use server::{
    BlobReader, BlobStore, FileCall, FileServer, Patience, TakeBlob, TakePart, UploadBytes, patiently,
};
pub use trouble::{FileFault, FileTrouble};
pub use work::{AgentFiles, FileParts, FileWork};

#[cfg(test)]
mod tests;
