//! The service's state: machines of clients, connected hooks, and the first build of each derivation. It also looks
//! after machines and jobs while the server runs.

use super::machines::{self, Change, InEngine, Machines};
use crate::wire::{BuildRequest, Wanted};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use windlass_core::JobId;
use windlass_core::engine::{Event, Reply};
use windlass_server::{Front, Handle, MetricFamily, Unavailable, WorkerMessage};

/// The interval at which machines and builds are checked.
const LOOK: Duration = Duration::from_millis(500);
/// How long a job may be without a hook before it is cancelled. After a restart of the server hooks reconnect within
/// seconds.
const UNATTENDED_MAX: Duration = Duration::from_secs(30);
/// The interval at which waiting jobs without a hook are looked for.
const ORPHANS_LOOK: Duration = Duration::from_secs(60);

/// The service; cheap to clone.
#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) front: Front,
    /// Connections over which the engine asks for a new hello.
    pub(super) again: mpsc::UnboundedSender<u64>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) machines: Machines,
    /// The jobs whose hooks are connected.
    pub(super) attended: BTreeMap<JobId, Attended>,
    /// The number of builds that wait or run, by user and run of Nix.
    pub(super) held: BTreeMap<(String, String), usize>,
    /// The first build of each owner's derivation, by owner and path.
    pub(super) leaders: BTreeMap<(Owner, String), watch::Receiver<Leader>>,
    /// Workers that a user could not connect, by URI and user, with the time until which they are left out.
    pub(super) suspects: BTreeMap<String, BTreeMap<String, Instant>>,
    pub(super) counts: Counts,
}

/// The owner of a build. A user's builds follow that user's own and those of administrators.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    Administrators,
    User(String),
}

/// The progress of the first build of a derivation. The watch is closed when it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Leader {
    /// This user has just asked for the build.
    Comes(String),
    /// The build is this job, which waits for a place or has one on a machine of its user.
    Waits(JobId),
    /// The build is this job, which has a place on a worker that builds for all users.
    Builds(JobId),
    /// The build's outputs are on this worker.
    Built(String),
}

/// Counts since the server started.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) accepted: u64,
    pub(super) postponed: u64,
    pub(super) declined: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) not_connected: u64,
    pub(super) lost: u64,
    pub(super) joined: u64,
}

/// A job whose hook is connected.
pub(super) struct Attended {
    pub(super) user: String,
    pub(super) request: Arc<BuildRequest>,
    /// The channel to builds that wait for this one.
    pub(super) leader: Option<Leading>,
    /// The number of connected hooks. A hook that reconnects is counted before its lost connection is.
    pub(super) hooks: u32,
}

/// The channel by which a leading build tells its followers its progress.
pub(super) type Leading = watch::Sender<Leader>;

impl Leader {
    pub(super) fn has_place(&self) -> bool {
        matches!(self, Leader::Builds(_) | Leader::Built(_))
    }

    pub(super) fn why(&self) -> String {
        match self {
            Leader::Comes(user) => format!("{user} is about to build the same derivation"),
            Leader::Waits(job) | Leader::Builds(job) => format!("job {job} builds the same derivation"),
            Leader::Built(worker) => format!("the same derivation was built on {worker}"),
        }
    }
}

impl Service {
    pub(super) fn handle(&self) -> &Handle {
        self.0.front.handle()
    }

    pub(super) fn front(&self) -> &Front {
        &self.0.front
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Remembers the machines on which builds of an earlier start of the server may run, and forgets others.
    pub(super) async fn restore(&self) -> Result<(), Unavailable> {
        self.look_at_workers().await?;
        let known = self.handle().query(machines::in_engine).await?;
        for known in known {
            let restored = known.is_used.then(|| {
                let link = self.handle().next_link();
                self.state().machines.restore(&known, Instant::now(), link)
            });
            match restored.flatten() {
                Some(change) => self.tell_all([change]).await,
                None => self.forget(known).await,
            }
        }
        Ok(())
    }

    /// The number of builds that wait or run: of a user, and of one run of Nix.
    pub(super) fn held(&self, user: &str, client: &str) -> (usize, usize) {
        let state = self.state();
        let of_user = state.held.range((user.to_owned(), String::new())..);
        let of_user = of_user.take_while(|((of, _), _)| of == user);
        of_user.fold((0, 0), |(all, own), ((_, run), builds)| {
            (all + builds, own + if run == client { *builds } else { 0 })
        })
    }

    /// Remembers the machines that a client names. Returns the names of their workers.
    pub(super) async fn name_machines(&self, wanted: &Wanted, cores: u32, user: &str) -> Vec<String> {
        let (mut names, mut changes) = (Vec::new(), Vec::new());
        {
            let (mut state, now) = (self.state(), Instant::now());
            for machine in wanted.machines.iter().take(crate::wire::MACHINES_MAX) {
                let next_link = || self.handle().next_link();
                let Some((name, change)) = state.machines.name(machine, cores, user, now, next_link) else {
                    continue;
                };
                names.push(name);
                changes.extend(change);
            }
        }
        self.tell_all(changes).await;
        names
    }

    /// Sends the engine a message about a machine.
    async fn tell(&self, link: u64, change: Change) {
        let messages = match change {
            Change::Hello(hello, keys) => {
                let back = machines::link(link, &self.0.again);
                vec![WorkerMessage::Hello { hello, link: back }, WorkerMessage::Caches(keys)]
            }
            Change::Caches(keys) => vec![WorkerMessage::Caches(keys)],
            Change::Lost => vec![WorkerMessage::Lost],
        };
        self.handle().worker_tells(link, messages).await;
    }

    pub(super) async fn tell_all(&self, changes: impl IntoIterator<Item = (u64, Change)>) {
        for (link, change) in changes {
            self.tell(link, change).await;
        }
    }

    /// Looks after machines and after jobs whose hooks are gone, until the server ends.
    pub(super) async fn look_after(self, mut asked: mpsc::UnboundedReceiver<u64>) {
        let mut orphans = tokio::time::interval(ORPHANS_LOOK);
        orphans.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // An earlier check would find the jobs of hooks that are about to reconnect.
        orphans.reset_after(UNATTENDED_MAX);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => self.look().await,
                Some(link) = asked.recv() => {
                    let change = self.state().machines.again(link);
                    self.tell_all(change).await;
                }
                _ = orphans.tick() => self.cancel_orphans().await,
                () = self.handle().ends() => return,
            }
        }
    }

    async fn look_at_workers(&self) -> Result<(), Unavailable> {
        let hosts = self.handle().query(machines::hosts_of_workers).await?;
        self.state().machines.set_workers(hosts);
        Ok(())
    }

    async fn look(&self) {
        // The check fails only when the engine is gone.
        _ = self.look_at_workers().await;
        let now = Instant::now();
        let (tried, unneeded) = {
            let mut state = self.state();
            for until in state.suspects.values_mut() {
                until.retain(|_, until| *until > now);
            }
            state.suspects.retain(|_, machines| !machines.is_empty());
            (state.machines.tried_again(now), state.machines.unneeded(now))
        };
        self.tell_all(tried).await;
        for job in self.handle().unattended(UNATTENDED_MAX) {
            self.cancel(job).await;
        }
        if !unneeded.is_empty() {
            self.forget_idle(&unneeded).await;
        }
    }

    /// Forgets the machines on which nothing is built.
    async fn forget_idle(&self, unneeded: &[String]) {
        let known = self.handle().query(machines::in_engine).await.unwrap_or_default();
        let idle = known.into_iter().filter(|known| !known.is_used && unneeded.contains(&known.name));
        for idle in idle {
            self.forget(idle).await;
        }
    }

    async fn forget(&self, InEngine { id: worker, name, .. }: InEngine) {
        let end = self.state().machines.remove(&name);
        self.tell_all(end).await;
        let forget = move |request| Event::Forget { request, worker, force: true };
        if let Err(why) = self.handle().request(forget).await {
            tracing::warn!(%why, "cannot forget the machine {name}");
        }
    }

    /// Cancels waiting jobs whose hooks did not reconnect after a restart. They would get places that no hook uses.
    async fn cancel_orphans(&self) {
        // A hook is counted a moment after its job was created.
        let now = self.handle().now();
        let external = move |engine: &windlass_core::Engine| -> Vec<JobId> {
            let waiting = engine.jobs().filter(|job| {
                let is_old = now.since(job.created) > UNATTENDED_MAX.as_nanos() as u64;
                is_old && job.spec.steps.iter().any(|step| step.is_external)
            });
            waiting.map(|job| job.id).collect()
        };
        let Ok(jobs) = self.handle().query(external).await else { return };
        let orphans: Vec<JobId> = {
            let state = self.state();
            jobs.into_iter().filter(|job| !state.attended.contains_key(job)).collect()
        };
        for job in orphans {
            self.cancel(job).await;
        }
    }

    pub(super) async fn cancel(&self, job: JobId) {
        match self.handle().request(move |request| Event::Cancel { request, job }).await {
            Ok(Reply::Done | Reply::Refused(_)) => {}
            Ok(other) => tracing::warn!("job {job} is not cancelled: {other:?}"),
            Err(why) => tracing::warn!("job {job} is not cancelled: {why}"),
        }
    }

    /// The lines of this gateway in the text of metrics.
    pub(super) fn metrics(&self) -> String {
        let state = self.state();
        let Counts { accepted, postponed, declined, succeeded, failed, not_connected, lost, joined } =
            state.counts;
        let (machines, out) = state.machines.counts();
        let mut text = String::new();
        let tries = [("accept", accepted), ("postpone", postponed), ("decline", declined)];
        MetricFamily::counter("windlass_nix_tries", "Derivations that hooks asked for, by answer").write(
            &mut text,
            "answer",
            tries.map(|(answer, count)| (answer, count as f64)),
        );
        let ends =
            [("succeeded", succeeded), ("failed", failed), ("not_connected", not_connected), ("lost", lost)];
        MetricFamily::counter("windlass_nix_attempts", "Attempts at builds that ended, by how").write(
            &mut text,
            "how",
            ends.map(|(how, count)| (how, count as f64)),
        );
        MetricFamily::counter(
            "windlass_nix_joined",
            "Builds that waited for another build of their derivation",
        )
        .write_one(&mut text, joined as f64);
        let builds = state.held.values().sum::<usize>();
        MetricFamily::gauge("windlass_nix_builds", "Builds that wait or run")
            .write_one(&mut text, builds as f64);
        let machines = [("in", (machines - out) as f64), ("out", out as f64)];
        MetricFamily::gauge("windlass_nix_machines", "Machines of clients; those out could not be connected")
            .write(&mut text, "state", machines);
        text
    }
}
