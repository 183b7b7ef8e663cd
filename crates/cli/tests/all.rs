//! All tests of the program as one program, which is linked once, but for those of `alone.rs`. Each file is a module:
//! `--test all crash::` runs one.

mod api;
mod bad_input;
mod board;
mod browser;
mod canaries;
mod cluster;
mod cluster_faults;
mod cluster_mail;
mod compass;
mod crash;
#[path = "../../store/tests/support/postgres.rs"]
mod database;
mod dependencies;
mod farm;
mod figures;
mod first_page;
mod front_door;
mod gateway;
mod gateway_bodies;
mod hostile;
mod limits;
mod manual;
mod neighbours;
mod nix;
mod old_output;
mod opencue;
mod opencue_board;
mod opencue_tls;
mod openjd;
mod packages;
mod packaging;
mod parked;
mod postgres;
mod protocol;
mod reach;
mod reference;
mod render;
mod replay;
mod run;
mod sccache;
mod security;
mod servers;
mod settings;
#[path = "support/opencue.rs"]
mod site;
mod strangers;
mod support;
mod telemetry;
mod tidy;
mod top;
mod users;
