//! `windlass gateway`: a server that is the scheduler of another system and nothing else.

use crate::node::serve::{self, ServeOptions};
use crate::ui::error::CliError;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;
use windlass_server::SccacheConfig;

/// The longest wait that a client outlasts.
const WAIT_S_MAX: f64 = 1_000.0;

/// The systems.
#[derive(Subcommand)]
pub enum GatewayCommand {
    /// Schedule for stock clients and build servers of sccache, until it is stopped
    Sccache(Box<SccacheArgs>),
}

/// Flags of `gateway sccache`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "A server that also runs jobs has the same in its config file, as [gateway.sccache].")]
pub struct SccacheArgs {
    /// The stock scheduler's settings, as they are: scheduler.toml, or JSON if it is called so
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// How long a client may wait for a place before it compiles by itself: 30s, 5m, or seconds; up to 1000s, for clients
    /// give up after 1200
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = wait)]
    wait: f64,
    /// Let build servers speak from other addresses than their tokens name, as behind NAT
    #[arg(long)]
    any_address: bool,
    /// Believe this proxy's X-Real-IP; may be repeated
    #[arg(long = "proxy", value_name = "IP")]
    proxies: Vec<IpAddr>,
    /// State directory: the store and the socket for 'windlass workers' and other commands
    #[arg(long, env = "WINDLASS_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// `windlass gateway`.
pub async fn command(command: GatewayCommand) -> Result<(), CliError> {
    let GatewayCommand::Sccache(args) = command;
    let options = ServeOptions { state: args.state.clone(), no_worker: true, ..ServeOptions::default() };
    let settings = SccacheConfig {
        config: args.config,
        wait_s: args.wait,
        check_address: !args.any_address,
        proxies: args.proxies,
    };
    Ok(serve::start_with(options, |config| config.gateway.sccache = Some(settings)).await?)
}

fn wait(text: &str) -> Result<f64, String> {
    let seconds = crate::node::spans::parse_seconds(text)?;
    if seconds <= WAIT_S_MAX { Ok(seconds) } else { Err(format!("at most {WAIT_S_MAX} s")) }
}
