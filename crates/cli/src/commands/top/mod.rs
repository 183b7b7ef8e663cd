//! `windlass top`: the farm in a terminal, live.
//!
//! [`state::State`] has everything and is pure: [`shell`] tells it what happened, with the time, and does what it asks
//! for. [`draw::draw`] makes a screen of it. Only `shell`, [`reader`] and [`terminal`] touch the world.

mod areas;
mod clean;
mod detail;
mod draw;
mod jobs;
mod keys;
mod list;
mod log;
mod message;
mod press;
mod reader;
mod refresh;
mod rows;
mod shell;
mod state;
mod steer;
mod terminal;
#[cfg(test)]
mod tests;
mod why;

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::system;
use crate::ui::error::CliError;
use crate::ui::output::Format;
use anstream::{AutoStream, ColorChoice};
use clap::Args;
use std::io::{IsTerminal as _, stdout};

/// Shows the farm live, and steers it.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: 1 to 5 and Tab change the screen, j k and the arrows move, / filters, Enter opens, w says why, l \
shows output, d drains a worker, c cancels a job, t retries it, h holds it, p pauses a queue, ? lists all keys, q ends."
)]
pub struct TopArgs {}

/// Runs the command `windlass top`.
pub async fn top(context: &Context, _: &TopArgs) -> Result<(), CliError> {
    if let Some(why) = refusal(context.format, stdout().is_terminal(), system::terminal_kind().as_deref()) {
        return Err(CliError::Usage {
            message: format!("'windlass top' draws on a terminal, and {why}"),
            hint: Some(
                "'windlass workers', 'windlass jobs' and 'windlass queues' print what it shows; with -o json for programs"
                    .to_owned(),
            ),
        });
    }
    let client = ServerLink::open(context).await?.client;
    let colour = AutoStream::choice(&stdout()) != ColorChoice::Never;
    shell::run(client, context.server.is_none(), colour).await
}

/// Why it cannot draw, if it cannot.
fn refusal(format: Format, is_terminal: bool, kind: Option<&str>) -> Option<&'static str> {
    match (format, is_terminal, kind) {
        (_, false, _) => Some("standard output is none"),
        (_, _, None | Some("" | "dumb")) => Some("TERM names none that can be drawn on"),
        (Format::Table, ..) => None,
        _ => Some("another format was asked for"),
    }
}
