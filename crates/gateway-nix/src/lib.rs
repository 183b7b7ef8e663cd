//! Nix's build hook. Each derivation that an unmodified Nix would build on a remote machine gets its place from
//! Windlass.
//!
//! [`hook`] is the program that Nix runs for each derivation. It speaks Nix's protocol on one side, and asks the server
//! for a place on the other. Nix's own hook copies and builds, and is told of one machine only. [`service`] is the
//! server's side: a build is an external task of the engine, and each of a client's machines that runs no worker of
//! Windlass becomes a worker of the engine. [`wire`] has their messages.

pub mod hook;
pub mod service;
pub mod wire;

pub use service::NixGateway;

use std::os::unix::fs::MetadataExt as _;
use windlass_core::hash::Fnv;

/// An identity of the store at `/nix/store`, made of the running kernel and the directory. A client and a worker on one
/// machine get the same; `None` if there is no store.
pub fn store_id() -> Option<String> {
    let kernel = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let store = std::fs::metadata("/nix/store").ok()?;
    let mut id = Fnv::default();
    id.bytes(&kernel);
    id.bytes(&store.dev().to_le_bytes());
    id.bytes(&store.ino().to_le_bytes());
    Some(format!("{:016x}", id.value()))
}
