//! `windlass board`: opens the board in a browser, signed in.

use crate::client::context::Context;
use crate::node::browser;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Format, print_json, print_jsonl, print_lines};
use clap::Args;
use serde::Serialize;
use windlass_api::client::{Address, board_code};

/// Opens the board in a browser, signed in.
#[derive(Args, Debug)]
#[command(after_help = "The address signs in once, within a minute, with your rights. Examples:\n  \
    windlass board\n  windlass board --print    # for a browser on another machine: see the manual, 'The board'")]
pub struct BoardArgs {
    /// Print the address, and open no browser
    #[arg(long)]
    print: bool,
}

/// Where the board is, for programs.
#[derive(Serialize)]
struct Place<'a> {
    url: &'a str,
    expires_in_ms: u64,
}

/// Runs the command `windlass board`.
pub async fn board(context: &Context, args: &BoardArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let made = board_code(&client).await.doing("open the board")?;
    let base = match (made.address, client.address()) {
        (Some(address), _) => address,
        (None, Address::Http(base)) => base.clone(),
        (None, Address::Unix(_)) => {
            return Err(CliError::Failed {
                message: "the server does not say where its board is".to_owned(),
                hint: Some("give the server's address: --server HOST:PORT".to_owned()),
            });
        }
    };
    let url = format!("{base}/#code={}", made.code);
    let opener = browser::opener();
    match (context.format, opener) {
        (Format::Json, _) => print_json(&Place { url: &url, expires_in_ms: made.expires_in_ms }),
        (Format::Jsonl, _) => print_jsonl(&Place { url: &url, expires_in_ms: made.expires_in_ms }),
        (Format::Table, Some(opener)) if !args.print => match browser::open(&opener, &url) {
            Ok(()) => {
                message!("the board is at {base}; 'windlass board --print' gives an address that signs in");
                Ok(())
            }
            Err(error) => {
                message!("note: no browser was opened: {error:#}");
                print_lines([url].into_iter())
            }
        },
        (Format::Table | Format::Name, _) => print_lines([url].into_iter()),
    }
}
