//! `windlass gateway`: a server that is only the scheduler of another system.

use crate::node::gateways::sccache_settings;
use crate::node::life::stop_signal;
use crate::node::log_level::{filter_of_opencue, start_logging};
use crate::node::memory;
use crate::node::serve::{self, ServeOptions, parse_set};
use crate::node::watchdog;
use crate::ui::error::CliError;
use crate::ui::message::message;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use windlass_gateway_opencue::scheduler::{LayerReasons, Preview, config as opencue};
use windlass_gateway_opencue::{Dialer, Service};
use windlass_server::{Config, SccacheConfig, Setting};
use windlass_store::{StoreError, TlsDialer};

/// The longest wait that a client outlasts.
const WAIT_S_MAX: f64 = 1_000.0;

/// The systems that have a gateway of their own.
#[derive(Subcommand)]
pub enum GatewayCommand {
    /// Schedule for stock clients and build servers of sccache, until it is stopped
    Sccache(Box<SccacheArgs>),
    /// Schedule the frames of an OpenCue farm from its own database, beside Cuebot or without it, until it is stopped
    Opencue(Box<OpencueArgs>),
}

/// Flags of `gateway opencue`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "A second one with the same file takes over at once when the first dies.")]
pub struct OpencueArgs {
    #[command(flatten)]
    farm: OpencueFarmArgs,
    /// Print what would be booked now, and book nothing
    #[arg(long)]
    dry_run: bool,
    /// Print what frames of a job wait for, of one layer or frame if it is named, and end
    #[arg(long, value_name = "JOB[/LAYER|FRAME]", conflicts_with = "dry_run")]
    why: Option<String>,
    /// Install triggers in the database that tell of work, and end
    #[arg(long)]
    install_wake: bool,
}

/// Flags that name a farm of OpenCue and the part of it that is scheduled.
#[derive(Args, Clone, Debug)]
pub struct OpencueFarmArgs {
    /// The stock scheduler's settings, as they are: scheduler.yaml
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Only hosts of this facility
    #[arg(short, long, value_name = "NAME")]
    facility: Option<String>,
    /// Take these tags of hosts for absent; several with commas or blanks
    #[arg(short, long, alias = "ignore_tags", value_name = "TAG", num_args = 1.., value_delimiter = ',')]
    ignore_tags: Vec<String>,
    /// Only these allocations, by show and tag; several with commas or blanks
    #[arg(
        short, long, alias = "alloc_tags", value_name = "SHOW:TAG", num_args = 1.., value_delimiter = ',',
        value_parser = alloc_tag
    )]
    alloc_tags: Vec<(String, String)>,
    /// Book by these tags, besides those of --alloc-tags, and by no others; several with commas or blanks
    #[arg(short = 't', long, alias = "manual_tags", value_name = "TAG", num_args = 1.., value_delimiter = ',')]
    manual_tags: Vec<String>,
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
    /// Set any setting of a server, such as load.max_cpu_pressure=70; goes over the file's table 'scheduler' and the
    /// variables; may be repeated
    #[arg(long, value_name = "SETTING=VALUE", value_parser = parse_set)]
    set: Vec<(String, String)>,
}

/// The settings of `[scheduler]` in a stock scheduler's file, as those of the server. A variable goes over its setting.
fn load_settings(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let thresholds = sccache_settings(path)?.scheduler;
    let known = Config::default().settings();
    let mut set = Vec::new();
    for (name, value) in thresholds.entries() {
        let path = format!("load.{name}");
        let mut variables = known.iter().filter(|setting| setting.path == path).flat_map(Setting::variables);
        if !variables.any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
            set.push((path, value.to_string()));
        }
    }
    Ok(set)
}

/// Runs the command `windlass gateway`.
pub async fn command(command: GatewayCommand) -> Result<(), CliError> {
    let args = match command {
        GatewayCommand::Sccache(args) => args,
        GatewayCommand::Opencue(args) => return Ok(opencue(*args).await?),
    };
    let mut set = load_settings(&args.config)?;
    set.extend(args.set);
    let options = ServeOptions { state: args.state, set, no_worker: true, ..ServeOptions::default() };
    let settings = SccacheConfig {
        config: args.config,
        wait_s: args.wait,
        check_address: !args.any_address,
        proxies: args.proxies,
    };
    Ok(serve::start_with(options, |config| config.gateway.sccache = Some(settings)).await?)
}

impl OpencueArgs {
    /// The config file, with the flags that go before it.
    fn settle(&self) -> anyhow::Result<opencue::Config> {
        let path = self.farm.config.display();
        let text =
            std::fs::read_to_string(&self.farm.config).with_context(|| format!("{path} cannot be read"))?;
        let mut config = self.farm.parse(&text).with_context(|| format!("{path} cannot be followed"))?;
        if self.dry_run || self.install_wake || self.why.is_some() {
            // A gateway of the same file may be running on this machine, and have its addresses.
            (config.cuebot, config.metrics) = (None, None);
            (config.workers, config.board) = (None, None);
        }
        Ok(config)
    }
}

impl OpencueFarmArgs {
    /// The settings of the file's text, with the flags, which go before it.
    pub fn parse(&self, text: &str) -> Result<opencue::Config, opencue::ConfigError> {
        let mut config = opencue::Config::parse(text)?;
        let scope = &mut config.instance.scope;
        scope.facility = self.facility.clone().or(scope.facility.take());
        let replace = |setting: &mut Vec<String>, flags: &[String]| {
            if !flags.is_empty() {
                *setting = flags.to_vec();
            }
        };
        replace(&mut scope.ignore_tags, &self.ignore_tags);
        replace(&mut scope.manual_tags, &self.manual_tags);
        if !self.alloc_tags.is_empty() {
            scope.alloc_tags = self.alloc_tags.clone();
        }
        Ok(config)
    }
}

/// Connections to a farm's database, with the TLS that the store has.
pub fn dialer(database: &opencue::DatabaseSettings) -> Result<Dialer, StoreError> {
    let tls = TlsDialer::of_options(database.tls_mode(), database.tls_root.as_deref())?;
    Ok(Dialer::with(tls))
}

async fn opencue(args: OpencueArgs) -> anyhow::Result<()> {
    windlass_worker::raise_file_limit();
    let config = args.settle()?;
    memory::give_back_large_blocks();
    // As in the stock scheduler, the variable goes before the file.
    let of_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    // In the variable a word alone may also be the name of a part.
    let of_environment = of_environment.map(|text| opencue::log_setting(&text).unwrap_or(text));
    let filter = of_environment.as_ref().or(config.log.as_ref()).map(|setting| filter_of_opencue(setting));
    let log_level = start_logging(filter.as_deref());
    tokio::spawn(log_level.obey_signals()?);
    if !config.unused.is_empty() {
        let path = args.farm.config.display();
        message!("{path}: these keys change nothing here: {}", config.unused.join(", "));
    }
    let database = format!("{:?}", config.database);
    let dialer = dialer(&config.database)?;
    let mut service = Service::open(config, dialer).await?;
    if args.install_wake {
        service.install_wake().await?;
        message!("The triggers windlass_wake_waiting, _job and _host are installed in {database}");
        return Ok(());
    }
    if args.dry_run {
        for Preview { layer, host, frames, cores } in service.preview().await? {
            message!("{layer} on {host}: {frames} frames, {} cores", cores as f64 / 100.0);
        }
        return Ok(());
    }
    if let Some(work) = args.why {
        return tell_why(&service, &work).await;
    }
    message!("windlass schedules the farm in {database}");
    if let Some(address) = service.cuebot_address() {
        message!("hosts and clients of OpenCue are served at {address}");
    }
    if let Some(address) = service.metrics_address() {
        message!("metrics: http://{address}/metrics");
    }
    if let Some(address) = service.board_address() {
        message!("the board: http://{address}/");
    }
    let stop = stop_signal()?;
    watchdog::ready();
    let watching = tokio::spawn(watchdog::watch_runtime());
    service.run(stop).await;
    watching.abort();
    Ok(())
}

async fn tell_why(service: &Service, work: &str) -> anyhow::Result<()> {
    let (job, part) = match work.split_once('/') {
        Some((job, part)) => (job, Some(part)),
        None => (work, None),
    };
    let layers = service.why(job, part).await?;
    anyhow::ensure!(
        !layers.is_empty(),
        "there is no job, layer or frame '{work}'; 'cueadmin -lj' lists jobs"
    );
    for LayerReasons { layer, frames, reasons } in layers {
        println!("{job}/{layer}: {frames}");
        reasons.iter().for_each(|reason| println!("  {reason}"));
    }
    Ok(())
}

fn alloc_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((show, tag)) if !show.is_empty() && !tag.is_empty() => Ok((show.to_owned(), tag.to_owned())),
        _ => Err(format!("'{text}' must be SHOW:TAG")),
    }
}

fn wait(text: &str) -> Result<f64, String> {
    let seconds = windlass_api::quantity::parse_seconds(text)?;
    if seconds <= WAIT_S_MAX { Ok(seconds) } else { Err(format!("at most {WAIT_S_MAX} s")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct OpencueLine {
        #[command(flatten)]
        args: OpencueArgs,
    }

    fn parse(flags: &[&str]) -> Result<OpencueFarmArgs, clap::Error> {
        let line = ["opencue", "--config", "scheduler.yaml"].iter().chain(flags);
        Ok(OpencueLine::try_parse_from(line)?.args.farm)
    }

    #[test]
    fn tags_are_given_as_the_stock_scheduler_takes_them() {
        let pairs = |args: &OpencueFarmArgs| -> Vec<String> {
            args.alloc_tags.iter().map(|(show, tag)| format!("{show}/{tag}")).collect()
        };
        for flags in [
            &["--alloc_tags=a:b,c:d", "--manual_tags=x,y", "--ignore_tags=z"][..],
            &["--alloc-tags", "a:b", "c:d", "--manual-tags", "x", "y", "--ignore-tags", "z"],
            &["-a", "a:b,c:d", "-t", "x,y", "-i", "z"],
        ] {
            let args = parse(flags).unwrap();
            assert_eq!(pairs(&args), ["a/b", "c/d"], "{flags:?}");
            assert_eq!((args.manual_tags.join(" "), args.ignore_tags.join(" ")), ("x y".into(), "z".into()));
        }
        assert!(parse(&["--alloc-tags=general"]).is_err());
        assert!(parse(&["--alloc-tags=film:"]).is_err());
    }
}
