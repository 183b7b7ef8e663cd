//! The state that all requests share, and the options from which it is made.

use super::intake::Intake;
use super::turn_table::TurnTable;
use super::turns::Turns;
use crate::activity::Activity;
use crate::api_error::ApiError;
use crate::audit::Audit;
use crate::auth::{Auth, Caller, Denied};
use crate::config::{BoardConfig, UserLimits};
use crate::connections::RoomLimits;
use crate::door::loopback::{DoorAsks, LoopbackDoor};
use crate::door::sessions::Sessions;
use crate::figures::{Figures, RecentAnswer};
use crate::gateway::{Front, Gateways};
use crate::grpc::WorkerTerms;
use crate::handle::Handle;
use crate::job_files::{FilesState, JobFiles};
use crate::listen::Listener;
use crate::local_users::MachineUsers;
use crate::metrics::Entries;
use crate::peers::{RequestClient, ServerKey};
use crate::reader::Reader;
use crate::refusals::Refusals;
use crate::submission_rights::{Rates, SubmissionRights};
use crate::view::SeenScaling;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windlass_api::SetQueue;
use windlass_core::TaskId;
use windlass_core::engine::StartableMachine;
use windlass_core::scaling::{ScalingSettings, startable_machines};
use windlass_store::ServerId;

/// Refusals of one user that are noted in a minute.
const NOTED_PER_MINUTE: u32 = 60;

/// The state that all requests share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) handle: Handle,
    pub(super) shared: Arc<AppShared>,
}

pub(super) struct AppShared {
    pub(super) store: String,
    /// What gateways have, too: the tokens, and what callers may do.
    pub(super) front: Front,
    pub(super) board: BoardConfig,
    pub(super) sessions: Arc<Sessions>,
    /// The board's port, on a server that listens on a unix socket alone.
    pub(super) door: LoopbackDoor,
    /// Where browsers of this machine reach a server on TCP.
    pub(super) url_here: Option<String>,
    pub(super) audit: Audit,
    pub(super) refusals: Arc<Refusals>,
    pub(super) gateways: Gateways,
    /// Files of jobs, on the server that owns the farm.
    pub(super) files: Option<JobFiles>,
    pub(super) intake: Intake,
    pub(super) turns: Turns,
    /// Commands on clients' machines that wait for room there, or have it.
    pub(super) client_turns: TurnTable,
    /// Refusals of known users that are noted.
    pub(super) noted: Rates,
    pub(super) figures: Arc<Figures>,
    /// By what it is worked out how many workers are wanted.
    pub(super) scaling: ScalingSettings,
    /// The machines of its declared classes.
    pub(super) startable: Arc<[StartableMachine]>,
    /// How many are, as it was worked out last.
    pub(super) seen_scaling: RecentAnswer<SeenScaling>,
    /// Settings of queues that only the server's settings file changes.
    pub(super) file_queues: BTreeMap<String, SetQueue>,
    /// Tasks that lend their cpus, and how many waits of each are under way.
    pub(super) loans: Mutex<BTreeMap<TaskId, usize>>,
    /// How the owner is asked, on a server that stands by.
    pub(super) request_client: Option<Arc<RequestClient>>,
    /// By which this server signs what it writes for other servers.
    pub(super) key: Option<ServerKey>,
}

impl App {
    pub(super) fn reader(&self, caller: &Caller) -> Reader {
        Reader::of(caller, self.shared.front.read_all)
    }

    /// Files of jobs; `None` on a server that keeps none.
    pub(super) fn files(&self) -> Option<&Arc<FilesState>> {
        self.shared.files.as_ref().map(JobFiles::state)
    }

    /// How the owner is asked; `None` on the owner.
    pub(crate) fn request_client(&self) -> Option<&Arc<RequestClient>> {
        self.shared.request_client.as_ref()
    }

    /// This server's number in the store's list; `None` where no other server can use the store.
    pub(crate) fn own_number(&self) -> Option<ServerId> {
        let owner = self.handle.store().ownership().map(|ownership| ownership.server);
        owner.or_else(|| self.request_client().map(|request_client| request_client.server()))
    }

    /// How many entries the tables of requests have. The request that asks is among them.
    pub(super) fn entries(&self) -> Entries {
        let mut all = vec![
            ("loans", self.shared.loans.lock().len()),
            ("client_turns", self.shared.client_turns.len()),
            ("users_with_requests", self.shared.turns.user_count()),
            ("users_with_bodies", self.shared.intake.user_count()),
            ("strangers_with_bodies", self.shared.intake.stranger_count()),
        ];
        if let Some(request_client) = self.request_client() {
            all.extend(request_client.entries());
        }
        all
    }
}

/// Handlers have the reader as an argument. The guard has let the caller in before.
impl FromRequestParts<App> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>();
        let missing = || ApiError::new(Denied::Missing.code(), Denied::Missing.to_string());
        caller.map(|caller| app.reader(caller)).ok_or_else(missing)
    }
}

/// How a server is served.
pub struct ServeOptions {
    /// The store's address, as `/api/v1/version` tells it.
    pub store: String,
    /// The tokens, which say who is let in. A job that names no user is the caller's.
    pub auth: Auth,
    /// Where changes and refusals are noted.
    pub audit: Option<PathBuf>,
    /// The server ends by itself after so long without active jobs or requests.
    pub idle: Option<Duration>,
    /// How workers are met.
    pub terms: WorkerTerms,
    /// The interfaces of other systems.
    pub gateways: Gateways,
    /// Files of jobs; `None` on a server that stands by.
    pub files: Option<JobFiles>,
    /// How many connections there may be over TCP.
    pub room: RoomLimits,
    /// Limits of one user.
    pub user_limits: UserLimits,
    /// Whether users read the output and the commands of others' jobs.
    pub read_all: bool,
    /// Old files of the audit log that are kept.
    pub audit_files: u32,
    /// How the board is served.
    pub board: BoardConfig,
    /// Settings of queues from the server's settings file, by name.
    pub queues: BTreeMap<String, SetQueue>,
    /// By what it is worked out how many workers are wanted.
    pub scaling: ScalingSettings,
    /// By which this server signs what it asks other servers, and what it has done for them; `None` if it signs nothing.
    pub key: Option<ServerKey>,
    /// The users of the machine who may open the unix socket; `None` where only the server's own user may.
    pub users: Option<Arc<MachineUsers>>,
}

/// The state for a server behind these listeners, and what its door is asked.
pub(super) fn new_app(
    listeners: &[Listener],
    handle: &Handle,
    options: ServeOptions,
    request_client: Option<Arc<RequestClient>>,
) -> (App, DoorAsks) {
    let metrics = &handle.parts().metrics;
    let (door, asks) = LoopbackDoor::new();
    let shared = AppShared {
        store: options.store,
        front: Front {
            handle: handle.clone(),
            auth: Arc::new(options.auth),
            parsers: Arc::default(),
            rights: Arc::new(SubmissionRights::new(handle.clone(), options.user_limits)),
            activity: Activity::new(),
            read_all: options.read_all,
        },
        board: options.board,
        sessions: Arc::default(),
        door,
        url_here: listeners.iter().find_map(Listener::url_here),
        audit: Audit::start(options.audit, options.audit_files, metrics.audit_lost.clone()),
        refusals: Arc::new(Refusals::new(metrics.refusals.clone())),
        gateways: options.gateways,
        files: options.files,
        intake: Intake::default(),
        turns: Turns::default(),
        client_turns: TurnTable::new(handle.now()),
        noted: Rates::new(NOTED_PER_MINUTE),
        figures: Arc::new(Figures::new(&handle.parts().clock)),
        startable: startable_machines(&options.scaling),
        scaling: options.scaling,
        seen_scaling: RecentAnswer::default(),
        file_queues: options.queues,
        loans: Mutex::default(),
        request_client,
        key: options.key,
    };
    (App { handle: handle.clone(), shared: Arc::new(shared) }, asks)
}
