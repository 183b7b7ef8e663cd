//! The whole gateway as one service: the scheduler, Cuebot's calls, counts, and the board.

use crate::board::{self, Board};
use crate::checkup::{checkup, missing_column, unknown_names};
use crate::dial::Dialer;
use crate::finding::Finding;
use crate::scheduler::config::{BoardSettings, Config, CountsSettings, CuebotSettings, DatabaseSettings};
use crate::scheduler::{Instance, LayerReasons, PassError, Preview, metrics};
use crate::schema;
use crate::workers::{NoServer, Workers};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use windlass_cuebot::{Cuebot, Network, Settings};
use windlass_server::{TokenDoor, TokenDoorError, serve_port};

/// How long launches that are under way may take when the service ends.
const LEAVE_TIME: Duration = Duration::from_secs(15);
/// The time between looks for hosts that fell silent.
const UPKEEP_TIME: Duration = Duration::from_secs(10);
/// Rounds of upkeep in which hosts are asked what they run. RQD that got no connection tries again only after a pause,
/// and frames that end until then are lost, too: the second round finds them.
const ASKS_AT_START: u32 = 2;

/// An error with which the gateway does not start, or ends.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("the password file {path} cannot be read: {why}")]
    Password { path: PathBuf, why: std::io::Error },
    #[error("the database {database} cannot be used: {why}; 'database' in the config file says where it is")]
    Database { database: String, why: String },
    #[error(
        "the database {database} has no column {column}: OpenCue's migrations up to {migration} are needed"
    )]
    Schema { database: String, column: String, migration: String },
    #[error("{address} cannot be listened at: {why}")]
    Listen { address: SocketAddr, why: std::io::Error },
    #[error(
        "the Windlass server of the workers cannot be used: {}; 'windlass.workers' in the config file says where it is",
        told(.0)
    )]
    Workers(NoServer),
    #[error("the board's token file {path} cannot be read: {why}")]
    BoardToken { path: PathBuf, why: std::io::Error },
    #[error("{0}; 'windlass.board.token_file' in the config file names the token's file")]
    Board(TokenDoorError),
    #[error(transparent)]
    Pass(#[from] PassError),
}

/// A gateway that is ready to run.
pub struct Service {
    pool: Pool,
    instance: Instance,
    cuebot: Option<OpenCuebot>,
    metrics: Option<TcpListener>,
    workers: Option<Workers>,
    board: Option<OpenBoard>,
}

/// Cuebot's port before it is served.
struct OpenCuebot {
    listener: TcpListener,
    settings: Settings,
    clients: Option<Vec<Network>>,
}

/// The board's port before it is served.
struct OpenBoard {
    listener: TcpListener,
    door: TokenDoor,
    pool: Pool,
}

impl Service {
    /// Connects and listens.
    pub async fn open(config: Config, dialer: Dialer) -> Result<Service, ServiceError> {
        let Config { database, instance, cuebot, metrics, workers, board, .. } = config;
        let (pool, connection) = connect(&database, &dialer, database.connections_max)?;
        let failed = |why: String| ServiceError::Database { database: format!("{database:?}"), why };
        let client = pool.get().await.map_err(|error| failed(no_connection(&error)))?;
        let missing = missing_column(&client, instance.scope.shows.is_some()).await;
        if let Some((column, migration)) = missing.map_err(|error| failed(told(&error)))? {
            let database = format!("{database:?}");
            return Err(ServiceError::Schema { database, column, migration });
        }
        for name in unknown_names(&client, &instance.scope).await.map_err(PassError::from)? {
            tracing::warn!("the settings name {name}, which the database does not have");
        }
        let workers = match workers {
            // What is booked for a measurement is launched nowhere, and nothing of it is missing.
            Some(settings) if !instance.is_dry => {
                let workers = Workers::new(settings, pool.clone()).map_err(ServiceError::Workers)?;
                workers.read_names(&client).await.map_err(PassError::from)?;
                Some(workers)
            }
            _ => None,
        };
        drop(client);
        let cuebot = match cuebot {
            Some(CuebotSettings { listen: address, clients, log_root, retries_max }) => {
                let default = Settings::default();
                let settings = Settings {
                    log_root: log_root.unwrap_or(default.log_root),
                    retries_max: retries_max.unwrap_or(default.retries_max),
                };
                Some(OpenCuebot { listener: listen(address).await?, settings, clients })
            }
            None => None,
        };
        let metrics = match metrics {
            Some(CountsSettings { listen: address, is_asked }) => match listen(address).await {
                Ok(listener) => Some(listener),
                Err(error) if !is_asked => {
                    tracing::warn!(
                        "no metrics are served: {error}; 'queue.metrics_port' may name another port"
                    );
                    None
                }
                Err(error) => return Err(error),
            },
            None => None,
        };
        let board = match board {
            // Connections of its own: people who look do not take those of the scheduler.
            Some(settings) => {
                let (pool, _) = connect(&database, &dialer, board::CONNECTIONS_MAX)?;
                let (listener, door) = open_door(settings).await?;
                Some(OpenBoard { listener, door, pool })
            }
            None => None,
        };
        let instance = Instance::with_dialer(pool.clone(), connection, dialer, instance, workers.clone());
        Ok(Service { pool, instance, cuebot, metrics, workers, board })
    }

    /// The address that hosts and clients call, if Cuebot's calls are served.
    pub fn cuebot_address(&self) -> Option<SocketAddr> {
        self.cuebot.as_ref().and_then(|cuebot| cuebot.listener.local_addr().ok())
    }

    /// The address at which counts are served, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// The address of the board for browsers, if it is served.
    pub fn board_address(&self) -> Option<SocketAddr> {
        self.board.as_ref().and_then(|board| board.listener.local_addr().ok())
    }

    /// Plans once and returns what would be booked. Nothing is booked.
    pub async fn preview(&mut self) -> Result<Vec<Preview>, ServiceError> {
        Ok(self.instance.preview().await?)
    }

    /// What layers of a job wait for: all, or those of the name `part`, or with a frame of that name.
    pub async fn why(&self, job: &str, part: Option<&str>) -> Result<Vec<LayerReasons>, ServiceError> {
        Ok(self.instance.why(job, part).await?)
    }

    /// Installs the triggers that tell the scheduler of work.
    pub async fn install_wake(&self) -> Result<(), ServiceError> {
        let client = self.pool.get().await.map_err(PassError::from)?;
        client.batch_execute(schema::WAKE).await.map_err(PassError::from)?;
        Ok(())
    }

    /// Schedules until `stop`, or until there has been no work for as long as the settings say.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut serving = tokio::task::JoinSet::new();
        let mut answering = None;
        if let Some(OpenCuebot { listener, settings, clients }) = self.cuebot {
            let hosts = Arc::new(self.instance.launcher());
            let cuebot = Arc::new(Cuebot::new(self.pool.clone(), settings, hosts).for_clients(clients));
            serving.spawn(cuebot.clone().serve(listener));
            if let Some(workers) = self.workers {
                serving.spawn(workers.follow(cuebot.clone(), self.instance.launcher().shared_faults()));
            }
            serving.spawn(upkeep(cuebot.clone()));
            answering = Some(cuebot);
        }
        if let Some(listener) = self.metrics {
            let routes = metrics::routes(self.instance.metrics());
            serving.spawn(serve_port(listener, routes, metrics::LIMITS, None, None));
        }
        if let Some(OpenBoard { listener, door, pool }) = self.board {
            let routes = Board::new(pool, &self.instance).routes();
            serving.spawn(async move {
                door.serve(listener, routes).await;
                Ok(())
            });
        }
        tokio::select! {
            () = stop => {}
            () = self.instance.run() => tracing::info!("nothing has waited for long; the scheduler ends"),
        }
        let launcher = self.instance.launcher();
        if tokio::time::timeout(LEAVE_TIME, launcher.settle()).await.is_err() {
            // The next sweep of an instance asks their hosts.
            tracing::warn!(launches = launcher.pending(), "launches are left unsettled");
        }
        serving.shutdown().await;
        if let Some(cuebot) = answering
            && tokio::time::timeout(LEAVE_TIME, cuebot.apply_kept_ends()).await.is_err()
        {
            // Their hosts are asked when two reports of each leave the frames out.
            tracing::warn!("ends of frames that waited for the database are lost");
        }
    }
}

fn connect(
    database: &DatabaseSettings,
    dialer: &Dialer,
    connections_max: usize,
) -> Result<(Pool, tokio_postgres::Config), ServiceError> {
    let connection = database.connection().map_err(|why| ServiceError::Password {
        path: database.password_file.clone().unwrap_or_default(),
        why,
    })?;
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_connect(connection.clone(), dialer.clone(), recycling);
    let pool = Pool::builder(manager).max_size(connections_max).build().map_err(|error| {
        ServiceError::Database { database: format!("{database:?}"), why: error.to_string() }
    })?;
    Ok((pool, connection))
}

/// Checks the database of a config file: schema, triggers, units, and who else books. Nothing is changed.
pub async fn check_database(config: &Config, dialer: &Dialer) -> Result<Vec<Finding>, ServiceError> {
    let database = &config.database;
    let failed = |why: String| ServiceError::Database { database: format!("{database:?}"), why };
    let (pool, _) = connect(database, dialer, database.connections_max)?;
    let client = pool.get().await.map_err(|error| failed(no_connection(&error)))?;
    checkup(&client, &config.instance.scope).await.map_err(|error| failed(told(&error)))
}

/// Does Cuebot's upkeep from time to time, until it is dropped. In its first rounds it asks hosts what they run.
async fn upkeep(cuebot: Arc<Cuebot>) -> std::io::Result<()> {
    let mut asks = ASKS_AT_START;
    loop {
        if asks > 0 {
            asks -= 1;
            if let Err(error) = cuebot.ask_hosts().await {
                tracing::warn!("hosts are not asked what they run: {error}");
            }
        }
        tokio::time::sleep(UPKEEP_TIME).await;
        if !cuebot.has_heard_hosts(Instant::now()) {
            continue;
        }
        if let Err(error) = cuebot.clear_silent_hosts().await {
            tracing::warn!("{error}");
        }
    }
}

async fn open_door(settings: BoardSettings) -> Result<(TcpListener, TokenDoor), ServiceError> {
    let BoardSettings { listen: address, token_file, hosts } = settings;
    let token = match token_file {
        Some(path) => {
            let token = std::fs::read_to_string(&path);
            Some(token.map_err(|why| ServiceError::BoardToken { path, why })?)
        }
        None => None,
    };
    let listener = listen(address).await?;
    let listens = listener.local_addr().map_err(|why| ServiceError::Listen { address, why })?;
    let token = token.as_deref().map(str::trim);
    let door = TokenDoor::new(listens, hosts, token).map_err(ServiceError::Board)?;
    Ok((listener, door))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServiceError> {
    TcpListener::bind(address).await.map_err(|why| ServiceError::Listen { address, why })
}

/// The reason why there is no connection. About TLS it also says what to do.
fn no_connection(error: &deadpool_postgres::PoolError) -> String {
    let why = told(error);
    let advice = if why.contains("server does not support TLS") {
        ", so neither user nor password was sent to it; set 'ssl = on' in its postgresql.conf, or 'db_sslmode: disable' in the \
         section 'windlass' if every machine on the way is trusted"
    } else if why.contains("TLS handshake") {
        "; name the authority that signed its certificate by 'db_sslrootcert' in the section 'windlass', and its host as the \
         certificate does"
    } else {
        ""
    };
    format!("{why}{advice}")
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
