//! The worker protocol's promises: servers, agents and keepers are upgraded independently, and invalid messages disturb
//! only their sender.

mod board;
mod garbage;
mod golden;
mod growth;
mod keeper;
mod later;
mod measure;
mod phases;
mod place;
mod play;
mod record;
mod stream;
