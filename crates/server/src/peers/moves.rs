//! Workers that are in another shard than the one to which they belong: they were there before the farm was divided, shards
//! were added since, or their facility, pool or pin is another one now. A shard's owner lets them go.
//!
//! - A worker goes at the first moment at which nothing is booked on it. The engine's thread looks for that moment before
//!   each round, because a round would book the next task.
//! - Its shard forgets it first. That is durable before the worker is told to connect again, so it never has two shards.
//! - A few are chosen at a time, so nearly all workers of a shard are connected at any moment.
//! - While some server is of a release that does not know such workers, none goes.

use super::{FarmShards, rendezvous};
use crate::handle::Handle;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use windlass_core::WorkerId;
use windlass_core::engine::{Engine, Reply};
use windlass_core::ids::ShardId;
use windlass_core::tags::{EXCLUSIVE, EXECUTOR, SERVES};
use windlass_core::worker::{Worker, WorkerState};

/// How often it is looked for workers of other shards.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Workers that one look judges, on the engine's thread. The next look goes on with those that follow.
const LOOKED_AT_MAX: usize = 256;
/// Workers that one look chooses. A worker is back within about a second.
const CHOSEN_MAX: usize = 4;
/// Chosen workers that are busy: they go on with their work until they leave. Idle ones are chosen besides them.
const BUSY_MAX: usize = 32;
/// Attributes of workers whose work another system decides about with the first shard, where they stay.
const OTHER_SYSTEMS: [&str; 3] = [EXECUTOR, EXCLUSIVE, SERVES];

/// Lets workers go that belong to other shards, until the engine of this shard ends here.
pub(crate) async fn move_workers(handle: Handle, shards: FarmShards) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut leaving, mut going) = (BTreeSet::new(), JoinSet::new());
    let mut from = WorkerId(0);
    loop {
        tokio::select! {
            // Dropped, the tasks end.
            () = handle.ends() => return,
            Some(ended) = going.join_next() => {
                if let Ok(id) = ended {
                    leaving.remove(&id);
                }
                continue;
            }
            _ = ticks.tick() => {}
        }
        let known = shards.shards();
        if known.len() < 2 || !shards.workers_may_move() {
            continue;
        }
        let without = leaving.clone();
        let look = move |engine: &Engine| misplaced(engine, &known, &without, from);
        let Ok((found, next)) = handle.query(look).await else { continue };
        from = next;
        for worker in found {
            // Where no server has that shard the worker would have no server either.
            if shards.owner(worker.belongs_to).is_some() {
                leaving.insert(worker.id);
                going.spawn(let_go(handle.clone(), shards.clone(), worker));
            }
        }
    }
}

/// A worker that belongs to another shard.
#[derive(Debug)]
struct MisplacedWorker {
    id: WorkerId,
    name: String,
    belongs_to: ShardId,
}

/// Some workers that belong to other shards, but for those in `without`, and from which worker on the next look goes.
fn misplaced(
    engine: &Engine,
    shards: &BTreeSet<ShardId>,
    without: &BTreeSet<WorkerId>,
    from: WorkerId,
) -> (Vec<MisplacedWorker>, WorkerId) {
    let (mut found, mut busy) = (Vec::new(), without.len());
    for (count, worker) in engine.workers().present_from(from).enumerate() {
        if count == LOOKED_AT_MAX || found.len() == CHOSEN_MAX {
            return (found, worker.id);
        }
        let belongs_to = rendezvous::shard_of_worker(&worker.name, &worker.attributes, shards);
        if belongs_to == engine.shard() || !may_leave(worker) || without.contains(&worker.id) {
            continue;
        }
        if !may_leave_now(worker) {
            if busy >= BUSY_MAX {
                continue;
            }
            busy += 1;
        }
        found.push(MisplacedWorker { id: worker.id, name: worker.name.to_string(), belongs_to });
    }
    (found, WorkerId(0))
}

/// True if a worker may leave its shard as soon as nothing is booked on it. One that is drained or in quarantine stays,
/// because another shard would not know of that and give it work.
pub(crate) fn may_leave(worker: &Worker) -> bool {
    let is_up = worker.connected && worker.state == WorkerState::Up;
    let is_kept = worker.draining || worker.health.out().is_some();
    is_up && !is_kept && !OTHER_SYSTEMS.iter().any(|key| worker.attributes.contains_key(*key))
}

/// True if a worker may leave its shard, and nothing is booked on it.
pub(crate) fn may_leave_now(worker: &Worker) -> bool {
    may_leave(worker) && !worker.has_attempts() && worker.allocs.is_empty()
}

/// Waits until a worker may leave, and lets it go. Returns its number.
async fn let_go(handle: Handle, shards: FarmShards, worker: MisplacedWorker) -> WorkerId {
    let MisplacedWorker { id, name, belongs_to } = worker;
    if !handle.link(id).is_some_and(|link| link.may_change_shards()) {
        return id;
    }
    // It stays if it may not leave any more.
    let Some(forgotten) = handle.forget_idle(id).await else { return id };
    let Some(link) = handle.link(id) else { return id };
    match (forgotten, shards.owner(belongs_to)) {
        (Ok(Reply::Done), Some(owner)) => {
            tracing::info!("worker '{name}' goes to the shard to which it belongs, {belongs_to}");
            link.change_shards(belongs_to, owner);
        }
        // That it was forgotten is not durable, or no server has its shard now. It connects until one takes it.
        _ => link.begin_again(),
    }
    handle.unlink(id, link.id());
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Delivery, WorkerLink, WorkerMessage};
    use crate::shell::ShellOptions;
    use std::sync::Arc;
    use windlass_core::engine::{CheckedHello, Event, Hello, Inventory, Outbox, Settings, StoredState};
    use windlass_core::ids::AllocId;
    use windlass_core::tags::{Attributes, SHARD};
    use windlass_core::worker::{Ended, Health, HealthVerdict, Record, Successes, WorkerRecord};
    use windlass_core::{Epoch, JobId, Resources, TaskId, Time};
    use windlass_store::Store;

    fn record(id: u64, attributes: Attributes) -> WorkerRecord {
        WorkerRecord {
            id: WorkerId(id),
            name: format!("w{id}"),
            epoch: Epoch(1),
            identity: id,
            incarnation: id,
            state: WorkerState::Up,
            draining: false,
            note: None,
            lease_until: None,
            capacity: Resources::new(100, 0),
            attributes,
        }
    }

    fn connected(attributes: Attributes) -> Worker {
        Worker { connected: true, state: WorkerState::Up, ..Worker::unheard(record(1, attributes)) }
    }

    #[test]
    fn a_worker_leaves_when_it_is_connected_and_idle_and_only_this_farm_decides_about_it() {
        let idle = || connected(Attributes::default());
        assert!(may_leave_now(&idle()));
        assert!(!may_leave_now(&Worker { connected: false, ..idle() }));
        assert!(!may_leave_now(&Worker { draining: true, state: WorkerState::Draining, ..idle() }));
        let mut health = Health::default();
        let mut fails = |job| {
            let of = Ended { job: JobId(job), user: "ann", record: Record::default() };
            health.ended(Time(1), of, HealthVerdict::NotStarted, &Successes::default())
        };
        assert_eq!([1, 2, 2].map(&mut fails), [false, false, true], "the third launch opens the breaker");
        assert!(!may_leave_now(&Worker { health: health.clone(), ..idle() }));
        health.readmit();
        assert!(may_leave_now(&Worker { health, ..idle() }));
        let place = (AllocId(1), Resources::new(100, 0));
        assert!(!may_leave_now(&Worker { allocs: [place].into(), ..idle() }), "an outside client has room");
        let task = TaskId { job: JobId(1), index: 0 };
        assert!(!may_leave_now(&Worker { running: [task].into(), ..idle() }));
        assert!(!may_leave_now(&Worker { backlog: [task].into(), ..idle() }), "it may start at any moment");
        for key in OTHER_SYSTEMS {
            let attributes = Attributes::from([(key.to_owned(), ["nix".to_owned()].into())]);
            assert!(!may_leave_now(&connected(attributes)), "{key}");
        }
    }

    #[test]
    fn looks_go_round_and_find_no_worker_that_is_not_connected_or_is_in_its_shard() {
        let pinned = |shard: &str| Attributes::from([(SHARD.to_owned(), [shard.to_owned()].into())]);
        let workers = (1..=600).map(|id| record(id, pinned(if id % 2 == 0 { "1" } else { "2" }))).collect();
        let ground = StoredState { workers, peers: [ShardId(2)].into(), ..StoredState::default() };
        let engine = Engine::restore(Settings::default(), ground);
        let shards = BTreeSet::from([ShardId(1), ShardId(2)]);
        let mut from = WorkerId(0);
        for expected in [257, 513, 0] {
            let (found, next) = misplaced(&engine, &shards, &BTreeSet::new(), from);
            assert!(found.is_empty(), "none has said hello: {found:?}");
            assert_eq!(next, WorkerId(expected));
            from = next;
        }
    }

    #[test]
    fn a_look_chooses_a_few_workers_that_belong_to_another_shard() {
        let ground = StoredState { peers: [ShardId(2)].into(), ..StoredState::default() };
        let mut engine = Engine::restore(Settings::default(), ground);
        let (mut out, now) = (Outbox::default(), Time(1));
        engine.handle(now, Event::Numbers { jobs: 1..9, workers: 1..99 }, &mut out);
        for number in 1..=12 {
            let shard = if number <= 2 { "1" } else { "2" };
            let attributes = Attributes::from([(SHARD.to_owned(), [shard.to_owned()].into())]);
            let hello = Hello::new(&format!("w{number}"), number, Resources::new(100, 0));
            engine.handle(now, Event::Hello(Box::new(Hello { attributes, ..hello })), &mut out);
        }
        let shards = BTreeSet::from([ShardId(1), ShardId(2)]);
        let ids = |found: &[MisplacedWorker]| found.iter().map(|worker| worker.id.0).collect::<Vec<_>>();
        let (found, next) = misplaced(&engine, &shards, &BTreeSet::new(), WorkerId(0));
        assert_eq!((ids(&found), next), (vec![3, 4, 5, 6], WorkerId(7)));
        assert!(found.iter().all(|worker| worker.belongs_to == ShardId(2)));
        let without = BTreeSet::from([WorkerId(8)]);
        let (found, next) = misplaced(&engine, &shards, &without, next);
        assert_eq!((ids(&found), next), (vec![7, 9, 10, 11], WorkerId(12)));
    }

    struct StubLink(u64);

    impl WorkerLink for StubLink {
        fn id(&self) -> u64 {
            self.0
        }

        fn deliver(&self, _parcel: Vec<Delivery>) {}

        fn refuse(&self, _why: &str) {}
    }

    #[tokio::test]
    async fn a_forgotten_worker_is_not_brought_back_by_its_connection_and_a_drained_one_stays() {
        let store = Store::open("memory").unwrap();
        let handle = crate::shell::start(store, ShellOptions::default()).await.unwrap();
        let says_hello = async |name: &str, number| {
            let link = handle.next_link();
            let hello = Hello::new(name, number, Resources::new(100, 0));
            let hello = CheckedHello::of_agent(hello, &[]).unwrap();
            let said = WorkerMessage::Hello { hello, link: Arc::new(StubLink(link)) };
            handle.worker_tells(link, vec![said]).await;
            link
        };
        let state_of = async |worker| {
            let look = move |engine: &Engine| engine.workers().get(worker).map(|found| found.state);
            handle.query(look).await.unwrap()
        };
        let (leaves, stays) = (WorkerId(1), WorkerId(2));
        let link = says_hello("leaves", 1).await;
        says_hello("stays", 2).await;
        assert!(matches!(handle.forget_idle(leaves).await, Some(Ok(Reply::Done))));
        let beat = WorkerMessage::Beat { sent: 1, inventory: Inventory::default() };
        handle.worker_tells(link, vec![beat, WorkerMessage::Lost]).await;
        assert_eq!(state_of(leaves).await, Some(WorkerState::Forgotten));
        handle.unlink(leaves, link);
        assert!(handle.link(leaves).is_none());
        let drain = move |request| Event::Drain { request, worker: stays, draining: true, note: None };
        assert_eq!(handle.request(drain).await.unwrap(), Reply::Done);
        assert!(handle.forget_idle(stays).await.is_none());
        assert_eq!(state_of(stays).await, Some(WorkerState::Draining));
        // It comes back, and another connection is not ended in the place of the one that went.
        let again = says_hello("leaves", 1).await;
        assert_eq!(state_of(leaves).await, Some(WorkerState::Up));
        handle.unlink(leaves, link);
        assert_eq!(handle.link(leaves).map(|known| known.id()), Some(again));
        handle.stop().await;
    }
}
