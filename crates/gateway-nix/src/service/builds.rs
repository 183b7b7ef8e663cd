//! One build, from its hook's request to its end. It waits for another build of the same derivation, becomes a job, and
//! tells its hook the place.

use super::machines::address;
use super::needs::FarmView;
use super::state::{Attended, Leader, Leading, Owner, Service, State};
use super::{near, needs};
use crate::wire::{BuildEvent, BuildRequest, Outcome, Report, store_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use windlass_api::{ErrorCode, StepBody};
use windlass_core::class::Class;
use windlass_core::engine::{Event, Refusal, Reply, Submit};
use windlass_core::job::{End, Hints, JobSpec, JobState, StepSpec, TaskResult};
use windlass_core::plan::placement;
use windlass_core::tags::Need;
use windlass_core::worker::Origin;
use windlass_core::{Engine, JobId, Resources, TaskId, WorkerId, explain};
use windlass_server::auth::{Caller, Role};
use windlass_server::{ApiError, ExternalOrder, Unavailable};

/// How long a hook whose connection was lost may take to connect again. After that its build is cancelled.
const COME_BACK: Duration = Duration::from_secs(3);
/// When a hook is first told why its build waits, and the interval after that.
const WHY_FIRST: Duration = Duration::from_millis(300);
const WHY_EVERY: Duration = Duration::from_secs(2);
/// With more builds the interval grows by this for each, so that the engine's work for answers stays the same.
const WHY_EVERY_PER_BUILD: Duration = Duration::from_millis(20);
/// How long a build waits for another user's build of its derivation if the length of that build is unknown, and the
/// multiple of the expected length otherwise. Without a bound a user could delay others.
const FOLLOW_MAX: Duration = Duration::from_secs(600);
const FOLLOW_TIMES: f64 = 3.0;
/// The longest wait for another build, whatever its expected length.
const FOLLOW_LONGEST: Duration = Duration::from_secs(7 * 86_400);
/// How long a user's builds avoid a worker that the user could not connect.
const SUSPECT: Duration = Duration::from_secs(30);

/// The worker on which an attempt is booked, and its owner.
struct Booked {
    user: String,
    worker: String,
    uri: String,
}

/// A build whose hook is connected.
pub(super) struct BuildSession {
    service: Service,
    caller: Caller,
    user: String,
    request: Arc<BuildRequest>,
    lines: mpsc::Sender<BuildEvent>,
}

/// The end of a conversation with a hook.
enum Ended {
    Job,
    /// The hook closed the connection.
    HungUp,
    /// The server ends, or the hook has connected again. The loss of this connection was not noticed before.
    LeftAlone,
}

impl BuildSession {
    pub fn new(
        service: Service,
        caller: Caller,
        request: BuildRequest,
        lines: mpsc::Sender<BuildEvent>,
    ) -> BuildSession {
        let run = (caller.user.clone(), request.wanted.client.clone());
        *service.state().held.entry(run).or_default() += 1;
        let named = request.user.clone().filter(|_| caller.role == Role::Admin);
        let user = named.unwrap_or_else(|| caller.user.clone());
        BuildSession { service, caller, user, request: Arc::new(request), lines }
    }

    /// Serves the hook until the build has ended or the hook has closed the connection.
    pub async fn run(self) {
        let busy = self.service.front().busy();
        let cores = self.request.cores.unwrap_or(1);
        let named = self.service.name_machines(&self.request.wanted, cores, &self.caller.user).await;
        if let Err(refused) = self.build(named).await {
            _ = self.lines.send(refused).await;
        }
        drop(busy);
    }

    async fn build(&self, named: Vec<String>) -> Result<(), BuildEvent> {
        let Some((leader, built_on)) = self.join().await else { return Ok(()) };
        let job = self.submit(named, built_on).await?;
        _ = self.lines.send(BuildEvent::Job { job: job.0 }).await;
        if let Some(leader) = &leader {
            leader.send_replace(Leader::Waits(job));
        }
        let orders = self.attend(job, leader);
        self.converse(job, orders).await;
        Ok(())
    }

    /// Waits for another build of the same derivation. Returns the channel to the builds that wait for this one, and
    /// the worker that has the outputs if the other build succeeded; `None` if the hook closed the connection.
    ///
    /// A build follows the first one of its own owner. A user's build also follows one of an administrator while that
    /// has a place on a worker that builds for all users. No build follows another user's, because a user could delay
    /// others by holding a request open.
    async fn join(&self) -> Option<(Option<Leading>, Option<String>)> {
        let clock = Instant::now();
        let mut is_counted = false;
        if self.comes_back() {
            return Some((None, None));
        }
        loop {
            let (mut leader, is_own) = {
                let mut state = self.service.state();
                match self.leader(&state) {
                    Some(found) => {
                        state.counts.joined += u64::from(!is_counted);
                        found
                    }
                    None => {
                        let (sender, receiver) = watch::channel(Leader::Comes(self.user.clone()));
                        state.leaders.retain(|_, leader| leader.has_changed().is_ok());
                        state.leaders.insert((self.owner(), self.request.drv.clone()), receiver);
                        return Some((Some(sender), None));
                    }
                }
            };
            is_counted = true;
            let known = leader.borrow().clone();
            let until = clock + self.follow_max(&known).await;
            _ = self.lines.try_send(BuildEvent::Waits { why: known.why() });
            loop {
                tokio::select! {
                    changed = leader.changed() => {
                        let now = leader.borrow().clone();
                        match (changed, now) {
                            (_, Leader::Built(worker)) => return Some((None, Some(worker))),
                            (Ok(()), other) if is_own || other.has_place() => {
                                _ = self.lines.try_send(BuildEvent::Waits { why: other.why() });
                            }
                            _ => break,
                        }
                    }
                    () = self.lines.closed() => return None,
                    () = tokio::time::sleep_until(until.into()) => return Some((None, None)),
                }
            }
        }
    }

    fn owner(&self) -> Owner {
        match self.caller.role {
            Role::Admin => Owner::Administrators,
            _ => Owner::User(self.caller.user.clone()),
        }
    }

    /// The build that this one may follow, and whether it has the same owner.
    fn leader(&self, state: &State) -> Option<(watch::Receiver<Leader>, bool)> {
        let owner = self.owner();
        let find = |owner: Owner| {
            let known = state.leaders.get(&(owner, self.request.drv.clone()));
            known.filter(|leader| leader.has_changed().is_ok()).cloned()
        };
        if let Some(own) = find(owner) {
            return Some((own, true));
        }
        let placed = find(Owner::Administrators).filter(|leader| leader.borrow().has_place());
        placed.map(|leader| (leader, false))
    }

    /// True if the hook lost its connection. Its build is under way, and others may wait for it.
    fn comes_back(&self) -> bool {
        let state = self.service.state();
        let is_this = |known: &Attended| known.request.key == self.request.key && known.user == self.user;
        state.attended.values().any(is_this)
    }

    /// How long this build waits for the leading one.
    async fn follow_max(&self, leader: &Leader) -> Duration {
        let job = match leader {
            Leader::Waits(job) | Leader::Builds(job) => *job,
            _ => return FOLLOW_MAX,
        };
        let user = self.user.clone();
        let expected = move |engine: &Engine| {
            let job = engine.job(job)?;
            let profile = job.steps.first()?.profile;
            Some((
                job.spec.user == user,
                engine.profiles().prediction(profile).and_then(|known| known.wall_ms),
            ))
        };
        match self.service.handle().query(expected).await.ok().flatten() {
            Some((true, _)) => FOLLOW_LONGEST,
            Some((false, Some(ms))) => {
                Duration::from_millis((ms * FOLLOW_TIMES) as u64).clamp(FOLLOW_MAX, FOLLOW_LONGEST)
            }
            _ => FOLLOW_MAX,
        }
    }

    /// Submits the build. A hook that reconnects gets the job that it had.
    async fn submit(&self, named: Vec<String>, built_on: Option<String>) -> Result<JobId, BuildEvent> {
        let refused = |error: ApiError| BuildEvent::Refused {
            is_temporary: error.code() == ErrorCode::Unavailable,
            why: error.to_string(),
        };
        let front = self.service.front();
        front.may_use_queue(&self.caller, &self.user).await.map_err(refused)?;
        front.may_submit(&self.caller, 0).await.map_err(refused)?;
        let unavailable = |why: String| BuildEvent::Refused { why, is_temporary: true };
        let farm = self.farm(named).await.map_err(|why| unavailable(why.to_string()))?;
        let needs = needs::needs(&self.request.wanted, &farm);
        let placing = match &built_on {
            Some(worker) => (Resources::default(), true, [worker.clone()].into()),
            None => {
                let (amounts, near) = self.fit(&needs).await;
                (amounts, false, near)
            }
        };
        let spec = spec(&self.request, &self.user, needs, placing);
        let key = spec.key.clone().unwrap_or_default();
        let read = self.service.handle().job_by_key(&self.user, &key).await;
        let (existing, read_before) = read.map_err(|e| unavailable(e.to_string()))?;
        let submit = move |request| {
            Event::Submit(Box::new(Submit { existing, read_before, ..Submit::new(request, spec) }))
        };
        match self.service.handle().request(submit).await {
            Ok(Reply::Submitted { job, .. }) => Ok(job),
            Ok(Reply::Refused(refusal)) => {
                let is_temporary = matches!(refusal, Refusal::KeyReadTooEarly);
                Err(BuildEvent::Refused { why: refusal.to_string(), is_temporary })
            }
            Ok(other) => Err(unavailable(format!("unexpected reply of the engine: {other:?}"))),
            Err(why) => Err(unavailable(why.to_string())),
        }
    }

    /// The machines of the client and of the farm that the build may use.
    async fn farm(&self, named: Vec<String>) -> Result<FarmView, Unavailable> {
        let suspects: BTreeSet<String> = {
            let state = self.service.state();
            state.suspects.get(&self.user).into_iter().flat_map(BTreeMap::keys).cloned().collect()
        };
        let store = self.request.wanted.store.clone();
        self.service.handle().query(move |engine| FarmView::of(engine, &store, named, suspects)).await
    }

    /// The resources of the build, at most those of the largest machine, and the machines that have its large inputs.
    async fn fit(&self, needs: &[Need]) -> (Resources, BTreeSet<String>) {
        let (request, needs) = (self.request.clone(), needs.to_vec());
        let fit = move |engine: &Engine| {
            let class = Class { needs, is_external: true, ..Class::default() };
            let mut amounts = needs::amounts(request.cores);
            let fits =
                engine.workers().present().filter(|worker| placement::eligible_when_idle(&class, worker));
            if let Some(most) = fits.map(|worker| worker.record.capacity.cpu).max().filter(|most| *most > 0) {
                amounts.cpu = amounts.cpu.min(most);
            }
            let class = Class { request: amounts.clone(), ..class };
            (amounts, near::machines(engine, &class, &request))
        };
        let found = self.service.handle().query(fit).await;
        found.unwrap_or_else(|_| (needs::amounts(self.request.cores), BTreeSet::new()))
    }

    fn attend(&self, job: JobId, leader: Option<Leading>) -> mpsc::UnboundedReceiver<ExternalOrder> {
        let mut state = self.service.state();
        let attended = state.attended.entry(job).or_insert_with(|| Attended {
            user: self.user.clone(),
            request: self.request.clone(),
            leader: None,
            hooks: 0,
        });
        attended.hooks += 1;
        attended.leader = leader.or(attended.leader.take());
        self.service.handle().attend(job)
    }

    /// Passes on the job's events, and cancels the job if the hook is gone.
    async fn converse(&self, job: JobId, mut orders: mpsc::UnboundedReceiver<ExternalOrder>) {
        let ended = self.pass_on(job, &mut orders).await;
        if matches!(ended, Ended::HungUp) {
            tokio::time::sleep(COME_BACK).await;
        }
        let is_last = self.service.handle().leave(job, orders);
        {
            let mut state = self.service.state();
            if let Some(attended) = state.attended.get_mut(&job) {
                attended.hooks -= 1;
                if attended.hooks == 0 {
                    state.attended.remove(&job);
                }
            }
        }
        let closing = *self.service.handle().closing().borrow();
        if is_last && matches!(ended, Ended::HungUp) && !closing {
            self.service.cancel(job).await;
        }
    }

    async fn pass_on(&self, job: JobId, orders: &mut mpsc::UnboundedReceiver<ExternalOrder>) -> Ended {
        // A job that ended before its hook was counted sends no order.
        let is_gone = move |engine: &Engine| engine.job(job).is_none_or(|job| job.ended.is_some());
        if self.service.handle().query(is_gone).await.unwrap_or(false)
            && let Ok(Some(known)) = self.service.handle().store().job(job).await
            && known.state != JobState::Active
        {
            _ = self.lines.send(end(known.state)).await;
            return Ended::Job;
        }
        let why = tokio::time::sleep(WHY_FIRST);
        tokio::pin!(why);
        let (mut waits, mut told) = (true, String::new());
        loop {
            tokio::select! {
                order = orders.recv() => {
                    let event = match order {
                        None => return Ended::LeftAlone,
                        Some(ExternalOrder::Start { attempt, worker, .. }) => {
                            waits = false;
                            self.place(job, attempt, worker).await
                        }
                        Some(ExternalOrder::Stop { attempt, .. }) => {
                            waits = true;
                            self.service.lead(job, Leader::Waits(job));
                            BuildEvent::Stop { attempt }
                        }
                        Some(ExternalOrder::Ended(state)) => {
                            _ = self.lines.send(end(state)).await;
                            return Ended::Job;
                        }
                    };
                    if self.lines.send(event).await.is_err() {
                        return Ended::HungUp;
                    }
                }
                () = &mut why, if waits => {
                    let now = self.why(job).await.filter(|now| *now != told);
                    if let Some(now) = now {
                        told.clone_from(&now);
                        _ = self.lines.try_send(BuildEvent::Waits { why: now });
                    }
                    why.as_mut().reset(tokio::time::Instant::now() + self.why_every());
                }
                () = self.lines.closed() => return Ended::HungUp,
                () = self.service.handle().ends() => return Ended::LeftAlone,
            }
        }
    }

    async fn place(&self, job: JobId, attempt: u32, worker: WorkerId) -> BuildEvent {
        let named = move |engine: &Engine| {
            let worker = engine.workers().get(worker)?;
            Some((worker.record.name.clone(), needs::uri_of(&worker.record.attributes).map(str::to_owned)))
        };
        let found = self.service.handle().query(named).await.ok().flatten();
        let (worker, uri) = match found.unwrap_or_default() {
            (worker, Some(uri)) => {
                self.service.lead(job, Leader::Builds(job));
                (worker, uri)
            }
            // Users know their own machines by address.
            (worker, None) => {
                let uri = self.service.state().machines.uri(&worker).unwrap_or_default();
                (address(&uri).to_owned(), uri)
            }
        };
        BuildEvent::Place { attempt, worker, uri }
    }

    fn why_every(&self) -> Duration {
        let builds: usize = self.service.state().held.values().sum();
        WHY_EVERY.max(WHY_EVERY_PER_BUILD.saturating_mul(u32::try_from(builds).unwrap_or(u32::MAX)))
    }

    /// Why the build waits, in a sentence.
    async fn why(&self, job: JobId) -> Option<String> {
        let explain = move |engine: &Engine| {
            let why = explain::reason(engine, TaskId { job, index: 0 })?;
            let name =
                |id| engine.workers().get(id).map(|worker| worker.record.name.clone()).unwrap_or_default();
            Some(why.say(name).1)
        };
        self.service.handle().query(explain).await.ok().flatten()
    }
}

impl Drop for BuildSession {
    fn drop(&mut self) {
        let run = (self.caller.user.clone(), self.request.wanted.client.clone());
        let mut state = self.service.state();
        if let Some(count) = state.held.get_mut(&run) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&run);
            }
        }
    }
}

impl Service {
    /// Tells the followers of a job its progress.
    fn lead(&self, job: JobId, how: Leader) {
        let state = self.state();
        let leader = state.attended.get(&job).and_then(|attended| attended.leader.as_ref());
        leader.map(|leader| leader.send_replace(how));
    }

    /// Applies a hook's report. False if its attempt is not under way.
    pub(super) async fn report(
        &self,
        caller: &Caller,
        job: JobId,
        report: Report,
    ) -> Result<bool, Unavailable> {
        let Report { attempt, outcome } = report;
        let Some(Booked { user, worker, uri }) = self.booked(job, attempt).await? else { return Ok(false) };
        if !caller.may_act_for(&user) {
            return Ok(false);
        }
        let task = TaskId { job, index: 0 };
        if outcome == Outcome::Began {
            let worked = self.state().machines.worked(&worker);
            self.tell_all(worked).await;
            return Ok(self.handle().external_began(task, attempt).await);
        }
        let result = self.learn(job, &outcome, (&user, &worker, &uri)).await;
        Ok(self.handle().external_ended(task, attempt, result).await.is_some())
    }

    /// The owner and the worker of an attempt; `None` if it is not booked. The engine is asked, because after a restart
    /// a hook may report its build's end before it reconnects to the job.
    async fn booked(&self, job: JobId, attempt: u32) -> Result<Option<Booked>, Unavailable> {
        let look = move |engine: &Engine| {
            let booked =
                engine.attempt(TaskId { job, index: 0 }).filter(|booked| booked.number == attempt)?;
            let worker = engine.workers().get(booked.worker)?;
            let uri = needs::uri_of(&worker.record.attributes).map(str::to_owned);
            if uri.is_none() && Origin::of(&worker.record.name) != Origin::Nix {
                return None;
            }
            Some(Booked {
                user: engine.job(job)?.spec.user.clone(),
                worker: worker.record.name.clone(),
                uri: uri.unwrap_or_default(),
            })
        };
        self.handle().query(look).await
    }

    /// Learns from the end of an attempt about its machine. Returns the result for the engine.
    async fn learn(
        &self,
        job: JobId,
        outcome: &Outcome,
        (user, worker, uri): (&str, &str, &str),
    ) -> TaskResult {
        let bare = TaskResult::bare;
        let with = |end, message: &str| TaskResult { message: Some(message.to_owned()), ..bare(end) };
        let (result, changes) = {
            let mut state = self.state();
            match outcome {
                Outcome::Began | Outcome::Canceled => (bare(End::Canceled), None),
                Outcome::Succeeded => {
                    state.counts.succeeded += 1;
                    let state = &mut *state;
                    let has = state.attended.get_mut(&job).and_then(|attended| {
                        let leader = attended.leader.take();
                        leader.map(|leader| leader.send_replace(Leader::Built(worker.to_owned())));
                        let BuildRequest { inputs, outputs, .. } = &*attended.request;
                        let paths = inputs.iter().map(|(name, _)| name).chain(outputs);
                        state.machines.has(worker, paths.cloned())
                    });
                    (bare(End::Exited(0)), has)
                }
                Outcome::Failed { code, message } => {
                    state.counts.failed += 1;
                    (with(End::Exited(*code), message), None)
                }
                Outcome::NotConnected { message } => {
                    state.counts.not_connected += 1;
                    let now = Instant::now();
                    if !state.machines.knows(worker) {
                        let suspects = state.suspects.entry(user.to_owned()).or_default();
                        suspects.insert(uri.to_owned(), now + SUSPECT);
                    }
                    tracing::warn!(?user, ?uri, ?message, "a machine is not connected");
                    (with(End::Lost, message), state.machines.failed(worker, now))
                }
                Outcome::Lost { message } => {
                    state.counts.lost += 1;
                    tracing::warn!(?user, ?uri, ?message, "the connection to a machine was lost");
                    (with(End::Lost, message), None)
                }
            }
        };
        self.tell_all(changes).await;
        result
    }
}

fn end(state: JobState) -> BuildEvent {
    let state = match state {
        JobState::Active => "active",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Canceled => "canceled",
    };
    BuildEvent::End { state: state.to_owned() }
}

/// A build as a job of one task. A build whose outputs exist on a worker is only copied from there, and books no
/// resources.
fn spec(
    request: &BuildRequest,
    user: &str,
    needs: Vec<Need>,
    (amounts, is_built, prefers): (Resources, bool, BTreeSet<String>),
) -> JobSpec {
    // Copies have a kind of their own, so that their times do not count as times of builds.
    let kind = if is_built { "nix copy" } else { "nix" };
    let hints = Hints {
        shape: format!("{kind} {} {}", request.wanted.system, bounded(&request.pname, 128)),
        network_bound: request.fixed_output,
        prefer_local: request.prefer_local,
        caches: needs::reads(request),
        prefers,
        ..Hints::default()
    };
    let body = StepBody {
        command: vec!["nix-store".to_owned(), "--realise".to_owned(), request.drv.clone()],
        ..StepBody::default()
    };
    let body = serde_json::to_vec(&body).expect("strings always serialize");
    let step = StepSpec {
        name: bounded(&request.pname, 200),
        tasks: 1,
        request: amounts,
        needs,
        hints,
        is_external: true,
        body: body.into(),
        ..StepSpec::default()
    };
    JobSpec {
        name: bounded(store_name(&request.name), 200),
        queue: user.to_owned(),
        user: user.to_owned(),
        key: Some(format!("nix-{}", bounded(&request.key, 64))),
        steps: vec![step],
        ..JobSpec::default()
    }
}

/// The beginning of a text of at most `bytes_max` bytes, cut between characters.
fn bounded(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}
