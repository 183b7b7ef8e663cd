//! Files by their content. A [`Cas`] keeps blobs under their [`Digest`], encoded results of actions, and pins. What was
//! not used for longest is evicted when the store is nearly full.
//!
//! Calls block. No function reads a clock: callers give the time where one is needed.
//!
//! The store needs Linux. Elsewhere there are digests and [trees](tree), by which clients name what they upload.

pub mod digest;
#[cfg(target_os = "linux")]
pub mod error;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod holders;
#[cfg(target_os = "linux")]
mod index;
pub mod proto;
#[cfg(target_os = "linux")]
mod rows;
#[cfg(target_os = "linux")]
pub mod store;
pub mod tree;

pub use digest::{Digest, DigestError, Hasher};
#[cfg(target_os = "linux")]
pub use error::CasError;
#[cfg(target_os = "linux")]
pub use files::SMALL_BYTES_MAX;
#[cfg(target_os = "linux")]
pub use index::{CasFigures, Space};
#[cfg(target_os = "linux")]
pub use store::{Blob, BlobWriter, Cas, CasConfig, Swept, SyncPolicy};
