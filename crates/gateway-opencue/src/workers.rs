//! Windlass workers as hosts of OpenCue, without RQD. A frame that is booked on one is a job of the Windlass server,
//! pinned to that worker.
//!
//! - The key of a proc is the key of its job, which the server takes once. So a launch whose answer was lost is asked
//!   about, and no frame is launched twice.
//! - A frame's booking is taken back only when its job has ended, or when another job has taken its key. A launch that
//!   is still on its way then comes to nothing.
//! - Nothing is stored here. Jobs carry the keys of frame and proc in their names, and the tables have the procs. A
//!   comparison of both finds what was missed, such as an end while no gateway ran.

mod checkup;
mod ending;
mod follow;
mod frame;
mod live;
mod reports;
#[cfg(test)]
mod samples;

pub use checkup::check_workers;

use crate::rqd::Launch;
use deadpool_postgres::{Pool, PoolError};
use frame::run_of_job;
use live::Live;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tonic::Status;
use windlass_api::client::{Client, ClientError, Credentials, CredentialsError, JobsQuery};
use windlass_api::{Addresses, ErrorCode, JobState, matches_name};
use windlass_core::tags::Need;
use windlass_cuebot::{CallError, FrameRun};

pub(crate) const WORKER_TAG: &str = "windlass";
/// Ends of jobs that wait to be told to OpenCue. What does not fit is found by the next comparison.
const ENDED_MAX: usize = 65_536;

const USER: &str = "SELECT j.str_user::text FROM proc p JOIN job j USING (pk_job) WHERE p.pk_proc = $1";
const TAGGED: &str =
    "SELECT DISTINCT h.str_name::text FROM host h JOIN host_tag t USING (pk_host) WHERE t.str_tag = $1";

/// Settings of Windlass workers that are hosts of the farm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersSettings {
    /// The address of their server, or of each server that shares it.
    pub server: Addresses,
    /// A file with a token of the role submitter. A unix socket needs none.
    pub token_file: Option<PathBuf>,
    /// Certificates to trust for the server; `None` means those of the system.
    pub ca_file: Option<PathBuf>,
    /// The attribute that makes a worker a host.
    pub tag: Need,
    /// The queue of the frames' jobs. No other work belongs in it.
    pub queue: String,
    /// Patterns of the users as whom frames on workers may run; `None` is all.
    pub users: Option<Vec<String>>,
    /// The allocation of a new worker; `None` is the default one.
    pub allocation: Option<String>,
    /// Further tags of a new worker.
    pub tags: Vec<String>,
    /// The operating system of workers, by which jobs choose hosts.
    pub os: String,
}

/// The workers of a Windlass server.
#[derive(Clone)]
pub struct Workers {
    state: Arc<WorkersState>,
}

struct WorkersState {
    client: Client,
    pool: Pool,
    settings: WorkersSettings,
    /// Hosts that are workers, by name. One that was is one until the gateway starts again.
    names: RwLock<BTreeSet<String>>,
    live: Mutex<Live>,
    ended: mpsc::Sender<u64>,
    /// The other end of `ended`, until the part that follows the server takes it.
    to_tell: Mutex<Option<mpsc::Receiver<u64>>>,
    /// Ends may have been missed.
    missed: Notify,
}

/// An error of a call about a worker's frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkersError {
    #[error("the Windlass server: {}", .0.root())]
    Server(#[from] ClientError),
    #[error("OpenCue's tables: {0}")]
    Tables(#[from] CallError),
}

impl From<tokio_postgres::Error> for WorkersError {
    fn from(error: tokio_postgres::Error) -> WorkersError {
        WorkersError::Tables(error.into())
    }
}

impl From<PoolError> for WorkersError {
    fn from(error: PoolError) -> WorkersError {
        WorkersError::Tables(error.into())
    }
}

/// An error by which the gateway cannot ask the Windlass server.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Workers {
    /// The workers of the server that the settings name. Nothing is asked yet.
    pub fn new(settings: WorkersSettings, pool: Pool) -> Result<Workers, NoServer> {
        let credentials = read_credentials(&settings)?;
        let servers = settings.server.iter().map(|address| (address.clone(), credentials.clone()));
        let client = Client::among(servers.collect(), |what| tracing::warn!("{what}"))?;
        let (ended, to_tell) = mpsc::channel(ENDED_MAX);
        let state = WorkersState {
            client,
            pool,
            settings,
            names: RwLock::default(),
            live: Mutex::default(),
            ended,
            to_tell: Mutex::new(Some(to_tell)),
            missed: Notify::new(),
        };
        Ok(Workers { state: Arc::new(state) })
    }

    /// Reads which hosts were registered as workers: none of them shall be asked for an RQD before the Windlass server
    /// has answered.
    pub async fn read_names(&self, client: &tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
        let rows = client.query(TAGGED, &[&WORKER_TAG]).await?;
        self.add_names(rows.iter().map(|row| row.get(0)));
        Ok(())
    }

    fn add_names(&self, names: impl Iterator<Item = String>) {
        self.state.names.write().extend(names);
    }

    fn names(&self) -> Vec<String> {
        self.state.names.read().iter().cloned().collect()
    }

    /// True if a host is a worker.
    pub(crate) fn has(&self, host: &str) -> bool {
        self.state.names.read().contains(host)
    }

    /// Submits the job of a frame.
    ///
    /// # Errors
    ///
    /// The server refused, or did not answer: then it may have the job.
    pub(crate) async fn launch(&self, launch: &Launch) -> Result<(), Status> {
        let user = &launch.frame.user_name;
        if let Some(users) = &self.state.settings.users
            && !users.iter().any(|pattern| matches_name(pattern, user))
        {
            let why = format!("no frame of '{user}' runs on a Windlass worker: see 'windlass.workers.users'");
            return Err(Status::failed_precondition(why));
        }
        let request = frame::request(launch, &self.state.settings.queue);
        let submitted = self.state.client.submit(&request).await.map_err(status)?;
        if submitted.existing {
            // A second server was asked, or the frame was taken back while this was on its way.
            let job = self.state.client.job(submitted.job).await.map_err(status)?;
            if job.state == JobState::Canceled {
                return Err(Status::aborted("the frame was taken back before its launch arrived"));
            }
        }
        self.began(submitted.job, launch.run());
        Ok(())
    }

    /// Ends the frame of a proc. Returns when none of its processes runs any more.
    pub(crate) async fn kill(&self, run: &FrameRun) -> Result<(), Status> {
        match self.end_and_wait(run).await {
            Ok(()) => Ok(()),
            Err(WorkersError::Server(error)) => Err(status(error)),
            Err(WorkersError::Tables(error)) => Err(Status::unavailable(error.to_string())),
        }
    }

    async fn end_and_wait(&self, run: &FrameRun) -> Result<(), WorkersError> {
        let Some(job) = self.cancel(run).await? else { return Ok(()) };
        match self.state.client.wait(job, None).await {
            Err(error) if error.code() == Some(ErrorCode::NotFound) => Ok(()),
            waited => waited.map(|_| ()).map_err(WorkersError::from),
        }
    }

    /// Asks for the end of a frame, and returns its job. `None` where its proc is gone, and nothing is to be ended.
    async fn cancel(&self, run: &FrameRun) -> Result<Option<u64>, WorkersError> {
        let known = self.state.live.lock().job(&run.proc_id);
        let job = match known {
            Some(job) => job,
            None => match self.claim(run).await? {
                Some((job, _)) => job,
                None => return Ok(None),
            },
        };
        self.cancel_job(job).await?;
        Ok(Some(job))
    }

    /// Asks for the end of a frame that a client of OpenCue killed.
    ///
    /// # Errors
    ///
    /// The server did not answer, or the tables did not. The next comparison asks again.
    pub(crate) async fn end(&self, run: &FrameRun) -> Result<(), WorkersError> {
        self.cancel(run).await.map(|_| ())
    }

    async fn cancel_job(&self, job: u64) -> Result<(), WorkersError> {
        match self.state.client.act(job, "cancel").await {
            // It has ended, or it ended so long ago that the server has forgotten it.
            Err(error) if matches!(error.code(), Some(ErrorCode::Conflict | ErrorCode::NotFound)) => Ok(()),
            answer => answer.map(|_| ()).map_err(WorkersError::from),
        }
    }

    /// The job of a proc, whose key is taken if there is none: then no launch can take it any more. True if the frame's
    /// own job was there. `None` where the proc is gone.
    async fn claim(&self, run: &FrameRun) -> Result<Option<(u64, bool)>, WorkersError> {
        let row = self.state.pool.get().await?.query_opt(USER, &[&run.proc_id]).await?;
        let Some(user) = row.map(|row| row.get::<_, String>(0)) else { return Ok(None) };
        let request = frame::claim(run, &user, &self.state.settings.queue);
        match self.state.client.submit(&request).await {
            Ok(submitted) => Ok(Some((submitted.job, submitted.existing))),
            // The token is for other users: no launch with it comes through. Another token may have been used before.
            Err(error) if error.code() == Some(ErrorCode::Forbidden) => {
                Ok(self.find(run).await?.map(|job| (job, true)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The job of a proc among those of the server.
    async fn find(&self, run: &FrameRun) -> Result<Option<u64>, WorkersError> {
        let mut query = JobsQuery {
            queue: Some(self.state.settings.queue.clone()),
            name: Some(run.proc_id.clone()),
            ..JobsQuery::default()
        };
        loop {
            let page = self.state.client.jobs(&query).await?;
            if let Some(job) = page.items.iter().find(|job| run_of_job(&job.name).as_ref() == Some(run)) {
                return Ok(Some(job.id));
            }
            if page.next.is_none() {
                return Ok(None);
            }
            query.cursor = page.next;
        }
    }

    /// A job runs a frame from now on.
    fn began(&self, job: u64, run: FrameRun) {
        if self.state.live.lock().add(job, run) {
            self.tell(job);
        }
    }

    /// Has the end of a job reported to OpenCue.
    fn tell(&self, job: u64) {
        if self.state.ended.try_send(job).is_err() {
            self.state.missed.notify_one();
        }
    }
}

fn read_credentials(settings: &WorkersSettings) -> Result<Credentials, CredentialsError> {
    let (ca, token) = (settings.ca_file.as_deref(), settings.token_file.as_deref());
    Credentials::read(ca, None, token, (None, None))
}

/// A refusal is an answer, by which a host and a layer are judged. All other errors mean that there was no answer.
fn status(error: ClientError) -> Status {
    match &error {
        ClientError::Refused(detail) if !error.is_temporary() => {
            Status::failed_precondition(detail.message.clone())
        }
        _ => Status::unavailable(error.root()),
    }
}
