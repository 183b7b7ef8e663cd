//! The whole gateway as one service: the scheduler, the part that stands in for Cuebot, and counts.

use crate::cuebot::{Cuebot, LostFrame, Settings};
use crate::scheduler::config::{Config, CuebotSettings, DatabaseSettings};
use crate::scheduler::{Instance, Launcher, PassError, Preview, metrics};
use crate::schema;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_postgres::NoTls;

/// Launches that are under way get so long when the service ends.
const LEAVE_TIME: Duration = Duration::from_secs(15);
/// Between looks for hosts that fell silent.
const UPKEEP_TIME: Duration = Duration::from_secs(10);
/// Of each column, the migration that brings it. Older schemas lack what a booking writes or checks.
const COLUMNS: &str = "SELECT w.t || '.' || w.c, w.v FROM (VALUES ('layer', 'ts_start_after', 'V47'),
        ('show', 'b_scheduler_managed', 'V45'), ('job', 'str_loki_url', 'V29'), ('proc', 'int_gpus_reserved', 'V4'))
        AS w(t, c, v)
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(w.t) AND a.attname = w.c)
        AND NOT (w.c = 'b_scheduler_managed' AND $1)";

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The password file cannot be read.
    #[error("the password file {path} cannot be read: {why}")]
    Password {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// There is no database.
    #[error(
        "the database {database:?} cannot be used: {why}; 'database' in the config file says where it is"
    )]
    Database {
        /// Where it should be.
        database: DatabaseSettings,
        /// Why.
        why: String,
    },
    /// The database is not OpenCue's, or of an older release.
    #[error(
        "the database {database:?} has no column {column}: OpenCue's migrations up to {migration} are needed"
    )]
    Schema {
        /// Where it is.
        database: DatabaseSettings,
        /// What is missing.
        column: String,
        /// What brings it.
        migration: String,
    },
    /// An address cannot be listened at.
    #[error("{address} cannot be listened at: {why}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
}

/// A gateway that is ready to run.
pub struct Service {
    pool: Pool,
    instance: Instance,
    cuebot: Option<(TcpListener, Settings)>,
    metrics: Option<TcpListener>,
}

impl Service {
    /// Connects and listens.
    ///
    /// # Errors
    ///
    /// The database is not there or not OpenCue's, or an address is taken.
    pub async fn open(config: Config) -> Result<Service, ServiceError> {
        let Config { database, instance, cuebot, metrics, .. } = config;
        let connection = database.connection().map_err(|why| ServiceError::Password {
            path: database.password_file.clone().unwrap_or_default(),
            why,
        })?;
        let failed = |why: String| ServiceError::Database { database: database.clone(), why };
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(connection.clone(), NoTls, recycling);
        let pool = Pool::builder(manager).max_size(database.connections_max).build();
        let pool = pool.map_err(|error| failed(error.to_string()))?;
        let client = pool.get().await.map_err(|error| failed(told(&error)))?;
        let names_shows = instance.scope.shows.is_some();
        let missing = client.query_opt(&format!("{COLUMNS} LIMIT 1"), &[&names_shows]).await;
        if let Some(row) = missing.map_err(|error| failed(told(&error)))? {
            let (column, migration) = (row.get(0), row.get(1));
            return Err(ServiceError::Schema { database, column, migration });
        }
        drop(client);
        let cuebot = match cuebot {
            Some(CuebotSettings { listen: address, log_root, retries_max }) => {
                let default = Settings::default();
                let settings = Settings {
                    log_root: log_root.unwrap_or(default.log_root),
                    retries_max: retries_max.unwrap_or(default.retries_max),
                };
                Some((listen(address).await?, settings))
            }
            None => None,
        };
        let metrics = match metrics {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let instance = Instance::new(pool.clone(), connection, instance);
        Ok(Service { pool, instance, cuebot, metrics })
    }

    /// Where hosts and clients call.
    pub fn cuebot_address(&self) -> Option<SocketAddr> {
        self.cuebot.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Where counts are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// What would be booked now.
    ///
    /// # Errors
    ///
    /// The database failed.
    pub async fn preview(&mut self) -> Result<Vec<Preview>, ServiceError> {
        Ok(self.instance.preview().await?)
    }

    /// Installs the triggers that tell the scheduler of work.
    ///
    /// # Errors
    ///
    /// The database failed, or its user may not.
    pub async fn install_wake(&self) -> Result<(), ServiceError> {
        let client = self.pool.get().await.map_err(PassError::from)?;
        client.batch_execute(schema::WAKE).await.map_err(PassError::from)?;
        Ok(())
    }

    /// Schedules until `stop`, or until there has been no work for as long as the settings say.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut serving = tokio::task::JoinSet::new();
        if let Some((listener, settings)) = self.cuebot {
            let cuebot = Arc::new(Cuebot::new(self.pool.clone(), settings));
            serving.spawn(cuebot.clone().serve(listener));
            serving.spawn(upkeep(cuebot, self.instance.launcher()));
        }
        if let Some(listener) = self.metrics {
            let routes = metrics::routes(self.instance.metrics());
            serving.spawn(async move { axum::serve(listener, routes).await });
        }
        tokio::select! {
            () = stop => {}
            () = self.instance.run() => tracing::info!("nothing has waited for long; the scheduler ends"),
        }
        let launcher = self.instance.launcher();
        if tokio::time::timeout(LEAVE_TIME, launcher.settle()).await.is_err() {
            // Whoever sweeps next asks their hosts.
            tracing::warn!(launches = launcher.pending(), "launches are left unsettled");
        }
    }
}

/// Does what Cuebot does from time to time, until it is dropped.
async fn upkeep(cuebot: Arc<Cuebot>, launcher: Launcher) -> std::io::Result<()> {
    loop {
        tokio::time::sleep(UPKEEP_TIME).await;
        if let Err(error) = cuebot.clear_silent_hosts().await {
            tracing::warn!("{error}");
        }
        match cuebot.lost_frames().await {
            Ok(lost) => {
                for LostFrame { host, frame, proc_id } in lost {
                    if launcher.undo(host.clone(), frame.clone(), proc_id) {
                        tracing::warn!(
                            host,
                            frame,
                            "a host has not told of a frame for five minutes; it waits again"
                        );
                    }
                }
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|why| ServiceError::Listen { address, why })
}

/// An error with its causes, which say what the first line leaves out.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}
