//! The shell around the engine.
//!
//! One task owns the [`Engine`](windlass_core::Engine) and talks to the store: it handles what comes
//! in, commits what the engine wants written, and only then sends and answers. Everybody else has a
//! [`Handle`]. HTTP is a client of the handle like any other.

mod bodies;
mod config;
mod events;
mod grpc;
mod handle;
mod http;
mod link;
mod metrics;
mod retention;
mod shell;

pub use config::{Config, ConfigError, Lease};
pub use grpc::WorkerTerms;
pub use handle::{Handle, Unavailable};
pub use http::{ListenError, Listener, OPENAPI_PATH, openapi, serve};
pub use link::{Delivery, LogChunk, LogFuture, LogRequest, StartInfo, WorkerLink, WorkerMessage};
pub use retention::Retention;
pub use shell::{ShellOptions, start};
