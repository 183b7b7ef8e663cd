//! The worker protocol's promises: agents and servers, agents and keepers are upgraded apart, and
//! whoever says nonsense disturbs nobody else.

mod board;
mod garbage;
mod golden;
mod keeper;
mod later;
mod measure;
mod place;
mod play;
mod record;
mod stream;
#[path = "../support/mod.rs"]
mod support;
