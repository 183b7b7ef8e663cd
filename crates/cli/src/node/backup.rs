//! `windlass server backup`: copies the database while the server may run.

use crate::client::context::Context;
use crate::node::paths::Paths;
use crate::ui::error::CliError;
use crate::ui::output::print_one;
use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use windlass_api::{Address, Addresses};
use windlass_core::resources::Bytes;

/// The database to copy, and the copy.
#[derive(Args)]
pub struct BackupArgs {
    /// The copy; the file must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// State directory of the server, by default that of the server that --server or WINDLASS_SERVER names, and that of
    /// your own if neither is given: WINDLASS_STATE
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Store of the server, if it is not in the state directory; of your own server by default WINDLASS_STORE
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

/// The output of `server backup`.
#[derive(Serialize)]
struct Copied {
    file: PathBuf,
    bytes: u64,
}

/// The state directory of the server that is meant: of the user's own, or of the one behind a socket in it. The database
/// of another server is not copied in its place.
fn state_behind(server: Option<&Addresses>) -> Result<PathBuf, CliError> {
    let own = Paths::for_user()?;
    let Some(named) = server else { return Ok(own.state) };
    if let Some(Address::Unix(socket)) = named.only() {
        if *socket == own.socket {
            return Ok(own.state);
        }
        // Where 'server start --state DIR' listens by default.
        let beside = socket.ancestors().nth(2).map(|state| Paths::for_state(state.to_owned()));
        if let Some(found) = beside.filter(|found| found.socket == *socket && found.state.is_dir()) {
            return Ok(found.state);
        }
    }
    Err(CliError::Usage {
        message: format!("a backup is made from the files of a server on its own machine, and not over {named}"),
        hint: Some(
            "give --state with the server's state directory, or --store; for your own server unset WINDLASS_SERVER"
                .to_owned(),
        ),
    })
}

/// The store that is meant. The variables of the user's own server say nothing of another one that is named.
fn store_of(
    server: Option<&Addresses>,
    state: Option<PathBuf>,
    store: Option<String>,
) -> Result<String, CliError> {
    if let Some(store) = store {
        return Ok(store);
    }
    let state = match state {
        Some(state) => state,
        None => {
            let state = state_behind(server)?;
            match std::env::var("WINDLASS_STORE") {
                Ok(store) if state == Paths::for_user()?.state => return Ok(store),
                _ => state,
            }
        }
    };
    Ok(format!("sqlite:{}", state.join("windlass.db").display()))
}

/// Copies the database of a server to a new file.
pub async fn backup(context: &Context, args: BackupArgs) -> Result<(), CliError> {
    let BackupArgs { file, state, store } = args;
    let store = store_of(context.server.as_ref(), state, store)?;
    let to = file.clone();
    let copied = tokio::task::spawn_blocking(move || windlass_store::backup(&store, &to)).await;
    copied.context("the copy was interrupted")?.context("no copy was made")?;
    let bytes = std::fs::metadata(&file).context("cannot access the copy")?.len();
    let told = |copied: &Copied| {
        format!(
            "{} has {}; start a server with it as windlass.db\n",
            copied.file.display(),
            Bytes(copied.bytes)
        )
    };
    let copied = Copied { file, bytes };
    print_one(context.format, &copied, |copied| copied.file.display().to_string(), told)
}
