//! The scheduler's state of build servers and their jobs. Pure: time is an argument, and methods return the changes on
//! which the caller has to act.

use crate::wire::{
    AssignJobResult, Heartbeat, JobId, JobState, SchedulerStatus, ServerId, ServerLoadMetrics, ServerNonce,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::cache_keys::RecentKeys;

/// The time without a heartbeat after which a build server is gone. Stock servers send one every 30 seconds.
pub const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long the load in a heartbeat counts: until the next one, and half as long again where that is late.
const LOAD_MAX: Duration = Duration::from_secs(45);
/// How long a job may wait for its toolchain to be sent, and for its toolchain to arrive.
pub const UPLOAD_MAX: Duration = Duration::from_secs(300);
/// How long a job may wait for its client after its toolchain has arrived.
pub const UNCLAIMED_MAX: Duration = Duration::from_secs(60);
/// How long a job may run. Its client gives up after 1200 seconds, so its end was lost.
pub const RUN_MAX: Duration = Duration::from_secs(1_500);
/// The largest number of cores that a build server is believed to have.
const CPUS_MAX: u64 = 4_096;
/// Build servers whose jobs are remembered before their first heartbeat, and jobs of each.
const EARLY_SERVERS_MAX: usize = 10_000;
const EARLY_JOBS_MAX: usize = 1_024;
/// The time after which a failure of a build server weighs half.
const FAILURE_HALF_LIFE: Duration = Duration::from_secs(30);
/// The largest weight of failures. A sixteenth of the places is left then.
const FAILURES_MAX: f64 = 4.0;
/// The pause of a build server after a failure. It doubles with each further failure in a row.
const BACK_OFF: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// The weight of the latest compile in the mean.
const PACE_STEP: f64 = 0.1;
/// Compiles that must have ended before a build server's pace counts.
const PACE_COMPILES_MIN: u32 = 10;
/// The part of the farm's mean pace from which a build server does not count as slow. Compiles differ.
const PACE_SLOW: f64 = 0.7;
/// The smallest part of its places that a slow build server keeps.
const PACE_LEAST: f64 = 0.25;

/// Time since the scheduler started.
pub type Uptime = Duration;

/// A build server that sends heartbeats.
#[derive(Clone, PartialEq, Debug)]
pub struct Server {
    /// The number of its process.
    pub nonce: ServerNonce,
    /// The key with which it checks the tokens of its jobs.
    pub jwt_key: Vec<u8>,
    /// The number of its cores.
    pub num_cpus: u32,
    /// SHA-256 of its certificate.
    pub cert_digest: Vec<u8>,
    /// Its certificate, as PEM.
    pub cert_pem: Vec<u8>,
    /// The time of the last heartbeat.
    seen: Uptime,
    jobs: BTreeSet<JobId>,
    /// The load in that heartbeat, where it has one.
    load: Option<ServerLoadMetrics>,
    /// Bounded, because clients name them. The build server itself drops old ones.
    toolchains: RecentKeys,
    record: Record,
}

/// The recent record of a build server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Record {
    /// The weight of jobs that it did not take. It decays with time.
    failures: f64,
    /// The time of that weight.
    failures_at: Uptime,
    /// Failures since it took a job.
    in_a_row: u32,
    /// The time until which it gets no jobs.
    closed_until: Uptime,
    /// The mean of the natural logarithms of its compiles' times in milliseconds.
    pace: f64,
    compiles: u32,
}

impl Record {
    fn failures(&self, now: Uptime) -> f64 {
        let halves = now.saturating_sub(self.failures_at).as_secs_f64() / FAILURE_HALF_LIFE.as_secs_f64();
        self.failures * 0.5_f64.powf(halves)
    }

    fn failed(&mut self, now: Uptime) {
        self.failures = (self.failures(now) + 1.0).min(FAILURES_MAX);
        self.failures_at = now;
        // Jobs that it did not take at the same time count as one failure in a row.
        if now >= self.closed_until {
            let back_off = BACK_OFF.saturating_mul(1 << self.in_a_row.min(10)).min(BACK_OFF_MAX);
            self.closed_until = now + back_off;
            self.in_a_row += 1;
        }
    }

    fn compiled(&mut self, ran: Duration) {
        let pace = (ran.as_secs_f64() * 1_000.0).max(1.0).ln();
        // The first compiles have equal weights.
        let step = PACE_STEP.max(1.0 / f64::from(self.compiles + 1));
        self.pace += step * (pace - self.pace);
        self.compiles = self.compiles.saturating_add(1);
    }

    /// The part of its places that it should have. `mean` is the farm's mean pace.
    fn share(&self, mean: f64, now: Uptime) -> f64 {
        if now < self.closed_until {
            return 0.0;
        }
        let speed = self.pace().map_or(1.0, |pace| (mean - pace).exp());
        let of_speed = if speed < PACE_SLOW { speed.max(PACE_LEAST) } else { 1.0 };
        of_speed * 0.5_f64.powf(self.failures(now))
    }

    fn pace(&self) -> Option<f64> {
        (self.compiles >= PACE_COMPILES_MIN).then_some(self.pace)
    }
}

/// A job that is allocated and not complete yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The job's build server.
    pub server: ServerId,
    /// The job's state; `None` until its build server has taken it.
    pub state: Option<JobState>,
    /// The job's toolchain; `None` for a job that an earlier scheduler allocated.
    pub toolchain: Option<String>,
    /// The time at which it reached its state.
    since: Uptime,
    /// True if the toolchain had to be sent first.
    uploads: bool,
}

/// The changes that a heartbeat made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// True if the process was not known before.
    pub is_new: bool,
    /// Jobs of the earlier process, which are gone.
    pub lost: Vec<JobId>,
    /// True if the build server is new or has another number of cores. Its worker must say hello then.
    pub is_changed: bool,
}

/// Why a heartbeat is refused.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadHeartbeat {
    #[error("Invalid number of CPUs ({0}) specified in heartbeat")]
    Cpus(u64),
}

/// The meaning of a job's new state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateChange {
    /// The state was known before.
    Known,
    /// The job goes on.
    GoesOn,
    /// The job is over. Its run took this time.
    Complete(Duration),
    /// The job runs, and an earlier scheduler allocated it.
    TakenUp,
}

/// Why a job's state is refused. The words are those of a stock scheduler.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadState {
    #[error("Unknown server {0}")]
    Server(ServerId),
    #[error("Job id {job:?} is not registered on server {server}")]
    NotIts { job: JobId, server: ServerId },
    #[error("Invalid job state transition from {from:?} to {to:?}")]
    Transition { from: JobState, to: JobState },
}

/// All build servers and their jobs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Farm {
    servers: BTreeMap<ServerId, Server>,
    jobs: BTreeMap<JobId, Job>,
    /// States that build servers reported before their first heartbeat, because the scheduler was restarted.
    early: BTreeMap<ServerId, BTreeMap<JobId, (JobState, Uptime)>>,
}

impl Farm {
    /// All build servers with a recent heartbeat.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        self.servers.iter().map(|(id, server)| (*id, server))
    }

    /// A build server that sends heartbeats.
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(&id)
    }

    /// A job that is allocated and not complete.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// The jobs of a build server.
    pub fn jobs_of(&self, id: ServerId) -> impl Iterator<Item = JobId> + '_ {
        self.servers.get(&id).into_iter().flat_map(|server| server.jobs.iter().copied())
    }

    /// The toolchains that a build server got last.
    pub fn toolchains_of(&self, id: ServerId) -> impl Iterator<Item = &str> {
        let server = self.servers.get(&id).into_iter();
        server.flat_map(|server| server.toolchains.iter().map(String::as_str))
    }

    /// A number that changes when a build server gets a new toolchain.
    pub fn toolchains_learned(&self, id: ServerId) -> u64 {
        self.servers.get(&id).map_or(0, |server| server.toolchains.learned())
    }

    /// The sums over the farm that the status shows.
    pub fn status(&self) -> SchedulerStatus {
        SchedulerStatus {
            num_servers: self.servers.len() as u64,
            num_cpus: self.servers.values().map(|server| u64::from(server.num_cpus)).sum(),
            in_progress: self.jobs.len() as u64,
        }
    }

    /// Takes in a heartbeat.
    pub fn hear(&mut self, id: ServerId, heartbeat: Heartbeat, now: Uptime) -> Result<Heard, BadHeartbeat> {
        let Heartbeat { jwt_key, num_cpus, server_nonce: nonce, cert_digest, cert_pem } = heartbeat;
        if !(1..=CPUS_MAX).contains(&num_cpus) {
            return Err(BadHeartbeat::Cpus(num_cpus));
        }
        let num_cpus = num_cpus as u32;
        let before = self.servers.remove(&id);
        let is_new = before.as_ref().is_none_or(|before| before.nonce != nonce);
        let is_changed = is_new || before.as_ref().is_some_and(|before| before.num_cpus != num_cpus);
        let (mut jobs, mut toolchains, mut lost) = (BTreeSet::new(), RecentKeys::default(), Vec::new());
        let mut record = Record::default();
        if let Some(before) = before {
            record = before.record;
            // A new process has the toolchains on disk, and not the jobs of the old one.
            toolchains = before.toolchains;
            if is_new {
                lost.extend(before.jobs);
            } else {
                jobs = before.jobs;
            }
        }
        lost.iter().for_each(|job| _ = self.jobs.remove(job));
        let server = Server {
            nonce,
            jwt_key,
            num_cpus,
            cert_digest,
            cert_pem,
            seen: now,
            jobs,
            load: None,
            toolchains,
            record,
        };
        self.servers.insert(id, server);
        for (job, (state, since)) in self.early.remove(&id).unwrap_or_default() {
            let job_now = Job { server: id, state: Some(state), toolchain: None, since, uploads: true };
            self.insert(job, job_now);
        }
        Ok(Heard { is_new, lost, is_changed })
    }

    /// Notes the load in a build server's last heartbeat; `None` where it says nothing of it.
    pub fn note_load(&mut self, id: ServerId, load: Option<ServerLoadMetrics>) {
        if let Some(server) = self.servers.get_mut(&id) {
            server.load = load;
        }
    }

    /// The loads in heartbeats that are not too old.
    pub fn loads(&self, now: Uptime) -> impl Iterator<Item = (ServerId, ServerLoadMetrics)> + '_ {
        let recent =
            self.servers.iter().filter(move |(_, server)| now.saturating_sub(server.seen) <= LOAD_MAX);
        recent.filter_map(|(id, server)| Some((*id, server.load?)))
    }

    /// Drops build servers that were silent for too long, and returns them with their jobs.
    pub fn drop_silent(&mut self, now: Uptime) -> Vec<(ServerId, Vec<JobId>)> {
        let silent = self.servers.iter().filter(|(_, server)| now.saturating_sub(server.seen) > SILENCE_MAX);
        let gone: Vec<ServerId> = silent.map(|(id, _)| *id).collect();
        self.early.retain(|_, jobs| {
            jobs.retain(|_, (_, since)| now.saturating_sub(*since) <= SILENCE_MAX);
            !jobs.is_empty()
        });
        let mut dropped = Vec::new();
        for id in gone {
            let jobs: Vec<JobId> = self.jobs_of(id).collect();
            self.servers.remove(&id);
            jobs.iter().for_each(|job| _ = self.jobs.remove(job));
            dropped.push((id, jobs));
        }
        dropped
    }

    /// Allocates a job to a build server, which the caller now asks to take it.
    pub fn allocate(&mut self, id: JobId, server: ServerId, toolchain: String, now: Uptime) {
        let job = Job { server, state: None, toolchain: Some(toolchain), since: now, uploads: false };
        self.insert(id, job);
    }

    fn insert(&mut self, id: JobId, job: Job) {
        if let Some(server) = self.servers.get_mut(&job.server) {
            server.jobs.insert(id);
            self.jobs.insert(id, job);
        }
    }

    /// A build server took a job. False if the job is unknown by now, because the build server is gone or restarted.
    pub fn assigned(&mut self, id: JobId, result: AssignJobResult, now: Uptime) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        job.uploads = result.need_toolchain;
        if let Some(server) = self.servers.get_mut(&job.server) {
            server.record.in_a_row = 0;
        }
        // A fast client may make the build server report the job first.
        job.state = job.state.max(Some(result.state));
        job.since = now;
        if let (false, Some(toolchain)) = (result.need_toolchain, job.toolchain.clone())
            && let Some(server) = self.servers.get_mut(&job.server)
        {
            server.toolchains.add(toolchain);
        }
        true
    }

    /// Gives up a job that its build server did not take.
    pub fn give_up(&mut self, id: JobId, now: Uptime) {
        let Some(job) = self.remove(id) else { return };
        if let Some(server) = self.servers.get_mut(&job.server) {
            server.record.failed(now);
        }
    }

    /// The part of its places that a build server should have. See [`Farm::shares`].
    pub fn share_of(&self, id: ServerId, now: Uptime) -> f64 {
        self.servers.get(&id).map_or(1.0, |server| server.record.share(self.mean_pace(), now))
    }

    /// The part of its places that each build server should have. It is less after failures, and where compiles take
    /// longer than elsewhere for any reason.
    pub fn shares(&self, now: Uptime) -> Vec<(ServerId, f64)> {
        let mean = self.mean_pace();
        self.servers.iter().map(|(id, server)| (*id, server.record.share(mean, now))).collect()
    }

    fn mean_pace(&self) -> f64 {
        let paces = self.servers.values().filter_map(|server| server.record.pace());
        let (sum, count) = paces.fold((0.0, 0), |(sum, count), pace| (sum + pace, count + 1));
        sum / f64::from(count.max(1))
    }

    /// Removes a job, and returns it. Nothing is noted of its build server.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if let Some(server) = self.servers.get_mut(&job.server) {
            server.jobs.remove(&id);
        }
        Some(job)
    }

    /// Applies a build server's report of a job's state. A repeated report changes nothing. An unknown job was
    /// allocated by an earlier scheduler or given up too early, and is taken up.
    pub fn tell(
        &mut self,
        id: JobId,
        server: ServerId,
        state: JobState,
        now: Uptime,
    ) -> Result<StateChange, BadState> {
        if !self.servers.contains_key(&server) {
            return self.tell_early(id, server, state, now);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            if state == JobState::Complete {
                return Ok(StateChange::Known);
            }
            let job = Job { server, state: Some(state), toolchain: None, since: now, uploads: true };
            self.insert(id, job);
            return Ok(StateChange::TakenUp);
        };
        if job.server != server {
            return Err(BadState::NotIts { job: id, server });
        }
        match job.state {
            Some(from) if from == state => return Ok(StateChange::Known),
            Some(from) if from > state => return Err(BadState::Transition { from, to: state }),
            _ => {}
        }
        let ran = now.saturating_sub(job.since);
        let has_run = job.state == Some(JobState::Started);
        (job.state, job.since) = (Some(state), now);
        if state >= JobState::Started
            && let Some(toolchain) = job.toolchain.clone()
            && let Some(server) = self.servers.get_mut(&server)
        {
            server.toolchains.add(toolchain);
        }
        if state != JobState::Complete {
            return Ok(StateChange::GoesOn);
        }
        self.remove(id);
        if let Some(server) = self.servers.get_mut(&server).filter(|_| has_run) {
            server.record.compiled(ran);
        }
        Ok(StateChange::Complete(if has_run { ran } else { Duration::ZERO }))
    }

    /// Applies a report of a build server that has not sent a heartbeat since the scheduler started. It is accepted,
    /// because the job's client waits for it.
    fn tell_early(
        &mut self,
        id: JobId,
        server: ServerId,
        state: JobState,
        now: Uptime,
    ) -> Result<StateChange, BadState> {
        if !self.early.contains_key(&server) && self.early.len() >= EARLY_SERVERS_MAX {
            return Err(BadState::Server(server));
        }
        let jobs = self.early.entry(server).or_default();
        if state == JobState::Complete {
            jobs.remove(&id);
        } else if jobs.contains_key(&id) || jobs.len() < EARLY_JOBS_MAX {
            jobs.insert(id, (state, now));
        }
        Ok(StateChange::Known)
    }

    /// Drops jobs whose client is gone, or whose end was lost, and returns them.
    pub fn drop_lost(&mut self, now: Uptime) -> Vec<JobId> {
        let lost = |job: &Job| {
            let max = match job.state {
                None | Some(JobState::Pending) => UPLOAD_MAX,
                // The build server reports this state when the toolchain begins to arrive.
                Some(JobState::Ready) if job.uploads => UPLOAD_MAX,
                Some(JobState::Ready) => UNCLAIMED_MAX,
                Some(JobState::Started | JobState::Complete) => RUN_MAX,
            };
            now.saturating_sub(job.since) > max
        };
        let lost: Vec<JobId> = self.jobs.iter().filter(|(_, job)| lost(job)).map(|(id, _)| *id).collect();
        lost.iter().for_each(|id| _ = self.remove(*id));
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::bounds::CACHE_KEYS_MAX;

    const READY: AssignJobResult = AssignJobResult { state: JobState::Ready, need_toolchain: false };
    const PENDING: AssignJobResult = AssignJobResult { state: JobState::Pending, need_toolchain: true };

    fn id(port: u16) -> ServerId {
        ServerId(([127, 0, 0, 1], port).into())
    }

    fn s(seconds: u64) -> Uptime {
        Duration::from_secs(seconds)
    }

    fn beat(nonce: u64, num_cpus: u64) -> Heartbeat {
        let server_nonce = ServerNonce(nonce);
        Heartbeat {
            jwt_key: vec![1; 32],
            num_cpus,
            server_nonce,
            cert_digest: vec![2; 32],
            cert_pem: vec![3],
        }
    }

    /// One build server of two cores with one job that it took.
    fn farm(result: AssignJobResult) -> Farm {
        let mut farm = Farm::default();
        farm.hear(id(1), beat(7, 2), s(0)).unwrap();
        farm.allocate(JobId(5), id(1), "tool".to_owned(), s(0));
        assert!(farm.assigned(JobId(5), result, s(0)));
        farm
    }

    fn tell(farm: &mut Farm, state: JobState, at: u64) -> Result<StateChange, BadState> {
        farm.tell(JobId(5), id(1), state, s(at))
    }

    #[test]
    fn a_job_goes_its_way_and_is_gone() {
        let mut farm = farm(PENDING);
        assert_eq!(farm.status(), SchedulerStatus { num_servers: 1, num_cpus: 2, in_progress: 1 });
        assert_eq!(tell(&mut farm, JobState::Ready, 1), Ok(StateChange::GoesOn));
        assert_eq!(farm.toolchains_of(id(1)).count(), 0, "it only begins to arrive");
        assert_eq!(tell(&mut farm, JobState::Started, 9), Ok(StateChange::GoesOn));
        assert_eq!(farm.toolchains_of(id(1)).collect::<Vec<_>>(), ["tool"]);
        assert_eq!(tell(&mut farm, JobState::Complete, 12), Ok(StateChange::Complete(s(3))));
        assert_eq!((farm.status().in_progress, farm.jobs_of(id(1)).count()), (0, 0));
    }

    #[test]
    fn what_is_told_twice_is_told_once() {
        let mut farm = farm(READY);
        assert_eq!(tell(&mut farm, JobState::Started, 1), Ok(StateChange::GoesOn));
        assert_eq!(tell(&mut farm, JobState::Started, 2), Ok(StateChange::Known));
        let back = BadState::Transition { from: JobState::Started, to: JobState::Ready };
        assert_eq!(tell(&mut farm, JobState::Ready, 3), Err(back));
        tell(&mut farm, JobState::Complete, 4).unwrap();
        assert_eq!(tell(&mut farm, JobState::Complete, 5), Ok(StateChange::Known));
    }

    #[test]
    fn a_job_is_its_own_server_s() {
        let mut farm = farm(READY);
        farm.hear(id(2), beat(8, 2), s(0)).unwrap();
        let wrong = farm.tell(JobId(5), id(2), JobState::Started, s(1));
        assert_eq!(wrong, Err(BadState::NotIts { job: JobId(5), server: id(2) }));
    }

    #[test]
    fn a_job_of_an_earlier_scheduler_is_taken_up() {
        let mut farm = Farm::default();
        farm.hear(id(1), beat(7, 2), s(0)).unwrap();
        assert_eq!(tell(&mut farm, JobState::Started, 1), Ok(StateChange::TakenUp));
        assert_eq!(farm.status().in_progress, 1);
        assert_eq!(tell(&mut farm, JobState::Complete, 5), Ok(StateChange::Complete(s(4))));
    }

    #[test]
    fn a_job_may_be_told_of_before_the_first_heartbeat() {
        let mut farm = Farm::default();
        for job in [JobId(5), JobId(6), JobId(7)] {
            assert_eq!(farm.tell(job, id(1), JobState::Started, s(1)), Ok(StateChange::Known));
        }
        assert_eq!(farm.tell(JobId(6), id(1), JobState::Complete, s(2)), Ok(StateChange::Known));
        assert_eq!(farm.status().in_progress, 0);
        farm.hear(id(1), beat(7, 2), s(20)).unwrap();
        assert_eq!(farm.jobs_of(id(1)).collect::<Vec<_>>(), [JobId(5), JobId(7)]);
        assert_eq!(tell(&mut farm, JobState::Complete, 21), Ok(StateChange::Complete(s(20))));
        // One that never sends a heartbeat is forgotten.
        farm.tell(JobId(8), id(2), JobState::Started, s(30)).unwrap();
        farm.drop_silent(s(121));
        farm.hear(id(2), beat(9, 2), s(122)).unwrap();
        assert_eq!(farm.jobs_of(id(2)).count(), 0);
    }

    #[test]
    fn failures_cost_places_for_a_while() {
        let mut farm = farm(READY);
        let share = |farm: &Farm, at| farm.shares(s(at))[0].1;
        let fail = |farm: &mut Farm, at| {
            farm.allocate(JobId(100), id(1), "tool".to_owned(), s(at));
            farm.give_up(JobId(100), s(at));
        };
        assert_eq!(share(&farm, 0), 1.0);
        // What it does not take at the same time costs it one second, and then half of its places or more.
        (0..20).for_each(|_| fail(&mut farm, 0));
        assert_eq!((share(&farm, 0), share(&farm, 30)), (0.0, 0.25));
        assert!((0.0..0.1).contains(&share(&farm, 1)) && share(&farm, 1) > 0.0);
        assert!(share(&farm, 300) > 0.99);
        // In a row they cost it more time, until it takes a job.
        for (at, opens) in [(300, 302), (302, 306), (306, 314), (314, 330), (330, 360), (360, 390)] {
            fail(&mut farm, at);
            assert!(share(&farm, opens - 1) == 0.0 && share(&farm, opens) > 0.0, "{at}");
        }
        farm.allocate(JobId(101), id(1), "tool".to_owned(), s(390));
        assert!(farm.assigned(JobId(101), READY, s(390)));
        fail(&mut farm, 400);
        assert!(share(&farm, 400) == 0.0 && share(&farm, 401) > 0.0);
    }

    #[test]
    fn a_slow_server_keeps_a_part_of_its_places() {
        let mut farm = Farm::default();
        farm.hear(id(1), beat(1, 2), s(0)).unwrap();
        farm.hear(id(2), beat(2, 2), s(0)).unwrap();
        let compile = |farm: &mut Farm, server: u16, seconds: u64| {
            let job = JobId(u64::from(server));
            farm.allocate(job, id(server), "tool".to_owned(), s(0));
            farm.tell(job, id(server), JobState::Started, s(0)).unwrap();
            farm.tell(job, id(server), JobState::Complete, s(seconds)).unwrap();
        };
        for _ in 0..PACE_COMPILES_MIN - 1 {
            compile(&mut farm, 1, 1);
            compile(&mut farm, 2, 9);
        }
        assert_eq!(farm.shares(s(0)), [(id(1), 1.0), (id(2), 1.0)], "too early to tell");
        compile(&mut farm, 1, 1);
        compile(&mut farm, 2, 9);
        let shares = farm.shares(s(0));
        assert_eq!(shares[0].1, 1.0);
        assert!((shares[1].1 - 1.0 / 3.0).abs() < 0.01, "a third of the mean's speed: {shares:?}");
        for _ in 0..40 {
            compile(&mut farm, 2, 1);
        }
        assert_eq!(farm.shares(s(0))[1].1, 1.0, "it is as fast as the other again");
    }

    #[test]
    fn another_process_has_no_jobs_and_the_same_toolchains() {
        let mut farm = farm(READY);
        let again = farm.hear(id(1), beat(7, 2), s(30)).unwrap();
        assert_eq!(again, Heard::default());
        assert!(farm.hear(id(1), beat(7, 3), s(31)).unwrap().is_changed);
        let heard = farm.hear(id(1), beat(9, 3), s(32)).unwrap();
        assert_eq!(heard, Heard { is_new: true, lost: vec![JobId(5)], is_changed: true });
        assert_eq!((farm.status().in_progress, farm.toolchains_of(id(1)).count()), (0, 1));
        assert_eq!(farm.hear(id(1), beat(9, 0), s(33)), Err(BadHeartbeat::Cpus(0)));
        assert!(!farm.assigned(JobId(5), READY, s(33)), "its client does not wait any more");
    }

    #[test]
    fn clients_that_name_ever_new_toolchains_do_not_make_it_grow() {
        let mut farm = farm(READY);
        let before = farm.toolchains_learned(id(1));
        let all = CACHE_KEYS_MAX as u64 + 1_000;
        for number in 0..all {
            let job = JobId(100 + number);
            farm.allocate(job, id(1), format!("tool{number}"), s(1));
            assert!(farm.assigned(job, READY, s(1)));
            farm.tell(job, id(1), JobState::Complete, s(2)).unwrap();
        }
        assert_eq!(farm.toolchains_of(id(1)).count(), CACHE_KEYS_MAX);
        assert_eq!(farm.toolchains_learned(id(1)) - before, all, "each is told to the engine all the same");
        let last = format!("tool{}", all - 1);
        assert!(
            farm.toolchains_of(id(1)).any(|known| known == last)
                && farm.server(id(1)).unwrap().jobs.len() == 1
        );
    }

    #[test]
    fn a_load_counts_until_the_next_heartbeat_is_late() {
        let mut farm = farm(READY);
        let load = ServerLoadMetrics { memory_pressure_avg10: 95.0, ..ServerLoadMetrics::default() };
        farm.note_load(id(1), Some(load));
        assert_eq!(farm.loads(s(45)).collect::<Vec<_>>(), [(id(1), load)]);
        assert_eq!(farm.loads(s(46)).count(), 0);
        farm.hear(id(1), beat(7, 2), s(50)).unwrap();
        assert_eq!(farm.loads(s(50)).count(), 0, "the next one says nothing of it");
    }

    #[test]
    fn a_silent_server_is_dropped_with_its_jobs() {
        let mut farm = farm(READY);
        assert_eq!(farm.drop_silent(s(90)), []);
        assert_eq!(farm.drop_silent(s(91)), [(id(1), vec![JobId(5)])]);
        assert_eq!(farm.status(), SchedulerStatus { num_servers: 0, num_cpus: 0, in_progress: 0 });
    }

    #[test]
    fn a_lost_job_is_dropped_by_how_far_it_is() {
        let mut unclaimed = farm(READY);
        assert_eq!(unclaimed.drop_lost(s(60)), []);
        assert_eq!(unclaimed.drop_lost(s(61)), [JobId(5)]);
        // The clock of an upload starts again when it begins, and is long.
        let mut uploads = farm(PENDING);
        tell(&mut uploads, JobState::Ready, 200).unwrap();
        assert_eq!(uploads.drop_lost(s(500)), []);
        assert_eq!(uploads.drop_lost(s(501)), [JobId(5)]);
        let mut running = farm(READY);
        tell(&mut running, JobState::Started, 10).unwrap();
        assert_eq!(running.drop_lost(s(1_510)), []);
        assert_eq!(running.drop_lost(s(1_511)), [JobId(5)]);
        assert_eq!(tell(&mut running, JobState::Complete, 1_600), Ok(StateChange::Known));
    }

    #[test]
    fn a_client_may_be_faster_than_the_answer() {
        let mut farm = Farm::default();
        farm.hear(id(1), beat(7, 2), s(0)).unwrap();
        farm.allocate(JobId(5), id(1), "tool".to_owned(), s(0));
        tell(&mut farm, JobState::Started, 1).unwrap();
        assert!(farm.assigned(JobId(5), READY, s(2)));
        assert_eq!(farm.job(JobId(5)).unwrap().state, Some(JobState::Started));
        farm.give_up(JobId(5), s(3));
        assert_eq!(farm.status().in_progress, 0);
    }
}
