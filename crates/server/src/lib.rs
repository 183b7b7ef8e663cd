//! The shell around the engine.
//!
//! One task owns the [`Engine`](windlass_core::Engine) and talks to the store: it handles what comes
//! in, commits what the engine wants written, and only then sends and answers. Everybody else has a
//! [`Handle`]. HTTP is a client of the handle like any other.

mod audit;
pub mod auth;
mod background;
mod bodies;
mod body_reads;
mod bounded_json;
mod clock;
mod config;
mod disk;
mod door;
mod events;
mod external;
mod figures;
mod gateway;
mod grpc;
mod handle;
mod http;
mod link;
mod listen;
mod metrics;
mod network;
mod noted_path;
mod outgoing;
mod panics;
mod peers;
mod progress;
mod refusals;
mod retention;
mod shell;
mod spans;
mod tls;
mod view;

pub use bounded_json::{BadJson, JsonLimits, read_json};
pub use config::{
    AuthConfig, BoardConfig, Charge, CompassConfig, Config, ConfigError, Lease, Reads, SccacheConfig,
    TelemetryConfig, Tls as TlsConfig,
};
pub use door::{BoardOptions, TOKEN_CHARS_MIN, TokenDoor, TokenDoorError};
pub use events::Subscription;
pub use external::ExternalOrder;
pub use gateway::{Counting, Front, Gateway, Gateways, Starting};
pub use grpc::WorkerTerms;
pub use handle::{Handle, Unavailable};
pub use http::{
    Admission, ApiError, OPENAPI_PATH, OpenRequest, Reader, ServeOptions, UserLimits, openapi, serve,
};
pub use link::{
    Delivery, LogChunk, LogFuture, LogRequest, Progress, SentBodies, StartInfo, WorkerLink, WorkerMessage,
};
pub use listen::{
    ListenError, Listener, PortLimits, PortRefusal, Protection, RoomLimits, serve_port, serve_port_to,
};
pub use panics::end_process_on_panic;
pub use peers::{KnownOwner, NoServerKey, OwnerWatch, ServerKey, StandBy, since_boot};
pub use retention::Retention;
pub use shell::{ShellOptions, start};
pub use spans::SPANS;
pub use tls::{TlsError, server_config};
