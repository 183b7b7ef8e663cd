//! The shell around the engine.
//!
//! One task owns the [`Engine`](windlass_core::Engine) and talks to the store: it handles the messages of its inbox,
//! commits what the engine wants written, and only then sends and answers. All other tasks have a [`Handle`]. HTTP is a
//! client of the handle like any other.
//!
//! The modules stand on floors: each uses only modules below it. The table is `SERVER_EDGES` of
//! `crates/cli/tests/tidy/edges.rs`.

mod activity;
mod api_error;
mod audit;
pub mod auth;
mod background;
mod bodies;
mod body_reads;
mod bounded_json;
mod caller;
mod cas;
mod clock;
mod config;
mod connections;
mod csrf;
mod disk;
mod door;
mod events;
mod external;
mod figures;
mod gateway;
mod grpc;
mod handle;
mod http;
mod inbox;
mod job_ends;
mod job_files;
mod link;
mod listen;
mod local_users;
mod metric_text;
mod metrics;
mod network;
mod noted_path;
mod notices;
mod notifier;
mod outgoing;
mod panics;
mod parsers;
mod peer;
mod peers;
mod per_key;
mod process_owner;
mod progress;
mod random;
mod reader;
mod refusals;
mod retention;
mod shell;
mod spans;
mod submission_rights;
mod tls;
mod token_end;
mod unavailable;
mod user_budget;
mod view;

pub use activity::OpenRequest;
pub use api_error::ApiError;
pub use bounded_json::{BadJson, JsonLimits, read_json};
pub use cas::{CacheOptions, RemoteCache, default_cas_bytes};
pub use config::{
    AuthConfig, BoardConfig, CasSettings, CompassConfig, Config, ConfigError, Lease, MachineConfig,
    NotifyConfig, Reads, SccacheConfig, Setting, TelemetryConfig, Tls as TlsConfig, UserLimits,
};
pub use connections::RoomLimits;
pub use door::{TOKEN_CHARS_MIN, TokenDoor, TokenDoorError};
pub use events::Subscription;
pub use external::ExternalOrder;
pub use gateway::{Counting, Front, Gateway, Gateways, Starting};
pub use grpc::WorkerTerms;
pub use handle::Handle;
pub use http::{Admission, OPENAPI_PATH, ServeOptions, StandBy, openapi, serve};
pub use job_files::{FilesError, FilesFault, JobBlobWriter, JobFiles};
pub use link::{
    BadReport, Delivery, LogChunk, LogFile, LogFuture, LogRequest, Progress, SentBodies, StartInfo,
    WorkerLink, WorkerMessage,
};
pub use listen::{ListenError, Listener, PortLimits, PortRefusal, Protection, serve_port};
pub use local_users::{AccountLookup, LocalClient, LocalUser, MachineUsers};
pub use metric_text::MetricFamily;
pub use notices::{NoticeRules, NotifyError};
pub use notifier::deliver_notices;
pub use panics::end_process_on_panic;
pub use peers::{KnownOwner, NoServerKey, OwnerWatch, ServerKey, since_boot};
pub use per_key::PerKey;
pub use random::{NoRandom, random};
pub use reader::Reader;
pub use retention::Retention;
pub use shell::{ShellOptions, start, start_telling};
pub use spans::SPANS;
pub use tls::{TlsError, server_config};
pub use unavailable::Unavailable;
