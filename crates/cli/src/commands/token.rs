//! `windlass token`: creates, lists and revokes tokens.

use crate::client::connect::connect_to;
use crate::client::context::Context;
use crate::commands::list::words_of;
use crate::node::own;
use crate::system;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Format, print_json, print_jsonl, print_lines, print_list, print_one};
use crate::ui::quantity::{age, moment, now_ms};
use crate::ui::table::{Cell, Column, Grid};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use windlass_api::client::Client;
use windlass_api::quantity::parse_duration;
use windlass_api::{CacheRight, CreateToken, Role, Token};

/// Creates, lists and revokes tokens.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Create a token and print it; it is not shown again
    Create(CreateArgs),
    /// List the tokens, without their secrets
    List,
    /// Revoke a token at once
    Revoke(RevokeArgs),
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// admin: everything; submitter: submit and manage jobs of the users of --for-users in --queue; user: submit, and
    /// manage their own jobs; viewer: read only; worker: connect as a worker
    #[arg(long, value_name = "ROLE", value_parser = words_of(Role::ALL, Role::as_str))]
    role: String,
    /// User of the token; required for the role user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Worker of the token; required for the role worker
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Let the worker declare that it builds for Nix, as 'windlass worker start --nix' does; for the role worker
    #[arg(long)]
    nix: bool,
    /// Let the worker observe a build server of sccache, as 'windlass worker start --observe' does; for the role worker
    #[arg(long)]
    sccache: bool,
    /// Users whose jobs the token submits: a name, in which each * stands for any characters; may be repeated; required
    /// for the role submitter
    #[arg(long, value_name = "PATTERN")]
    for_users: Vec<String>,
    /// Queue that the token submits to; required for the role submitter
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Remote cache: read: read it alone; write: also write results of actions, which others take for true; for the roles
    /// user and viewer [default: a user reads and uploads files, a viewer does neither]
    #[arg(long, value_name = "RIGHT", value_parser = words_of(CacheRight::ALL, CacheRight::as_str))]
    cache: Option<String>,
    /// Time until the token expires, such as 30d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires: Option<u64>,
    /// Write the token to this new file, which only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Note for the list of tokens
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    note: String,
}

#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// Id of the token, as 'windlass token list' shows it
    #[arg(value_name = "ID")]
    id: String,
}

/// Runs the command `windlass token …`.
pub async fn command(context: &Context, command: TokenCommand) -> Result<(), CliError> {
    let client = client(context).await?;
    match command {
        TokenCommand::Create(args) => create(context, &client, args).await,
        TokenCommand::List => {
            let tokens = client.tokens().await.doing("list the tokens")?;
            print_list(context.format, &tokens, |token| token.id.clone(), tokens_grid)
        }
        TokenCommand::Revoke(RevokeArgs { id }) => {
            let token = client.revoke_token(&id).await.doing(format_args!("revoke token {id}"))?;
            if context.format == Format::Table {
                message!("token {id} of {} is revoked", token.user);
                return Ok(());
            }
            print_one(context.format, &token, |token| token.id.clone(), |_| String::new())
        }
    }
}

/// A client of the named server. Without one, of the server in this user's state directory by its socket for
/// administrators, else of this user's own server.
async fn client(context: &Context) -> Result<Client, CliError> {
    if context.server.is_none()
        && let Some(address) = own::for_administrators()?
        && let Ok(client) = connect_to(&address.into()).await
    {
        return Ok(client);
    }
    context.client().await
}

async fn create(context: &Context, client: &Client, args: CreateArgs) -> Result<(), CliError> {
    let role = Role::parse(&args.role).context("there is no such role")?;
    let serves = [("nix", args.nix), ("sccache", args.sccache)];
    let serves = serves.into_iter().filter(|(_, is_given)| *is_given).map(|(system, _)| system.to_owned());
    let serves = serves.collect();
    let cache = args.cache.as_deref().and_then(CacheRight::parse);
    let CreateArgs { user, worker, for_users, queue, expires, note, out, .. } = args;
    // The file comes first: no token is created that cannot be written.
    let file = out.as_deref().map(create_private).transpose()?;
    let expires_in_ms = expires;
    let request = CreateToken { role, user, worker, serves, for_users, queue, cache, expires_in_ms, note };
    let made = client.create_token(&request).await.doing("create a token")?;
    if let (Some(mut file), Some(path)) = (file, out) {
        let written = file.write_all(format!("{}\n", made.bearer).as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        let (id, user) = (&made.token.id, &made.token.user);
        message!("token {id} of {user} has the role {}; it is in {}", role.as_str(), path.display());
        return Ok(());
    }
    match context.format {
        Format::Json => print_json(&made),
        Format::Jsonl => print_jsonl(&made),
        Format::Table | Format::Name => {
            let Token { id, user, expires_ms, .. } = &made.token;
            let end = expires_ms.map_or_else(
                || "valid until it is revoked".to_owned(),
                |ms| format!("valid until {}", moment(ms)),
            );
            message!("token {id} of {user} has the role {}, {end}; it is not shown again", role.as_str());
            print_lines([made.bearer].into_iter())
        }
    }
}

/// A new file that its owner alone may read.
fn create_private(path: &Path) -> anyhow::Result<File> {
    system::new_file(path, false).with_context(|| format!("cannot create {}", path.display()))
}

/// The table of tokens.
pub fn tokens_grid(tokens: &[Token]) -> Grid {
    let row = |token: &Token| {
        vec![
            token.id.as_str().into(),
            state(token).into(),
            token.role.as_str().into(),
            token.user.as_str().into(),
            rights(token).into(),
            Cell::figure(age(token.created_ms), now_ms().saturating_sub(token.created_ms) as f64),
            token.expires_ms.map(|ms| Cell::figure(moment(ms), ms as f64)).into(),
            token.note.as_str().into(),
        ]
    };
    Grid {
        columns: vec![
            Column::whole("ID", 0),
            Column::whole("STATE", 1),
            Column::whole("ROLE", 2),
            Column::text("USER", 3, 8),
            Column::text("FOR", 6, 10),
            Column::whole("AGE", 5),
            Column::whole("EXPIRES", 4),
            Column::text("NOTE", 7, 10),
        ],
        rows: tokens.iter().map(row).collect(),
        empty: "no tokens",
    }
}

/// The purpose of the token beyond its role, in few words.
fn rights(token: &Token) -> Option<String> {
    match (&token.queue, token.cache) {
        (Some(queue), _) => Some(format!("{} in {queue}", token.for_users.join(", "))),
        (None, Some(right)) => Some(format!("cache {}", right.as_str())),
        (None, None) => Some(token.serves.join(", ")).filter(|serves| !serves.is_empty()),
    }
}

fn state(token: &Token) -> &'static str {
    match (token.revoked_ms, token.expires_ms) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end <= now_ms() => "expired",
        (None, _) => "valid",
    }
}
