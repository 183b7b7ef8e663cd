//! The site of a server of this process: its addresses, its access rules and its store. These stay the same while the
//! server owns its farm and while it stands by.

use crate::client::user::user_name;
use crate::node::cookie;
use crate::node::gateways;
use crate::node::life::Life;
use crate::node::machine_users;
use crate::node::member::{Member, OwnStore};
use crate::node::paths::{Paths, let_users_in};
use crate::node::watchdog;
use crate::ui::message::message;
use anyhow::Context as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use windlass_server::auth::{Auth, OwnToken};
use windlass_server::{
    Config, Gateways, JobFiles, Listener, MachineUsers, Protection, Reads, RoomLimits, ServeOptions,
    ServerKey, WorkerTerms,
};
use windlass_store::Store;
use windlass_worker::ADMIN_SOCKET;

/// The audit log, in the state directory.
const AUDIT_LOG: &str = "audit.log";
/// How long requests under way may take when a server that stands by ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// The shortest lease of workers on a store that several servers may share. A takeover takes up to ten seconds, and a
/// worker ends its tasks after nine tenths of its lease.
const LEASE_MIN: Duration = Duration::from_secs(15);
/// After an error of the database.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The parts of a server that exist before it knows whether it owns its farm.
pub struct Site {
    pub config: Config,
    pub state: PathBuf,
    pub life: Life,
    /// Where clients reach it.
    pub address: String,
    /// Where clients of this machine reach it.
    pub address_here: String,
    store_address: String,
    protection: Protection,
    /// The token of clients of this machine, where it listens on TCP and asks for tokens there.
    own_token: Option<OwnToken>,
    listeners: Vec<Listener>,
    store: Store,
    member: Option<Member>,
    /// By which this process signs what it asks other servers.
    key: ServerKey,
    /// In the list of servers.
    name: String,
    /// The users of this machine whom the socket lets in; `None` where it lets in this process's user alone.
    users: Option<Arc<MachineUsers>>,
    /// It has owned the farm, or stood by.
    was_up: bool,
}

impl Site {
    /// Opens the store, and listens, so that connections wait. A client that can connect finds its token already.
    pub async fn open(config: &Config, state: &Path, life: Life) -> anyhow::Result<Site> {
        let store_address = config.store.clone();
        let store_address =
            store_address.unwrap_or_else(|| format!("sqlite:{}", state.join("windlass.db").display()));
        let protection = protection(config)?;
        let listen = config.listen.as_deref().unwrap_or_default();
        let over_tcp = !listen.starts_with("unix:");
        let users = config.machine.as_ref().map(machine_users::known_users).transpose()?;
        let listener = Listener::reserve(listen, &protection)?;
        anyhow::ensure!(!over_tcp || !runs_all_as_root(config), "{ALL_AS_ROOT}");
        let (address, address_here) = (listener.address(), listener.address_here());
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(state);
        made.with_context(|| format!("cannot create the state directory {}", state.display()))?;
        if let Some(machine) = &config.machine {
            let_users_in(state)?;
            machine_users::open_socket(&address, machine)?;
        }
        let asks = over_tcp && protection.auth;
        if let Some(lease) = config.lease.duration().filter(|lease| is_shared(config) && *lease < LEASE_MIN) {
            anyhow::bail!(
                "a lease of {} s is too short on a database that several servers may share: tasks would end while another \
                 server takes over. Give --lease {} or more",
                lease.as_secs(),
                LEASE_MIN.as_secs()
            );
        }
        let store = Store::connect(&store_address).await?;
        let own_token = asks.then(OwnToken::new).transpose()?;
        if let Some(own_token) = &own_token {
            // Not before the store is this process's: another server may have the state directory.
            let path = Paths::for_state(state.to_owned()).token();
            cookie::write(&path, &address_here, &own_token.bearer())?;
        }
        listener.listen()?;
        let mut listeners = vec![listener];
        if asks {
            let socket = format!("unix:{}", state.join(ADMIN_SOCKET).display());
            listeners.push(Listener::bind(&socket, &Protection::default())?);
            message!("administrators connect to {socket}");
        }
        let name = config.worker.name.clone();
        let name = name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let addresses = std::slice::from_ref(&address);
        let key = ServerKey::new()?;
        let member = Member::join(&store, &name, addresses, &key).await?;
        if member.is_some() && config.worker.enabled {
            message!(
                "this server runs no worker, because other servers may share its store: 'windlass worker start' starts one"
            );
        }
        let (config, state) = (config.clone(), state.to_owned());
        Ok(Site {
            config,
            state,
            life,
            address,
            address_here,
            store_address,
            protection,
            own_token,
            listeners,
            store,
            member,
            key,
            name,
            users,
            was_up: false,
        })
    }

    /// True if other servers may use the store.
    pub fn is_shared(&self) -> bool {
        self.member.is_some()
    }

    /// The store to commit to, once this server owns the farm. `None` if it was told to end. The first time an error is the
    /// caller's; later ones are logged, and it tries again.
    pub async fn own(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> anyhow::Result<Option<OwnStore>> {
        loop {
            let tried = match self.claim().await {
                Ok(Some(own_store)) => Ok(Some(own_store)),
                Ok(None) => self.stand_by(stop.as_mut()).await,
                Err(error) => Err(error),
            };
            match tried {
                Err(error) if self.was_up => tracing::error!("{error:#}; trying again"),
                done => {
                    self.was_up = true;
                    return done;
                }
            }
            tokio::select! {
                () = stop.as_mut() => return Ok(None),
                () = tokio::time::sleep(AGAIN_AFTER) => {}
            }
            let addresses = std::slice::from_ref(&self.address);
            if let Ok(Some(member)) = Member::join(&self.store, &self.name, addresses, &self.key).await
                && let Some(before) = self.member.replace(member)
            {
                before.leave().await;
            }
        }
    }

    /// The store to commit to; `None` if another server owns the farm.
    pub async fn claim(&self) -> anyhow::Result<Option<OwnStore>> {
        match &self.member {
            None => Ok(Some(OwnStore::alone(self.store.clone()))),
            Some(member) => Ok(member.claim_unless_drained().await?),
        }
    }

    /// Stands by until this server has taken the farm. `None` if it was told to end.
    async fn stand_by(
        &mut self,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> anyhow::Result<Option<OwnStore>> {
        let Some(member) = self.member.clone() else { return Ok(None) };
        let owner = member.owner_name().await.unwrap_or_else(|| "another server".to_owned());
        message!("standing by: '{owner}' owns the farm");
        let standby = member.stand_by();
        // Nothing is opened: the owner has files of its own.
        let cache = gateways::cache(&self.config, &self.state);
        let gateways = gateways::of(&self.config, &self.state, cache)?;
        let options = self.options(self.auth().await?, gateways, None);
        let serve = standby.clone().serve(self.listeners()?, options);
        let mut served = tokio::spawn(serve);
        let watching = tokio::spawn(watchdog::watch_runtime());
        watchdog::ready();
        let mut closing = standby.handle().closing();
        let taken = tokio::select! {
            taken = member.await_turn(&standby) => Some(taken),
            () = stop => None,
            _ = closing.wait_for(|closing| *closing) => None,
        };
        watching.abort();
        if taken.is_none() {
            self.listen_no_more();
        }
        standby.handle().close();
        match taken {
            // Its requests under way wait for the owner, which this process is from now on.
            Some(taken) => {
                message!("this server owns the farm now");
                taken.map(Some)
            }
            None => {
                if tokio::time::timeout(STOP_TIMEOUT, &mut served).await.is_err() {
                    served.abort();
                }
                Ok(None)
            }
        }
    }

    /// The access rules, by the tokens of the store and of this process.
    pub async fn auth(&self) -> anyhow::Result<Auth> {
        let auth = Auth::load(&self.store, self.protection.auth, user_name()).await?;
        if let Some(own_token) = &self.own_token {
            auth.take_own(own_token);
        }
        Ok(auth)
    }

    /// The sockets for the server that serves now. If another one may serve after it, they stay open.
    pub fn listeners(&mut self) -> anyhow::Result<Vec<Listener>> {
        if !self.is_shared() {
            return Ok(std::mem::take(&mut self.listeners));
        }
        let clones: std::io::Result<_> = self.listeners.iter().map(Listener::try_clone).collect();
        clones.context("cannot listen on")
    }

    /// Leaves the sockets to the server that serves now, so that they close with it.
    pub fn listen_no_more(&mut self) {
        self.listeners.clear();
    }

    /// How requests are served. A server that stands by has no files of jobs.
    pub fn options(&self, auth: Auth, gateways: Gateways, files: Option<JobFiles>) -> ServeOptions {
        let audit = (self.life == Life::OfItsOwn).then(|| self.state.join(AUDIT_LOG));
        let config = &self.config;
        ServeOptions {
            store: windlass_store::shown_address(&self.store_address),
            auth,
            audit,
            idle: config.idle(),
            terms: WorkerTerms { lease: config.lease.duration(), report: config.load.report() },
            gateways,
            files,
            room: RoomLimits::new(config.connections.max, config.connections.per_machine_max),
            user_limits: config.users.clone(),
            read_all: config.auth.read == Reads::All,
            audit_files: config.auth.audit_files,
            board: config.board.clone(),
            queues: config.queues.clone(),
            scaling: config.scaling.settings(),
            key: Some(self.key.clone()),
            users: self.users.clone(),
        }
    }

    /// Gives up what this server owns, and takes it out of the list of those that use its store.
    pub async fn close(self) {
        if let Some(member) = self.member {
            member.leave().await;
        }
    }
}

/// Why a server that root runs, with a worker and on TCP, is refused.
pub const ALL_AS_ROOT: &str = "the tasks of all who have a token would run as root. Give --no-worker, and let \
     'windlass worker start --map-user SUBMITTER=USER' run them; or --as-root, if that is intended";

/// True if the server's own worker would run all users' tasks as root without --as-root.
pub fn runs_all_as_root(config: &Config) -> bool {
    let has_worker = config.worker.enabled && !is_shared(config);
    has_worker && !config.worker.as_root && rustix::process::geteuid().is_root()
}

/// True if other servers may use the store. The server then runs no worker of its own: its tasks would have no lease, and
/// the server that takes over could never tell whether they have ended.
fn is_shared(config: &Config) -> bool {
    config.store.as_deref().is_some_and(|address| address.starts_with("postgres"))
}

/// Authentication and TLS of the server's port.
pub fn protection(config: &Config) -> anyhow::Result<Protection> {
    let tls = windlass_server::server_config(&config.tls)?;
    let (trust, insecure_plaintext) = (config.auth.trust_this_machine, config.auth.insecure_plaintext);
    anyhow::ensure!(
        !trust || !rustix::process::geteuid().is_root(),
        "refusing to trust this machine as root: each of its users could do everything on it. Leave out \
         --trust-this-machine: root's own clients need no token anyway"
    );
    let auth = !trust;
    if insecure_plaintext && tls.is_none() {
        message!("warning: tokens cross the network in plain text; anyone who sees one can use it");
    }
    Ok(Protection { auth, tls, insecure_plaintext })
}
