//! Build servers as workers of the engine. A build server is a worker of its own, which runs no tasks. If a worker of
//! Windlass observes it (`windlass worker start --observe ADDRESS`), that worker gives the places instead, so that
//! compiles and tasks share the machine.

use crate::farm::BadHeartbeat;
use crate::scheduler::Scheduler;
use crate::state::{Link, PLACES, QUEUE_UNKNOWN, SYSTEM, held_amounts, key_of};
use crate::wire::{Heartbeat, JobId, ServerId, ServerLoadMetrics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::Engine;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{CheckedHello, Event, Hello, PlaceInUse};
use windlass_core::hash::Fnv;
use windlass_core::ids::AllocId;
use windlass_core::load::formula::slots;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::tags::{Attributes, EXCLUSIVE, SERVES};
use windlass_core::worker::{Origin, WorkerState};
use windlass_core::{Resources, WorkerId};
use windlass_server::{Delivery, WorkerLink, WorkerMessage};

/// The attribute of a worker that observes a build server: its address.
pub const OBSERVES: &str = "sccache.server";
/// The interval at which places are adjusted. Each fifth time, build servers and jobs that are gone are looked for as
/// well.
const ADJUST: Duration = Duration::from_secs(1);
const ADJUSTS_PER_LOOK: u32 = 5;
/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// The engine's link to a build server. The engine starts nothing there.
struct ServerLink {
    id: u64,
    server: ServerId,
}

impl WorkerLink for ServerLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, _: Vec<Delivery>) {}

    fn refuse(&self, why: &str) {
        tracing::warn!("the build server {} is not taken: {why}", self.server);
    }
}

impl Scheduler {
    /// Takes in a heartbeat. True if the build server's process is new.
    pub async fn heartbeat(
        &self,
        server: ServerId,
        heartbeat: Heartbeat,
        load: Option<ServerLoadMetrics>,
    ) -> Result<bool, BadHeartbeat> {
        let (heard, link) = {
            let mut state = self.state();
            let heard = state.farm.hear(server, heartbeat, self.now())?;
            state.farm.note_load(server, load);
            (heard, state.workers.get(&server).copied())
        };
        let link = match link.filter(|_| !heard.is_changed) {
            Some(link) => link,
            None => self.introduce(server, link).await,
        };
        self.release(heard.lost).await;
        if let (Some(own), Some(load)) = (link.own, load) {
            self.tell_load(own, load).await;
        }
        Ok(heard.is_new)
    }

    /// Makes a build server a worker of the engine, or sends the engine its changes.
    async fn introduce(&self, server: ServerId, known: Option<Link>) -> Link {
        if let Some(observed) = known.filter(|link| link.own.is_none()) {
            self.tell_places(server).await;
            return observed;
        }
        let handle = self.handle();
        let id = known.and_then(|link| link.own).unwrap_or_else(|| handle.next_link());
        let name = server.to_string();
        let mut number = Fnv::default();
        number.bytes(name.as_bytes());
        let system = || [SYSTEM.to_owned()].into();
        let attributes: Attributes =
            [(EXCLUSIVE.to_owned(), system()), (SERVES.to_owned(), system())].into_iter().collect();
        let hello = Hello {
            new_link: known.is_none(),
            attributes,
            ..Hello::new(&name, number.value() >> 1, self.capacity_of(server))
        };
        let link = Arc::new(ServerLink { id, server });
        match CheckedHello::of_gateway(Origin::Sccache, hello) {
            Ok(hello) => _ = handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link }]).await,
            Err(why) => link.refuse(&why.to_string()),
        }
        let name = Origin::Sccache.worker_name(&name);
        let find =
            handle.query(move |engine| engine.workers().by_name(&name).map(|worker| worker.record.id)).await;
        let link = Link { own: Some(id), worker: find.ok().flatten() };
        self.state().connect(server, link);
        self.tell_places(server).await;
        self.tell_toolchains(server).await;
        link
    }

    /// What a build server has: its cores, and the places that it should give now. It has a few more than cores, because
    /// a compile waits for the network for a part of its time, and fewer after failures or if it is slow.
    fn capacity_of(&self, server: ServerId) -> Resources {
        let (now, state) = (self.now(), self.state());
        let Some(known) = state.farm.server(server) else { return Resources::default() };
        let count = places(known.num_cpus, state.farm.share_of(server, now));
        let cores = Resources::new(known.num_cpus.saturating_mul(100), 0);
        Resources { custom: [(PLACES.to_owned(), count)].into(), ..cores }
    }

    /// Reports the load of a build server's machine, as its heartbeat says it.
    async fn tell_load(&self, own: u64, load: ServerLoadMetrics) {
        let report = vec![WorkerMessage::Load(Box::new(report_of(load)))];
        self.handle().worker_tells(own, report).await;
    }

    /// Reports the loads of heartbeats again. A report counts for a few seconds, and the next heartbeat comes after 30.
    async fn repeat_loads(&self) {
        let loads: Vec<(u64, ServerLoadMetrics)> = {
            let (now, state) = (self.now(), self.state());
            let loads = state.farm.loads(now);
            loads.filter_map(|(server, load)| Some((state.workers.get(&server)?.own?, load))).collect()
        };
        for (own, load) in loads {
            self.tell_load(own, load).await;
        }
    }

    pub(crate) async fn release(&self, jobs: Vec<JobId>) {
        for job in jobs {
            self.handle().tell(Event::Release { alloc: AllocId(job.0) }).await;
        }
    }

    /// Tells the engine which places a build server's jobs hold.
    pub(crate) async fn tell_places(&self, server: ServerId) {
        let (worker, places) = {
            let state = self.state();
            let Some(worker) = state.workers.get(&server).and_then(|link| link.worker) else { return };
            let amounts = held_amounts(state.farm.server(server).map_or(1, |known| known.num_cpus));
            let places = state.farm.jobs_of(server).map(|job| PlaceInUse {
                alloc: AllocId(job.0),
                queue: QUEUE_UNKNOWN.to_owned(),
                amounts: amounts.clone(),
            });
            (worker, places.collect())
        };
        self.handle().tell(Event::PlacesInUse { worker, places }).await;
    }

    /// Tells the engine which toolchains a build server has, so that compiles go where theirs is. A worker that
    /// observes a build server reports them itself.
    pub(crate) async fn tell_toolchains(&self, server: ServerId) {
        let (link, keys) = {
            let state = self.state();
            let Some(own) = state.workers.get(&server).and_then(|link| link.own) else { return };
            let keys: Vec<String> = state.farm.toolchains_of(server).map(key_of).collect();
            (own, CacheKeys::of(keys.iter()))
        };
        self.handle().worker_tells(link, vec![WorkerMessage::Caches(keys)]).await;
    }

    /// Looks for build servers and jobs that are gone, for workers that observe build servers, and for build servers
    /// that should have more or fewer places, until the server ends.
    pub async fn look_after(self) {
        for round in (1..=ADJUSTS_PER_LOOK).cycle() {
            tokio::select! {
                () = tokio::time::sleep(ADJUST) => {}
                () = self.handle().ends() => return,
            }
            self.adjust_places().await;
            self.repeat_loads().await;
            if round < ADJUSTS_PER_LOOK {
                continue;
            }
            let (dropped, lost) = {
                let mut state = self.state();
                (state.farm.drop_silent(self.now()), state.farm.drop_lost(self.now()))
            };
            self.release(lost).await;
            for (server, jobs) in dropped {
                tracing::warn!("the build server {server} is silent: it is dropped with {} jobs", jobs.len());
                self.release(jobs).await;
                self.hang_up(server);
            }
            let left = self.state().left();
            for server in left {
                self.disconnect(server).await;
            }
            self.look_at_workers().await;
        }
    }

    /// Ends a build server's own worker, or the places on the worker that observes it.
    async fn disconnect(&self, server: ServerId) {
        let link = self.state().disconnect(server);
        match link {
            Some(Link { own: Some(own), worker: Some(worker) }) => {
                self.handle().worker_tells(own, vec![WorkerMessage::Lost]).await;
                self.forget(worker).await;
            }
            Some(Link { own: None, worker: Some(worker) }) => self.offer(worker, 0).await,
            Some(_) | None => {}
        }
    }

    /// Says how many places a worker gives from now on.
    async fn offer(&self, worker: WorkerId, count: u64) {
        self.handle().tell(Event::OfferPlaces { worker, name: PLACES.to_owned(), count }).await;
    }

    async fn forget(&self, worker: WorkerId) {
        let forget = move |request| Event::Forget { request, worker, force: true };
        if let Err(why) = self.handle().request(forget).await {
            tracing::warn!("cannot forget the worker {worker} of a build server: {why}");
        }
    }

    /// Moves build servers to the workers that observe them, and back when these are gone. Forgets workers of build
    /// servers that an earlier start had and this one has not heard from.
    pub async fn look_at_workers(&self) {
        let Ok((observers, unheard)) = self.handle().query(look).await else { return };
        let moves: Vec<(ServerId, Option<WorkerId>)> = {
            let state = self.state();
            let moved = state.workers.iter().filter_map(|(server, link)| {
                let observer = observers.get(server).copied();
                let before = link.worker.filter(|_| link.own.is_none());
                (observer != before).then_some((*server, observer))
            });
            moved.collect()
        };
        let has_moves = !moves.is_empty();
        for (server, observer) in moves {
            let jobs: Vec<JobId> = self.state().farm.jobs_of(server).collect();
            self.release(jobs).await;
            self.disconnect(server).await;
            match observer {
                Some(worker) => {
                    tracing::info!("the worker {worker} observes the build server {server}");
                    self.state().connect(server, Link { own: None, worker: Some(worker) });
                    self.tell_places(server).await;
                }
                None => _ = self.introduce(server, None).await,
            }
        }
        if has_moves {
            self.adjust_places().await;
        }
        if self.now() > crate::farm::SILENCE_MAX {
            for worker in unheard {
                let is_known = self.state().servers.contains_key(&worker);
                if !is_known {
                    self.forget(worker).await;
                }
            }
        }
    }

    /// Lets each build server give as many places as it should now, whether its worker is its own or observes it.
    pub async fn adjust_places(&self) {
        let wanted: Vec<WantedPlaces> = {
            let (now, state) = (self.now(), self.state());
            let shares = state.farm.shares(now).into_iter().filter_map(|(server, share)| {
                let worker = state.workers.get(&server)?.worker?;
                Some(WantedPlaces { server, worker, num_cpus: state.farm.server(server)?.num_cpus, share })
            });
            shares.collect()
        };
        let changed = self.handle().query(move |engine| changes(engine, wanted)).await;
        for (WantedPlaces { server, worker, .. }, before, count) in changed.unwrap_or_default() {
            if count == 0 {
                tracing::warn!(
                    "the build server {server} gets no compiles for a while: it does not take them"
                );
            } else if before == Some(0) {
                tracing::info!("the build server {server} gets compiles again, {count} at a time");
            }
            self.offer(worker, count).await;
        }
    }
}

/// The places that a build server should give.
struct WantedPlaces {
    server: ServerId,
    worker: WorkerId,
    num_cpus: u32,
    /// The part of its places, from 0 to 1.
    share: f64,
}

/// Those of which the worker gives another number of places: what it gives, and should give. A worker may have fewer cpus
/// than the build server beside it.
fn changes(engine: &Engine, wanted: Vec<WantedPlaces>) -> Vec<(WantedPlaces, Option<u64>, u64)> {
    let all = wanted.into_iter().filter_map(|one| {
        let has = &engine.workers().get(one.worker)?.record.capacity;
        let count = places(one.num_cpus.min(has.cpu / 100), one.share);
        let before = has.custom.get(PLACES).copied();
        (before != Some(count)).then_some((one, before, count))
    });
    all.collect()
}

/// The places of a share of the cores. Any share gives at least one place, so that a build server that works again is
/// noticed.
fn places(num_cpus: u32, share: f64) -> u64 {
    if share <= 0.0 { 0 } else { ((f64::from(slots(num_cpus)) * share).round() as u64).max(1) }
}

/// What a worker has that observes a build server on a machine of this capacity: as many places as that one gives.
pub fn with_places(mut capacity: Resources) -> Resources {
    let count = places(capacity.cpu / 100, 1.0);
    capacity.custom.insert(PLACES.to_owned(), count);
    capacity
}

/// The workers that observe a build server, and the build servers' own workers that are not connected.
fn look(engine: &Engine) -> (BTreeMap<ServerId, WorkerId>, Vec<WorkerId>) {
    let (mut observers, mut unheard) = (BTreeMap::new(), Vec::new());
    for worker in engine.workers().present() {
        if !worker.record.attributes.get(SERVES).is_some_and(|systems| systems.contains(SYSTEM)) {
            continue;
        }
        let observed =
            worker.record.attributes.get(OBSERVES).and_then(|servers| servers.first()?.parse().ok());
        match observed {
            Some(server) if worker.record.state == WorkerState::Up => {
                _ = observers.insert(ServerId(server), worker.record.id)
            }
            None if !worker.link.connected => unheard.push(worker.record.id),
            _ => {}
        }
    }
    (observers, unheard)
}

/// A load in a heartbeat as a worker reports it. What the machine cannot tell is 0 there, and what cannot be is unknown.
fn report_of(load: ServerLoadMetrics) -> LoadReport {
    let pressure = |percent: f32| {
        let avg10 = Some(f64::from(percent)).filter(|percent| (0.0..=100.0).contains(percent))?;
        Some(Pressure { some: Some(Stall { avg10, ..Stall::default() }), full: None })
    };
    let machine = Pressures {
        cpu: pressure(load.cpu_pressure_avg10),
        memory: pressure(load.memory_pressure_avg10),
        io: pressure(load.io_pressure_avg10),
    };
    let available = Some(load.available_memory_mb).filter(|mib| *mib > 0);
    let memory_available = available.map(|mib| mib.saturating_mul(MIB));
    LoadReport { machine, memory_available, ..LoadReport::default() }
}
