//! Checks of the store of files, in which files of jobs are, and of the remote cache that a server has in it.

use super::check::{Check, directory, free_bytes};
use crate::client::connect::connect_running;
use crate::client::context::Context;
use crate::node::gateways::cas_dir;
use crate::node::serve::{self, ServeOptions};
use crate::ui::error::CliError;
use futures_util::StreamExt as _;
use std::path::Path;
use std::pin::pin;
use windlass_api::client::{Client, ClientError, Method, RawRequest};
use windlass_core::resources::Bytes;
use windlass_server::{CasSettings, default_cas_bytes};

/// Bytes of metrics that are read at most.
const METRICS_BYTES_MAX: usize = 16 << 20;

/// Checks the settings with which the server would be started, and what the running server says of its cache.
pub async fn checks(context: &Context, options: ServeOptions) -> Vec<Check> {
    let (config, state) = match serve::settle(options) {
        Ok(settled) => settled,
        Err(error) => {
            let advice = "correct them; 'windlass server start --help' explains each";
            return vec![Check::missing("settings", format!("{error:#}"), advice)];
        }
    };
    let dir = cas_dir(&config.cas, &state);
    vec![
        directory("store of files", &dir, "give another one: cas.dir"),
        room(&config.cas, &dir),
        writers(&config.cas),
        sharing(&config.cas),
        use_of(context).await,
    ]
}

/// Whether the disk has room for what the store may keep.
fn room(settings: &CasSettings, dir: &Path) -> Check {
    const WHAT: &str = "room";
    let nearest = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let (free, default) = match (free_bytes(nearest), default_cas_bytes(dir)) {
        (Ok(free), Ok(default)) => (free, default),
        (Err(error), _) | (_, Err(error)) => {
            return Check::note(WHAT, format!("unknown: {error}"), "see 'df'");
        }
    };
    let wanted = settings.bytes.unwrap_or(default);
    let said = format!("up to {}, and {} are free on its disk", Bytes(wanted), Bytes(free));
    // What the store has already is not free any more.
    match wanted > free && !dir.exists() {
        true => {
            Check::note(WHAT, said, "lower cas.bytes, or the disk is full before the store evicts anything")
        }
        false => Check::ok(WHAT, said),
    }
}

fn writers(settings: &CasSettings) -> Check {
    const WHAT: &str = "writers";
    if !settings.enabled {
        let said = "the remote cache is switched off, and files of jobs are kept".to_owned();
        return Check::note(WHAT, said, "set cas.enabled = true if build tools shall have their cache here");
    }
    match settings.users_write {
        true => Check::note(
            WHAT,
            "all users write results".to_owned(),
            "where one may be careless, unset cas.users_write and give '--cache write' to the tokens of CI",
        ),
        false => Check::ok(
            WHAT,
            "administrators, and tokens with '--cache write'; all users upload files".to_owned(),
        ),
    }
}

/// Who is told that a file of jobs is there.
fn sharing(settings: &CasSettings) -> Check {
    const WHAT: &str = "files of jobs";
    match settings.users_share {
        true => Check::note(
            WHAT,
            "all users are told which files are there".to_owned(),
            "unset cas.users_share where they shall not learn what others have",
        ),
        false => Check::ok(WHAT, "each user uploads a file once, also one that another user has".to_owned()),
    }
}

/// What the running server says of its cache.
async fn use_of(context: &Context) -> Check {
    const WHAT: &str = "use";
    let text = match connect_running(context.server.as_ref()).await {
        Ok(client) => metrics(&client).await.map_err(CliError::from),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => match told(&text) {
            Some(told) => Check::ok(WHAT, told),
            None => Check::ok(WHAT, "none since the server was started".to_owned()),
        },
        Err(error) => {
            Check::note(WHAT, error.message(), "start the server, or correct --server and the token")
        }
    }
}

async fn metrics(client: &Client) -> Result<String, ClientError> {
    let asked =
        RawRequest { method: Method::GET, path: "/metrics".to_owned(), query: Vec::new(), body: None };
    let (_, parts) = client.raw(&asked).await?;
    let mut parts = pin!(parts);
    let mut text = Vec::new();
    while let Some(part) = parts.next().await.transpose()?
        && text.len() < METRICS_BYTES_MAX
    {
        text.extend(part);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// How full the store is, and how often the cache had what was asked for. `None` of a store that was not used.
fn told(metrics: &str) -> Option<String> {
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok())
    };
    let (bytes, blobs) = (value("windlass_cas_bytes")?, value("windlass_cas_blobs")?);
    let answered = |answer: &str| value(&format!("windlass_cas_results_total{{answer=\"{answer}\"}}"));
    let (hits, misses) = (answered("hit").unwrap_or(0.0), answered("miss").unwrap_or(0.0));
    let found = match hits + misses > 0.0 {
        true => format!("; {hits} of {} results were found", hits + misses),
        false => String::new(),
    };
    let pinned = value("windlass_cas_pinned_bytes").filter(|bytes| *bytes > 0.0);
    let pinned = pinned.map(|bytes| format!(", of which jobs pin {}", Bytes(bytes as u64)));
    Some(format!("{} in {blobs} blobs{}{found}", Bytes(bytes as u64), pinned.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_told_by_its_metrics() {
        let text = "# TYPE windlass_cas_bytes gauge\nwindlass_cas_bytes 2048\nwindlass_cas_blobs 7\n\
                    windlass_cas_results_total{answer=\"hit\"} 3\nwindlass_cas_results_total{answer=\"miss\"} 1\n";
        assert_eq!(told(text).as_deref(), Some("2 KiB in 7 blobs; 3 of 4 results were found"));
        let pinned = format!("{text}windlass_cas_pinned_bytes 1024\n");
        let said = "2 KiB in 7 blobs, of which jobs pin 1 KiB; 3 of 4 results were found";
        assert_eq!(told(&pinned).as_deref(), Some(said));
        assert_eq!(told("windlass_cas_results_total{answer=\"hit\"} 0\n"), None);
    }

    #[test]
    fn a_cache_that_is_switched_off_leaves_files_of_jobs() {
        let off = CasSettings { enabled: false, ..CasSettings::default() };
        assert!(writers(&off).state == "note" && writers(&off).detail.contains("files of jobs are kept"));
        let shared = CasSettings { users_share: true, ..CasSettings::default() };
        assert_eq!((sharing(&off).state, sharing(&shared).state), ("ok", "note"));
    }

    #[test]
    fn a_store_larger_than_its_disk_is_told() {
        let missing = std::env::temp_dir().join("windlass-absent-cas");
        let of = |bytes| room(&CasSettings { bytes: Some(bytes), ..CasSettings::default() }, &missing).state;
        assert_eq!((of(1 << 26), of(1 << 60)), ("ok", "note"));
    }
}
