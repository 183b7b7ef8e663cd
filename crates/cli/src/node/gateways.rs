//! The interfaces of other systems that a server has by its settings.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::load::formula::LoadSettings;
use windlass_gateway_compass::{CompassGateway, CompassOptions};
use windlass_gateway_nix::NixGateway;
use windlass_gateway_sccache::config::SchedulerConfig;
use windlass_gateway_sccache::{Options, SccacheGateway};
use windlass_server::{
    CacheOptions, CasSettings, CompassConfig, Config, Gateway, Gateways, RemoteCache, SccacheConfig,
};

/// The key of Compass CI's secrets, and the store of files, in the state directory.
const COMPASS_KEY: &str = "compass.key";
const CAS_DIR: &str = "cas";

/// The gateways that the settings name. Only a server that owns its farm starts them. One that stands by knows their paths,
/// and meets a mistake in their settings before it takes over.
pub fn of(config: &Config, state: &Path, cache: RemoteCache) -> anyhow::Result<Gateways> {
    let mut all: Vec<Arc<dyn Gateway>> = Vec::new();
    if config.gateway.nix.enabled {
        all.push(Arc::new(NixGateway::default()));
    }
    if config.compass.enabled {
        all.push(Arc::new(compass_gateway(&config.compass, state)?));
    }
    if let Some(sccache) = &config.gateway.sccache {
        all.push(Arc::new(sccache_gateway(sccache, &config.load.settings())?));
    }
    // Workers ask it for files of jobs, whether build tools may use it or not.
    all.push(Arc::new(cache));
    Ok(Gateways::new(all))
}

/// The store of files, with the remote cache in it.
pub fn cache(config: &Config, state: &Path) -> RemoteCache {
    let CasSettings { enabled, bytes, upload_bytes_per_day, users_write, users_share, .. } = config.cas;
    RemoteCache::new(CacheOptions {
        dir: cas_dir(&config.cas, state),
        bytes_max: bytes,
        upload_bytes_per_day,
        is_open: enabled,
        users_write,
        users_share,
    })
}

/// The directory of the store of files.
pub fn cas_dir(settings: &CasSettings, state: &Path) -> PathBuf {
    settings.dir.clone().unwrap_or_else(|| state.join(CAS_DIR))
}

/// The settings of a stock scheduler of sccache.
pub fn sccache_settings(path: &Path) -> anyhow::Result<SchedulerConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    SchedulerConfig::parse(&text, is_json).with_context(|| path.display().to_string())
}

/// The key of secrets is made in the state directory, never in the database.
fn compass_gateway(config: &CompassConfig, state: &Path) -> anyhow::Result<CompassGateway> {
    if let Some(srv) = &config.srv
        && let (Ok(srv), Ok(state)) = (srv.canonicalize(), state.canonicalize())
    {
        // Whatever is beneath srv is served, the key of secrets and the database too.
        let apart = !srv.starts_with(&state) && !state.starts_with(&srv);
        anyhow::ensure!(
            apart,
            "srv of [compass], {}, and the state directory, {}, must not be inside each other: all files of srv are \
             served to machines",
            srv.display(),
            state.display()
        );
    }
    let defaults = CompassOptions::new(state.join(COMPASS_KEY));
    let options = CompassOptions {
        srv: config.srv.clone(),
        url: config.url.clone(),
        shared_uploads: config.shared_uploads,
        trust_addresses: config.trust_addresses,
        upload_bytes_max: config.upload_bytes_max.unwrap_or(defaults.upload_bytes_max),
        results_bytes_max: config.results_bytes_max.unwrap_or(defaults.results_bytes_max),
        ..defaults
    };
    Ok(CompassGateway::new(options)?)
}

fn sccache_gateway(settings: &SccacheConfig, load: &LoadSettings) -> anyhow::Result<SccacheGateway> {
    let config = sccache_settings(&settings.config)?;
    for name in config.scheduler.overruled_by(load) {
        let path = settings.config.display();
        tracing::warn!(
            "{path}: {name} of [scheduler] has no effect, because load.{name} of this server holds"
        );
    }
    let options = Options {
        wait_max: Duration::from_secs_f64(settings.wait_s),
        check_address: settings.check_address,
        proxies: settings.proxies.clone(),
    };
    Ok(SccacheGateway::new(config, options))
}
