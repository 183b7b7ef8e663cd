//! The commands: their flags, their requests to a server, and their output.

pub mod api;
pub mod args;
pub mod array;
pub mod board;
pub mod builds;
pub mod ca;
pub mod compass;
pub mod completion;
pub mod docs;
pub mod dry_run;
pub mod events;
pub mod files;
pub mod follow;
pub mod hints;
pub mod job_wait;
pub mod limit;
pub mod list;
pub mod log_lines;
pub mod log_order;
pub mod logs;
pub mod mcp;
pub mod native;
pub mod on_end;
pub mod order;
pub mod queue;
#[cfg(test)]
#[path = "tests/reference.rs"]
mod reference;
pub mod run;
pub mod scheduler;
pub mod select;
pub mod server;
pub mod show;
pub mod shown;
pub mod story;
#[cfg(test)]
#[path = "tests/tables.rs"]
mod tables;
pub mod targets;
pub mod template;
pub mod tips;
pub mod token;
pub mod toml_lines;
pub mod top;
pub mod turns;
pub mod value_stream;
pub mod verbs;
pub mod view;
pub mod wanted;
pub mod why;
pub mod worker;

#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
pub mod machine;

// The commands of `machine` on Linux.
#[cfg(target_os = "linux")]
pub mod compass_import;
#[cfg(target_os = "linux")]
pub mod doctor;
#[cfg(target_os = "linux")]
pub mod gateway;
#[cfg(target_os = "linux")]
pub mod sim;
#[cfg(target_os = "linux")]
pub mod store;
