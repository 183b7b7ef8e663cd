//! The scheduler's side of sccache's distributed compilation, as of sccache 0.17 to 0.19.
//!
//! This crate has what needs no network: the messages ([`wire`]), the tokens of clients, build servers and jobs
//! ([`tokens`]), the settings of a stock scheduler ([`config`]), and the build servers with their jobs ([`farm`]). All is
//! pure, from bytes and texts to values or errors.

pub mod config;
pub mod farm;
pub mod tokens;
pub mod wire;
