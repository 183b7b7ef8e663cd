//! The commands: their flags, what they ask of a server, and what they print.

pub mod args;
pub mod bench;
pub mod ca;
pub mod compass;
pub mod compass_import;
pub mod docs;
pub mod doctor;
pub mod follow;
pub mod gateway;
pub mod hints;
pub mod limit;
pub mod list;
pub mod logs;
pub mod placement;
pub mod queue;
pub mod run;
pub mod select;
pub mod server;
pub mod show;
pub mod sim;
pub mod template;
pub mod token;
pub mod verbs;
pub mod why;
pub mod worker;
