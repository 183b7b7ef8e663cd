//! The shell around the engine.
//!
//! One task owns the [`Engine`](windlass_core::Engine) and talks to the store: it handles what comes
//! in, commits what the engine wants written, and only then sends and answers. Everybody else has a
//! [`Handle`]. HTTP is a client of the handle like any other.

mod bodies;
mod config;
mod events;
mod handle;
mod http;
mod link;
mod metrics;
mod progress;
mod retention;
mod shell;

pub use config::{Config, ConfigError, Worker as WorkerConfig};
pub use handle::{Handle, Unavailable};
pub use http::{ListenError, Listener, OPENAPI_PATH, openapi, serve};
pub use link::{Deliver, Delivery, LogChunk, LogRequest, LogSource, Progress, StartInfo, WorkerMessage};
pub use retention::Retention;
pub use shell::{ShellOptions, start};
