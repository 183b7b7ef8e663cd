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
