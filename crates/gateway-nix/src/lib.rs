//! Nix's build hook: every derivation that an unmodified Nix would build on a remote machine gets its place from Windlass.
//!
//! [`hook`] is the program that Nix runs for each derivation. It speaks Nix's protocol on one side and asks the server for
//! a place on the other; the copying and the building are done by Nix's own hook, which is told of one machine only.
//! [`service`] is the server's side: a build is an external task of the engine, and machines that are no workers become
//! workers without an agent. [`wire`] is what both tell each other.

pub mod hook;
pub mod service;
pub mod wire;

pub use service::NixGateway;

use std::os::unix::fs::MetadataExt as _;
use windlass_core::hash::Fnv;

/// What tells the store at `/nix/store` from all others that processes could see: the kernel that runs, and the directory.
/// The same to a client and a worker of one machine; `None` where there is no store.
pub fn store_id() -> Option<String> {
    let kernel = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let store = std::fs::metadata("/nix/store").ok()?;
    let mut id = Fnv::default();
    id.bytes(&kernel);
    id.bytes(&store.dev().to_le_bytes());
    id.bytes(&store.ino().to_le_bytes());
    Some(format!("{:016x}", id.value()))
}
