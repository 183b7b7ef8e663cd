//! A server among those that share a database: its row in the list, its lease as the owner of the farm, and its time
//! as a standby of another owner.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use windlass_server::{Handle, KnownOwner, OwnerWatch, ServerKey, StandBy, since_boot};
use windlass_store::{OwnerRow, ServerId, ServerRow, Store, StoreError};

/// How long an owner may be silent before another server takes the farm. For as long after its last renewal it extends
/// leases of workers; a lease that the next owner gives begins later.
const LEASE: Duration = Duration::from_secs(5);
/// How often the owner renews its lease.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// How long one try to renew may take.
const RENEW_PATIENCE: Duration = Duration::from_secs(2);
/// How often a server that stands by looks at the owner's lease.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a server that stands by tells the list that it is alive.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A server that was silent for this long is not one that could take the farm.
const SILENT_MAX: Duration = Duration::from_secs(6);

/// A server in the list of those that use a database.
#[derive(Clone)]
pub struct Member {
    store: Store,
    /// The store, by connections for the list of servers and the owner's row alone. While reads take all others, this
    /// server must still beat: a silent one is forgotten.
    list: Store,
    server: ServerId,
    key: ServerKey,
}

/// Why an owner gives the farm up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Another server has it.
    Superseded,
    /// An administrator drained this server, and another one can take the farm.
    Drained,
}

/// A store that this process may commit to, for as long as this is held.
pub struct OwnStore {
    pub store: Store,
    /// `None` for a store that no other server can use.
    lease: Option<Lease>,
}

struct Lease {
    renewed: Arc<Renewed>,
    renewal: JoinHandle<()>,
    lost: watch::Receiver<Option<Lost>>,
}

/// When the lease was renewed last, and the server to tell of it, once there is one.
#[derive(Default)]
struct Renewed {
    /// Time since the machine was started, from before the database was asked.
    last: Mutex<Duration>,
    handle: OnceLock<Handle>,
}

impl Renewed {
    fn at(&self, asked: Duration) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        self.tell();
    }

    fn tell(&self) {
        if let Some(handle) = self.handle.get() {
            handle.sure_until(*self.last.lock().unwrap_or_else(PoisonError::into_inner) + LEASE);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl OwnStore {
    /// A store that no other server can use.
    pub fn alone(store: Store) -> OwnStore {
        OwnStore { store, lease: None }
    }

    /// The server extends leases of workers only while its own is renewed.
    pub fn bind(&self, handle: &Handle) {
        if let Some(lease) = &self.lease {
            _ = lease.renewed.handle.set(handle.clone());
            lease.renewed.tell();
        }
    }

    /// Returns when the server must cease to be the owner.
    pub async fn lost(&self) -> Lost {
        if let Some(lease) = &self.lease {
            let mut lost = lease.lost.clone();
            if let Ok(why) = lost.wait_for(Option::is_some).await {
                return why.unwrap_or(Lost::Superseded);
            }
        }
        std::future::pending().await
    }

    /// Gives the farm back when the engine has stopped, so that the next owner need not wait.
    pub async fn close(self) {
        let Some(lease) = self.lease else { return };
        drop(lease);
        match self.store.release().await {
            Ok(()) | Err(StoreError::Superseded) => {}
            Err(error) => tracing::warn!("the lease was not given back: {error}"),
        }
    }
}

impl Member {
    /// Enters this server into the list, with the other half of its key; `None` where no other server can use the store.
    pub async fn join(
        store: &Store,
        name: &str,
        addresses: &[String],
        key: &ServerKey,
    ) -> anyhow::Result<Option<Member>> {
        if !matches!(store, Store::Postgres(_)) {
            return Ok(None);
        }
        let list = store.with_own_connections();
        let (release, verify_key) = (env!("CARGO_PKG_VERSION"), Some(key.verify_key()));
        let server = list.register_server(name, addresses, release, verify_key).await?;
        Ok(Some(Member { store: store.clone(), list, server, key: key.clone() }))
    }

    /// Takes this server out of the list.
    pub async fn leave(self) {
        if let Err(error) = self.list.server_leaves(self.server).await {
            tracing::warn!("{error}");
        }
    }

    /// A server that stands by for the owner.
    pub fn stand_by(&self) -> StandBy {
        StandBy::new(self.store.clone(), self.server, self.key.clone())
    }

    /// Takes the farm if no server owns it, unless this server is drained and another one could take it.
    pub async fn claim_unless_drained(&self) -> Result<Option<OwnStore>, StoreError> {
        let state = self.list.server_beat(self.server).await?;
        match state.is_draining && self.another_could().await {
            true => Ok(None),
            false => self.claim().await,
        }
    }

    /// Takes the farm if no server owns it, or if the owner's lease has run out by the database's clock.
    async fn claim(&self) -> Result<Option<OwnStore>, StoreError> {
        let asked = since_boot();
        let Some(ownership) = self.list.claim(self.server, LEASE).await? else { return Ok(None) };
        let owner = self.store.as_owner(ownership);
        let (sender, lost) = watch::channel(None);
        let renewed = Arc::<Renewed>::default();
        renewed.at(asked);
        let member = self.clone();
        let renewal = tokio::spawn(renew(owner.clone(), member, renewed.clone(), sender));
        Ok(Some(OwnStore { store: owner, lease: Some(Lease { renewed, renewal, lost }) }))
    }

    /// Waits until this server has taken the farm, because its owner gave it up or is gone. Tells `standby` who the owner
    /// is meanwhile.
    pub async fn await_turn(&self, standby: &StandBy) -> anyhow::Result<OwnStore> {
        let mut watch = OwnerWatch::new(LEASE);
        let (mut beat, mut is_draining, mut fails) = (None, false, false);
        let mut known: Option<(u64, Option<ServerId>)> = None;
        loop {
            if beat.is_none_or(|at| since_boot() >= at + BEAT_EVERY)
                && let Ok(state) = self.list.server_beat(self.server).await
            {
                anyhow::ensure!(
                    state.is_listed,
                    "this server was silent for so long that its list has forgotten it"
                );
                (beat, is_draining) = (Some(since_boot()), state.is_draining);
            }
            match self.list.owner().await {
                Err(error) => {
                    watch.failed();
                    if !fails {
                        tracing::warn!("cannot see who owns the farm: {error}");
                    }
                    fails = true;
                }
                Ok(row) => {
                    fails = false;
                    let seen = row.as_ref().map(|row| (row.epoch, row.server));
                    if seen != known {
                        let owner = self.owner_of(row.as_ref()).await;
                        known = seen.filter(|_| owner.is_some());
                        standby.set_owner(owner);
                    }
                    let is_free = watch.looked(since_boot(), row.as_ref());
                    let waits = is_draining && self.another_could().await;
                    if is_free && !waits {
                        match self.claim().await {
                            Ok(Some(owned)) => return Ok(owned),
                            Ok(None) => {}
                            Err(error) => tracing::warn!("cannot take the farm: {error}"),
                        }
                    }
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn owner_of(&self, row: Option<&OwnerRow>) -> Option<KnownOwner> {
        let owner = row?.server?;
        let server = self.list.servers().await.ok()?.into_iter().find(|server| server.id == owner)?;
        tracing::info!("the server '{}' owns the farm", server.name);
        Some(KnownOwner { name: server.name, address: server.addresses.into_iter().next() })
    }

    /// The name of the owner, for people.
    pub async fn owner_name(&self) -> Option<String> {
        let owner = self.list.owner().await.ok()??.server?;
        let servers = self.list.servers().await.ok()?;
        servers.into_iter().find(|server| server.id == owner).map(|server| server.name)
    }

    async fn another_could(&self) -> bool {
        self.list.servers().await.is_ok_and(|servers| another_could(&servers, self.server))
    }
}

/// True if a server other than `own` is there to take the farm.
fn another_could(servers: &[ServerRow], own: ServerId) -> bool {
    servers.iter().any(|server| server.id != own && !server.is_draining && server.silent < SILENT_MAX)
}

/// Renews the lease and beats until another server has the farm, or until this one is drained and another one could take it.
async fn renew(owner: Store, member: Member, renewed: Arc<Renewed>, lost: watch::Sender<Option<Lost>>) {
    let (mut failed_since, mut drain_told) = (None, false);
    loop {
        sleep(RENEW_EVERY).await;
        let asked = since_boot();
        match timeout(RENEW_PATIENCE, owner.renew()).await {
            Ok(Ok(())) => {
                renewed.at(asked);
                if let Some(since) = failed_since.take() {
                    let seconds = (asked.saturating_sub(since)).as_secs();
                    tracing::info!("the lease is renewed again, after {seconds} s");
                }
            }
            Ok(Err(error @ StoreError::Superseded)) => {
                tracing::warn!("{error}; this server stands by, and running tasks go on");
                lost.send_replace(Some(Lost::Superseded));
                return;
            }
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => format!("the database has not answered for {} s", RENEW_PATIENCE.as_secs()),
                };
                if failed_since.is_none() {
                    tracing::warn!("the lease was not renewed: {why}");
                }
                failed_since = failed_since.or(Some(asked));
                continue;
            }
        }
        let beat = member.list.server_beat(member.server);
        let Ok(Ok(state)) = timeout(RENEW_PATIENCE, beat).await else { continue };
        if !state.is_draining {
            drain_told = false;
            continue;
        }
        if member.another_could().await {
            tracing::info!("this server is drained, and gives the farm up");
            lost.send_replace(Some(Lost::Drained));
            return;
        }
        if !drain_told {
            tracing::warn!("this server is drained, but no other one could take the farm; it goes on");
        }
        drain_told = true;
    }
}
