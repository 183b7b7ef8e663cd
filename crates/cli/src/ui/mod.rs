//! The parts that all commands share to inform people: formats, messages, progress, quantities, errors.

pub mod error;
pub mod failure;
pub mod fields;
pub mod lines;
pub mod log_place;
pub mod message;
pub mod output;
pub mod printer;
pub mod progress;
pub mod quantity;
pub mod results;
pub mod shell;
pub mod since;
pub mod table;
pub mod terminal;
pub mod text;
pub mod transfer;
pub mod writer;

/// The heading of the flags that every command has.
pub const GLOBAL: &str = "Global options";
