//! Files by their content. A [`Cas`] keeps blobs under their [`Digest`], encoded results of actions, and pins. What was
//! not used for longest is evicted when the store is nearly full.
//!
//! Calls block. No function reads a clock: callers give the time where one is needed.

pub mod digest;
pub mod error;
mod faults;
mod files;
mod index;
pub mod proto;
mod rows;
pub mod store;
pub mod tree;

pub use digest::{Digest, DigestError, Hasher};
pub use error::CasError;
pub use files::SMALL_BYTES_MAX;
pub use index::{CasFigures, Space};
pub use store::{Blob, BlobWriter, Cas, CasConfig, Swept, SyncPolicy};
