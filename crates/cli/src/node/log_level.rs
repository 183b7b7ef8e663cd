//! The level of a server's log: set by its settings, and changed by signals while it runs.

use crate::node::log_writer::OneLine;
use std::io::IsTerminal as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, reload};

/// The filter without a setting.
const USUAL: &str = "info,refinery_core=warn,tokio_postgres=warn";
/// The filter for debugging, without the noise of libraries. SQL statements are those of `tokio_postgres`.
const DEBUG: &str =
    "debug,refinery_core=warn,hyper=info,hyper_util=info,h2=info,rustls=info,tower=info,reqwest=info";

/// How much is logged now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Usual,
    Debug,
    DebugWithSql,
}

impl Level {
    /// After a signal that asks for `wanted`: the same signal twice leads back.
    fn toggled(self, wanted: Level) -> Level {
        if self == wanted { Level::Usual } else { wanted }
    }

    fn filter(self, usual: &str) -> String {
        match self {
            Level::Usual => usual.to_owned(),
            Level::Debug => format!("{DEBUG},tokio_postgres=warn"),
            Level::DebugWithSql => format!("{DEBUG},tokio_postgres=debug"),
        }
    }
}

/// The filter that a setting of OpenCue's own scheduler stands for, such as `debug` or `scheduler=debug,sqlx=warn`: its
/// names of modules are those of others here, and a level alone leaves out lines of libraries.
pub fn filter_of_opencue(setting: &str) -> String {
    match setting.trim() {
        "info" => USUAL.to_owned(),
        "debug" => Level::Debug.filter(USUAL),
        parts => parts.split(',').map(own_directive).collect::<Vec<_>>().join(","),
    }
}

fn own_directive(directive: &str) -> String {
    let (target, level) = match directive.trim().split_once('=') {
        Some((target, level)) => (target, format!("={level}")),
        None => (directive.trim(), String::new()),
    };
    let module = target.split("::").next().unwrap_or(target);
    let own = match module {
        "scheduler" | "cue_scheduler" => "windlass_gateway_opencue",
        "sqlx" => "tokio_postgres",
        _ => target,
    };
    format!("{own}{level}")
}

/// Changes how much is logged.
pub struct LogLevel {
    usual: String,
    set: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

/// Writes log lines to standard error. `WINDLASS_LOG` goes before `setting`.
pub fn start_logging(setting: Option<&str>) -> LogLevel {
    let (lines, level) = log_lines(setting);
    tracing_subscriber::registry().with(lines).init();
    level
}

/// The log lines on standard error as a part of a subscriber. `WINDLASS_LOG` goes before `setting`.
pub fn log_lines<S>(setting: Option<&str>) -> (impl Layer<S> + use<S>, LogLevel)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let of_environment = std::env::var("WINDLASS_LOG").ok().filter(|text| EnvFilter::try_new(text).is_ok());
    let usual = of_environment.or_else(|| setting.map(str::to_owned)).unwrap_or_else(|| USUAL.to_owned());
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&usual));
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer()
        .with_ansi(has_colours)
        .with_writer(move || OneLine::new(std::io::stderr(), has_colours))
        // Otherwise it reports failed writes on standard error, and panics if that fails too, as on a full disk.
        .log_internal_errors(false)
        .with_filter(filter);
    // It fails only once the log has ended.
    let set = Box::new(move |filter| _ = handle.reload(filter));
    (lines, LogLevel { usual, set })
}

impl LogLevel {
    /// SIGUSR1 turns debug lines on and off, SIGUSR2 the same with each SQL statement for PostgreSQL.
    ///
    /// # Errors
    /// If the signals cannot be listened for.
    pub fn obey_signals(self) -> std::io::Result<impl Future<Output = ()>> {
        let mut without = signal(SignalKind::user_defined1())?;
        let mut with = signal(SignalKind::user_defined2())?;
        Ok(async move {
            let mut level = Level::Usual;
            loop {
                let wanted = tokio::select! {
                    _ = without.recv() => Level::Debug,
                    _ = with.recv() => Level::DebugWithSql,
                };
                level = level.toggled(wanted);
                // Libraries that use the crate `log` ask it first.
                log::set_max_level(if level == Level::Usual {
                    log::LevelFilter::Info
                } else {
                    log::LevelFilter::Debug
                });
                (self.set)(EnvFilter::new(level.filter(&self.usual)));
                match level {
                    Level::Usual => tracing::info!("a signal set the log back to '{}'", self.usual),
                    Level::Debug => tracing::info!("a signal turned debug lines on; SIGUSR1 turns them off"),
                    Level::DebugWithSql => {
                        tracing::info!("a signal turned debug lines with SQL on; SIGUSR2 turns them off");
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_leads_there_and_back() {
        let level = Level::Usual.toggled(Level::Debug);
        assert_eq!(level, Level::Debug);
        assert_eq!(level.toggled(Level::DebugWithSql), Level::DebugWithSql);
        assert_eq!(level.toggled(Level::Debug), Level::Usual);
    }

    #[test]
    fn words_of_the_stock_scheduler_are_understood() {
        let modules = filter_of_opencue("scheduler=debug,sqlx=warn, scheduler::cluster=trace,hyper=info");
        assert_eq!(
            modules,
            "windlass_gateway_opencue=debug,tokio_postgres=warn,windlass_gateway_opencue=trace,hyper=info"
        );
        assert_eq!((filter_of_opencue("warn"), filter_of_opencue("info")), ("warn".into(), USUAL.into()));
        assert!(filter_of_opencue("debug").contains("tokio_postgres=warn"));
        assert!(EnvFilter::try_new(filter_of_opencue("debug,sqlx=info")).is_ok());
    }

    #[test]
    fn all_filters_are_understood() {
        for level in [Level::Usual, Level::Debug, Level::DebugWithSql] {
            let text = level.filter(USUAL);
            assert_eq!(
                text.split(',').count(),
                EnvFilter::try_new(&text).unwrap().to_string().split(',').count()
            );
        }
    }
}
