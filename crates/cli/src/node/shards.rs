//! The shards of a farm that is divided, but for the first: this server takes those that belong to it, runs an engine for
//! each, and gives one up in order when it belongs to another server.
//!
//! - Every server computes the same from the list of servers ([`FarmShards::spread`]). Nobody assigns shards.
//! - A server that beats no more, leaves or is drained has no part in that, so its shards belong to others. These take them
//!   when the owner has released them, or has not renewed its lease for five seconds.
//! - Two servers that see the list differently for a moment do no harm: the database gives a shard to one owner at a time.
//! - One task looks at the list and says what is to become of each shard. Each shard has a task of its own, which takes the
//!   shard, runs it and gives it up. So a shard that loads for long, or whose last commit hangs, delays no other one.

use crate::commands::select::user_name;
use crate::node::member::{LEASE, Member, OwnStore, SILENT_MAX};
use crate::node::site::serve_options;
use crate::ui::output::talk;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use windlass_core::ids::ShardId;
use windlass_server::auth::Auth;
use windlass_server::{Config, FarmShards, Handle, KnownOwner, OwnerWatch, ShellOptions, since_boot};
use windlass_store::{ServerId, ServerRow, ServerShare, ShardRow, Store, StoreError};

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
        let (tasks, watches) = (BTreeMap::new(), BTreeMap::new());
        let keeping = Keeping { member, site, tasks, watches, beat: None, fails: false };
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
    tasks: BTreeMap<ShardId, ShardTask>,
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
                    self.act(&seen);
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
        // All of them give their shards back at the same time.
        let ending: Vec<JoinHandle<()>> = self.tasks.into_values().map(ShardTask::end).collect();
        for task in ending {
            if let Err(error) = task.await {
                tracing::error!("a shard was not given back: {error}");
            }
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
        let store = self.member.list();
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

    /// Says what is to become of each shard.
    fn act(&mut self, seen: &Seen) {
        self.site.shards.set_owners(seen.owners());
        let own = seen.servers.iter().find(|server| server.id == self.member.server());
        let own = own.map(|server| server.name.clone());
        let able = Able::of(&seen.servers, self.member.server());
        self.site.shards.let_workers_move(!able.is_mixed);
        for (shard, to) in self.site.shards.spread(&able.servers) {
            let row = seen.rows.iter().find(|row| row.id == shard);
            let watch = self.watches.entry(shard).or_insert_with(|| OwnerWatch::new(LEASE));
            let was_here = row.is_some_and(|row| row.owner == Some(self.member.server()));
            let is_free = watch.looked(since_boot(), row) || was_here;
            let wish = match Some(to) == own {
                false => ShardWish::Leave,
                true if is_free => ShardWish::Take,
                true => ShardWish::Keep,
            };
            let (member, site) = (&self.member, &self.site);
            let task = self.tasks.entry(shard).or_insert_with(|| ShardTask::start(shard, member, site));
            task.wish.send_replace(wish);
        }
    }
}

/// What is to become of a shard at this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShardWish {
    /// It belongs to another server.
    Leave,
    /// It belongs here, and another server may own it still.
    Keep,
    /// It belongs here, and no other server owns it.
    Take,
}

/// The task of one shard.
struct ShardTask {
    wish: watch::Sender<ShardWish>,
    task: JoinHandle<()>,
}

impl ShardTask {
    fn start(shard: ShardId, member: &Member, site: &ShardSite) -> ShardTask {
        let (wish, wishes) = watch::channel(ShardWish::Leave);
        let task = tokio::spawn(keep_shard(shard, member.clone(), site.clone(), wishes));
        ShardTask { wish, task }
    }

    /// The task ends when it has given the shard back.
    fn end(self) -> JoinHandle<()> {
        self.task
    }
}

/// Takes, runs and gives up one shard as it is told, until the sender of wishes is gone. Wishes are repeated with each look,
/// so one that could not be met is tried again.
async fn keep_shard(shard: ShardId, member: Member, site: ShardSite, mut wishes: watch::Receiver<ShardWish>) {
    let mut running: Option<RunningShard> = None;
    loop {
        tokio::select! {
            told = wishes.changed() => if told.is_err() { break },
            () = lost(running.as_ref()) => {}
        }
        let wish = *wishes.borrow_and_update();
        if let Some(ending) = running.take_if(|running| running.is_lost() || wish == ShardWish::Leave) {
            ending.stop(shard, &site.shards).await;
        } else if running.is_none() && wish == ShardWish::Take {
            running = take(shard, &member, &site).await;
        }
    }
    if let Some(running) = running {
        running.stop(shard, &site.shards).await;
    }
}

/// Returns when this server must cease to own a shard that it runs.
async fn lost(running: Option<&RunningShard>) {
    match running {
        Some(running) => _ = running.own_store.lost().await,
        None => std::future::pending().await,
    }
}

async fn take(shard: ShardId, member: &Member, site: &ShardSite) -> Option<RunningShard> {
    let own_store = match member.claim(shard).await {
        Ok(own_store) => own_store?,
        Err(error) => {
            tracing::warn!("cannot take shard {shard}: {error}");
            return None;
        }
    };
    match RunningShard::start(shard, own_store, site).await {
        Ok(running) => Some(running),
        Err(error) => {
            tracing::error!("cannot run shard {shard}: {error}; trying again");
            None
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

/// The servers that may have shards, by name: those that beat and are not drained. Where all are drained, they go on.
struct Able {
    servers: BTreeMap<String, ServerShare>,
    /// Some server that beats is of a release without shares. It could not compute the same as the others if shares
    /// counted, so they do not.
    is_mixed: bool,
}

impl Able {
    fn of(servers: &[ServerRow], own: ServerId) -> Able {
        let beating: Vec<&ServerRow> =
            servers.iter().filter(|server| server.id == own || server.silent < SILENT_MAX).collect();
        let is_mixed = beating.iter().any(|server| server.share.is_none());
        let all_drained = beating.iter().all(|server| server.is_draining);
        let mut able = BTreeMap::new();
        // Of two of one name the later one counts: it is another start of the same server.
        for server in beating.into_iter().filter(|server| all_drained || !server.is_draining) {
            let share = server.share.clone().filter(|_| !is_mixed).unwrap_or_default();
            able.insert(server.name.clone(), share);
        }
        Able { servers: able, is_mixed }
    }
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
            share: Some(ServerShare::default()),
            age: Duration::ZERO,
            silent: Duration::from_secs(silent_s),
        }
    }

    #[test]
    fn servers_that_are_silent_or_drained_have_no_shard_unless_all_are() {
        let names = |servers: &[ServerRow]| {
            Able::of(servers, ServerId(1)).servers.into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&[server(1, 9, false), server(2, 1, false), server(3, 9, false)]), "s1 s2");
        assert_eq!(names(&[server(1, 0, true), server(2, 1, false), server(3, 9, false)]), "s2");
        assert_eq!(names(&[server(1, 0, true), server(2, 1, true), server(3, 9, false)]), "s1 s2");
        assert_eq!(names(&[]), "");
    }

    #[test]
    fn shares_count_when_all_servers_that_beat_know_them() {
        let share = |weight| Some(ServerShare { weight, ..ServerShare::default() });
        let heavy = ServerRow { share: share(7), ..server(1, 0, false) };
        let old = |silent_s| ServerRow { share: None, ..server(2, silent_s, false) };
        let able = Able::of(&[heavy.clone(), old(9)], ServerId(1));
        assert!(!able.is_mixed && able.servers["s1"].weight == 7, "the old one is gone");
        let able = Able::of(&[heavy.clone(), old(1)], ServerId(1));
        assert!(able.is_mixed && able.servers.values().all(|share| *share == ServerShare::default()));
        // A server that was started again has another share.
        let again = ServerRow { id: ServerId(5), share: share(3), ..heavy.clone() };
        assert_eq!(Able::of(&[heavy, again], ServerId(5)).servers["s1"].weight, 3);
    }
}
