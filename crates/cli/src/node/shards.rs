//! The shards of a farm that is divided, but for the first: this server takes those that belong to it, runs an engine for
//! each, and gives one up in order when it belongs to another server.
//!
//! - Every server computes the same from the list of servers ([`FarmShards::spread`]). Nobody assigns shards.
//! - A server that beats no more, leaves or is drained has no part in that, so its shards belong to others. These take them
//!   when the owner has released them, or has not renewed its lease for five seconds.
//! - Two servers that see the list differently for a moment do no harm: the database gives a shard to one owner at a time.

use crate::commands::select::user_name;
use crate::node::member::{LEASE, Member, OwnStore, SILENT_MAX};
use crate::node::site::serve_options;
use crate::ui::output::talk;
use futures_util::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use windlass_core::ids::ShardId;
use windlass_server::auth::Auth;
use windlass_server::{Config, FarmShards, Handle, KnownOwner, OwnerWatch, ShellOptions, since_boot};
use windlass_store::{ServerId, ServerRow, ShardRow, Store, StoreError};

/// How often the list of servers and the owners of shards are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked whether the farm is divided by now.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one look may take. A database that does not answer must not keep a server from ending.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);
/// How often this server tells the list that it is alive.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long requests that a shard's owner answers may take when it gives the shard up.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What the engines of shards are set up with.
#[derive(Clone)]
pub struct ShardSite {
    pub config: Config,
    pub store: Store,
    pub store_address: String,
    /// Whether callers over TCP need tokens.
    pub auth: bool,
    pub shards: FarmShards,
}

/// Takes, runs and gives up shards until it is stopped.
pub struct ShardKeeper {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ShardKeeper {
    /// For this entry in the list of servers.
    pub fn start(member: Member, site: ShardSite) -> ShardKeeper {
        let (stop, stopped) = watch::channel(false);
        let keeping = Keeping {
            member,
            site,
            running: BTreeMap::new(),
            watches: BTreeMap::new(),
            beat: None,
            fails: false,
        };
        ShardKeeper { stop, task: tokio::spawn(keeping.run(stopped)) }
    }

    /// Ends the engines when what they decided is committed, and gives the shards back.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!("shards were not given back: {error}");
        }
    }
}

struct Keeping {
    member: Member,
    site: ShardSite,
    running: BTreeMap<ShardId, RunningShard>,
    /// What was seen of the leases of shards.
    watches: BTreeMap<ShardId, OwnerWatch>,
    /// When this server beat last.
    beat: Option<Duration>,
    /// The last look failed, which was said.
    fails: bool,
}

impl Keeping {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            match timeout(LOOK_PATIENCE, self.see()).await {
                Ok(Ok(Some(seen))) => {
                    self.fails = false;
                    self.act(seen).await;
                }
                Ok(Ok(None)) => self.fails = false,
                Ok(Err(error)) => self.failed(&error.to_string()),
                Err(_) => self.failed("the database does not answer"),
            }
            let pause = if self.site.shards.is_divided() { LOOK_EVERY } else { IDLE_LOOK_EVERY };
            tokio::select! {
                () = sleep(pause) => {}
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
        }
        for (shard, running) in std::mem::take(&mut self.running) {
            running.stop(shard, &self.site.shards).await;
        }
    }

    fn failed(&mut self, why: &str) {
        self.watches.values_mut().for_each(OwnerWatch::failed);
        if !std::mem::replace(&mut self.fails, true) {
            tracing::warn!("cannot see who owns which shard: {why}");
        }
    }

    /// Looks at the servers and shards of the farm; `None` of one that is not divided.
    async fn see(&mut self) -> Result<Option<Seen>, StoreError> {
        let store = &self.site.store;
        self.site.shards.add_shards(store.farm_shards().await?);
        if !self.site.shards.is_divided() {
            return Ok(None);
        }
        if self.beat.is_none_or(|at| since_boot() >= at + BEAT_EVERY) {
            self.member.beat().await?;
            self.beat = Some(since_boot());
        }
        let (servers, rows) = (store.servers().await?, store.shards().await?);
        Ok(Some(Seen { servers, rows }))
    }

    async fn act(&mut self, seen: Seen) {
        self.site.shards.set_owners(seen.owners());
        let own = seen.servers.iter().find(|server| server.id == self.member.server());
        let own = own.map(|server| server.name.clone());
        let belongs = self.site.shards.spread(&able(&seen.servers, self.member.server()));
        for (shard, to) in &belongs {
            let row = seen.rows.iter().find(|row| row.id == *shard);
            let watch = self.watches.entry(*shard).or_insert_with(|| OwnerWatch::new(LEASE));
            let was_here = row.is_some_and(|row| row.owner == Some(self.member.server()));
            let is_free = watch.looked(since_boot(), row) || was_here;
            let is_own = Some(to) == own.as_ref();
            match self.running.get(shard) {
                Some(running) if running.is_lost() || !is_own => self.give_up(*shard).await,
                None if is_own && is_free => self.take(*shard).await,
                _ => {}
            }
        }
    }

    async fn take(&mut self, shard: ShardId) {
        let own_store = match self.member.claim(shard).await {
            Ok(Some(own_store)) => own_store,
            Ok(None) => return,
            Err(error) => return tracing::warn!("cannot take shard {shard}: {error}"),
        };
        match RunningShard::start(shard, own_store, &self.site).await {
            Ok(running) => _ = self.running.insert(shard, running),
            Err(error) => tracing::error!("cannot run shard {shard}: {error}; trying again"),
        }
    }

    async fn give_up(&mut self, shard: ShardId) {
        if let Some(running) = self.running.remove(&shard) {
            running.stop(shard, &self.site.shards).await;
        }
    }
}

/// The farm at one look.
struct Seen {
    servers: Vec<ServerRow>,
    rows: Vec<ShardRow>,
}

impl Seen {
    fn owners(&self) -> BTreeMap<ShardId, KnownOwner> {
        let owner = |row: &ShardRow| {
            let server = self.servers.iter().find(|server| Some(server.id) == row.owner)?;
            let address = server.addresses.first().cloned();
            Some((row.id, KnownOwner { name: server.name.clone(), address }))
        };
        self.rows.iter().filter_map(owner).collect()
    }
}

/// The names of the servers that may have shards: those that beat and are not drained. Where all are drained, they go on.
fn able(servers: &[ServerRow], own: ServerId) -> BTreeSet<String> {
    let there = || servers.iter().filter(|server| server.id == own || server.silent < SILENT_MAX);
    let able: BTreeSet<String> =
        there().filter(|server| !server.is_draining).map(|server| server.name.clone()).collect();
    if able.is_empty() { there().map(|server| server.name.clone()).collect() } else { able }
}

/// A shard whose engine is in this process.
struct RunningShard {
    handle: Handle,
    served: JoinHandle<()>,
    own_store: OwnStore,
}

impl RunningShard {
    async fn start(
        shard: ShardId,
        own_store: OwnStore,
        site: &ShardSite,
    ) -> Result<RunningShard, StoreError> {
        match RunningShard::engine(&own_store, site).await {
            Ok((handle, auth)) => {
                let options = serve_options(&site.config, &site.store_address, &site.shards, auth);
                let served = tokio::spawn(windlass_server::serve_shard(handle.clone(), options));
                site.shards.begin(shard, handle.clone());
                talk!("this server owns shard {shard} now");
                Ok(RunningShard { handle, served, own_store })
            }
            Err(error) => {
                own_store.close().await;
                Err(error)
            }
        }
    }

    async fn engine(own_store: &OwnStore, site: &ShardSite) -> Result<(Handle, Auth), StoreError> {
        let auth = Auth::load(&site.store, site.auth, user_name()).await?;
        let options = ShellOptions { settings: site.config.engine_settings() };
        let handle = windlass_server::start(own_store.store.clone(), options).await?;
        own_store.bind(&handle);
        Ok((handle, auth))
    }

    /// True once this server must cease to own it.
    fn is_lost(&self) -> bool {
        self.own_store.lost().now_or_never().is_some()
    }

    /// Streams of workers end, and what was decided is committed. Tasks go on.
    async fn stop(mut self, shard: ShardId, shards: &FarmShards) {
        shards.end(shard);
        self.handle.close();
        if timeout(STOP_TIMEOUT, &mut self.served).await.is_err() {
            self.served.abort();
        }
        self.handle.stop().await;
        self.own_store.close().await;
        talk!("this server does not own shard {shard} any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: i64, silent_s: u64, is_draining: bool) -> ServerRow {
        ServerRow {
            id: ServerId(id),
            name: format!("s{id}"),
            addresses: vec![format!("http://s{id}")],
            release: String::new(),
            is_draining,
            age: Duration::ZERO,
            silent: Duration::from_secs(silent_s),
        }
    }

    #[test]
    fn servers_that_are_silent_or_drained_have_no_shard_unless_all_are() {
        let names =
            |servers: &[ServerRow]| able(servers, ServerId(1)).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names(&[server(1, 9, false), server(2, 1, false), server(3, 9, false)]), "s1 s2");
        assert_eq!(names(&[server(1, 0, true), server(2, 1, false), server(3, 9, false)]), "s2");
        assert_eq!(names(&[server(1, 0, true), server(2, 1, true), server(3, 9, false)]), "s1 s2");
        assert_eq!(names(&[]), "");
    }
}
