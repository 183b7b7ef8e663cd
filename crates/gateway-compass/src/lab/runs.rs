//! How jobs start at hosts, how their progress is reported, and how they are ended.

use super::Lab;
use super::host::{Again, BootReply, Host};
use super::run::{Kill, KillReason, Run, Speaker, finished, result_of};
use crate::boot::{Boot, BootType};
use crate::fill::machine_fields;
use crate::format::{Fields, Health, Readiness, Stage, text_of};
use crate::number::{number_of, task_of};
use crate::record::{BadUpdate, BookedHost, Params, Record};
use crate::time::now_s;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::job::{End, TaskResult};
use windlass_core::{Epoch, JobId, TaskId, Time};
use windlass_server::{StartInfo, WorkerMessage};
use windlass_store::ForeignWrite;

/// How long a connected provider may take to end a job. After that the job counts as ended.
const KILL_PATIENCE: Duration = Duration::from_secs(60);
/// Jobs whose given-back attempts are remembered.
const RETURNED_MAX: usize = 10_000;

impl Lab {
    /// Takes over a run of an earlier server.
    pub(super) fn adopt(&mut self, job: JobId, record: Record) {
        if record.place.is_none() {
            return;
        }
        let told = record.stage.is_end().then(|| result_of(&record, None));
        let kill = record.terminated.then_some(Kill { reason: KillReason::Terminated, sent: None });
        let run = Run { record, body: None, told, acknowledged: false, kill };
        if !self.hosts.contains_key(run.host()) {
            let name = run.host().to_owned();
            self.hosts.insert(name.clone(), Host::new(name, Fields::new()));
        }
        self.runs.insert(job, run);
    }

    /// The engine gives a host a job.
    pub(super) async fn start(
        &mut self,
        host: &str,
        task: TaskId,
        attempt: u32,
        (memory, time_limit_ms): (u64, Option<u64>),
        start: StartInfo,
    ) {
        let (epoch, job) = (self.epoch_of(host), number_of(task));
        let here = self.runs.get(job).is_some_and(|run| run.place().attempt == attempt);
        if here || self.returned.get(&job).is_some_and(|given_back| *given_back >= attempt) {
            // The engine repeated the start because it crossed a hello.
            return;
        }
        let Some(fields) = &start.body.compass else {
            let end = End::refused("this host runs jobs of Compass CI, and this job is not one of them");
            return self.tell(host, vec![finished(task, attempt, epoch, TaskResult::bare(end))]);
        };
        let Some(reached) = self.hosts.get(host).filter(|h| h.session.is_some() || h.ticket.is_some()) else {
            return self.give_back(host, task, attempt, epoch);
        };
        let token = match windlass_server::auth::random::<16>() {
            Ok(token) => token,
            Err(_) => return self.give_back(host, task, attempt, epoch),
        };
        let kind = text_of(fields, "tbox_type");
        let place = BookedHost {
            host: host.to_owned(),
            hw: reached.session.is_none(),
            dc: kind.as_deref() == Some("dc"),
            attempt,
            epoch: epoch.0,
            memory,
            token,
            timeout_s: time_limit_ms.map_or(3_600, |ms| ms / 1_000),
            reached: reached.reached(),
        };
        // The engine may start a new attempt before its event about the end of the earlier one arrives.
        self.orphan(job);
        // The fields of the jobs that this one waited for.
        let waited = match fields.contains_key("wait_on") {
            true => Record::kept(&self.handle, job).await.ok().flatten().and_then(|record| record.waited),
            false => None,
        };
        let record = Record::dispatched(place, waited, now_s());
        let run = Run { record, body: Some(start.body), told: None, acknowledged: false, kill: None };
        self.runs.insert(job, run);
        self.keep(job);
        self.fill(job).await;
    }

    /// Returns an attempt to its queue. Nothing of it was sent.
    fn give_back(&mut self, host: &str, task: TaskId, attempt: u32, epoch: Epoch) {
        if self.returned.len() >= RETURNED_MAX {
            self.returned.pop_first();
        }
        self.returned.insert(number_of(task), attempt);
        self.tell(host, vec![finished(task, attempt, epoch, TaskResult::bare(End::Recalled))]);
    }

    /// Tells the host of its job, whose record is durable.
    pub(super) fn boot_now(&mut self, job: JobId) {
        let Some(run) = self.runs.get(job) else { return };
        let (place, name) = (run.place().clone(), run.host().to_owned());
        let submitted = run.body.as_ref().and_then(|body| body.compass.as_ref());
        let fields = submitted.map(|submitted| machine_fields(job, submitted, &run.record));
        let (Some(fields), Some(host)) = (fields, self.hosts.get_mut(&name)) else { return };
        let boot = Boot { job, fields: &fields, place: &place };
        let sent = match (place.hw, &host.session, host.ticket.take()) {
            (true, _, Some(machine)) => {
                let text = boot.text(machine.boot);
                machine.reply.send(BootReply { found: true, text }).is_ok()
            }
            (false, Some(provider), ticket) => {
                host.ticket = ticket;
                let sent = provider.send(boot.message());
                if sent {
                    let pending = self.clients.take_pending(job);
                    pending.into_iter().for_each(|text| _ = provider.send(text));
                }
                sent
            }
            _ => false,
        };
        let (task, epoch) = (task_of(job), Epoch(place.epoch));
        if sent {
            let (attempt, at) = (place.attempt, Time(now_s().saturating_mul(1_000_000_000)));
            self.tell(&name, vec![WorkerMessage::Started { task, attempt, epoch, at }]);
        } else {
            self.forget_run(job);
        }
        if place.hw {
            // The machine does not ask again before the job is over.
            self.go_down(&name);
        }
        if !sent {
            self.give_back(&name, task, place.attempt, epoch);
        }
    }

    /// The answer to a machine that was given a job and asks again.
    pub(super) async fn boot_again(&mut self, job: JobId, boot: BootType) -> Again {
        let waits = |run: &&Run| run.record.stage == Stage::Dispatch && run.kill.is_none();
        if self.runs.get(job).filter(waits).is_none() {
            return Again::Over;
        }
        let body = self.body_of(job).await;
        let (Some(body), Some(run)) = (body, self.runs.get(job)) else { return Again::Over };
        let Some(submitted) = body.compass.as_ref() else { return Again::Over };
        if run.awaits_filling() {
            return Again::Soon;
        }
        let fields = machine_fields(job, submitted, &run.record);
        Again::Text(Boot { job, fields: &fields, place: run.place() }.text(boot))
    }

    /// Applies an update of a job's progress.
    pub(super) fn update(
        &mut self,
        job: JobId,
        params: &Params,
        speaker: &Speaker,
    ) -> Result<String, BadUpdate> {
        let run = self.runs.get_mut(job).ok_or(BadUpdate::NotDispatched)?;
        let place = run.place();
        let may = match speaker {
            Speaker::Trusted => params.get("job_token").is_none_or(|token| place.has_token(token)),
            Speaker::Host(host) => place.host == *host,
            Speaker::Token(token) => place.has_token(token),
            Speaker::Address(address) => place.hw && place.reached.address == Some(*address),
        };
        if !may {
            return Err(BadUpdate::NotYours);
        }
        let had_ended = run.record.stage.is_end();
        let answer = run.record.update(params, now_s())?;
        let ended = run.record.stage.is_end() && !had_ended;
        let mut event: Fields =
            params.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
        event.remove("job_token");
        event.insert("job_id".to_owned(), job.to_string().into());
        let told = self.clients.event(job, &Value::Object(event).to_string());
        self.after(told);
        if ended {
            self.tell_end(job);
        }
        self.keep(job);
        Ok(answer)
    }

    /// Ends a job, whatever its host reports.
    pub(super) fn end_run(&mut self, job: JobId, health: Health) {
        let Some(run) = self.runs.get_mut(job) else { return };
        run.record.end(health, now_s());
        let event = json!({"job_id": job.to_string(), "job_stage": "finish", "job_health": health.as_str()});
        let told = self.clients.event(job, &event.to_string());
        self.after(told);
        self.tell_end(job);
        self.keep(job);
    }

    /// Repeats ends that the engine may not have heard before an earlier server ended.
    pub(super) fn tell_ends(&mut self) {
        let open = self.runs.iter().filter(|(_, run)| run.told.is_some() && !run.acknowledged);
        let ended: Vec<JobId> = open.map(|(job, _)| job).collect();
        ended.into_iter().for_each(|job| self.tell_end(job));
    }

    /// Tells the engine of an end, once it is durable here.
    fn tell_end(&mut self, job: JobId) {
        let Some(run) = self.runs.get_mut(job) else { return };
        let result = result_of(&run.record, run.kill.as_ref());
        run.told = Some(result.clone());
        let (host, attempt, epoch) = (run.host().to_owned(), run.place().attempt, run.epoch());
        self.tell(&host, vec![finished(task_of(job), attempt, epoch, result)]);
    }

    /// The engine cancels an attempt.
    pub(super) fn kill(&mut self, host: &str, task: TaskId, attempt: u32) {
        let job = number_of(task);
        let here = |run: &&mut Run| run.host() == host && run.place().attempt == attempt;
        let Some(run) = self.runs.get_mut(job).filter(here) else {
            if self.hosts.get_mut(host).is_some_and(|host| host.orphans.remove(&job).is_some()) {
                return self.terminate(host, job);
            }
            let (canceled, epoch) = (TaskResult::bare(End::Canceled), self.epoch_of(host));
            return self.tell(host, vec![finished(task, attempt, epoch, canceled)]);
        };
        if run.record.stage.is_end() {
            return;
        }
        run.kill = Some(Kill { reason: KillReason::Unwanted, sent: None });
        self.send_kill(job, Health::Terminate);
    }

    /// Ends the job of a cluster's node for its user. False if it does not run.
    pub(super) fn terminate_node(&mut self, job: JobId) -> bool {
        let Some(run) = self.runs.get_mut(job).filter(|run| !run.record.stage.is_end()) else { return false };
        if run.kill.is_none() {
            // Stored, because no request repeats it after a restart of the server.
            run.record.terminated = true;
            run.record.suffer(Health::Terminate);
            run.kill = Some(Kill { reason: KillReason::Terminated, sent: None });
            self.keep(job);
            self.send_kill(job, Health::Terminate);
        }
        true
    }

    /// Ends a job for which `kill` is set. A provider is asked to end it. On bare metal the job counts as ended,
    /// because the machine gets no other before it boots again.
    fn send_kill(&mut self, job: JobId, health: Health) {
        let Some(run) = self.runs.get_mut(job) else { return };
        if run.place().hw {
            return self.end_run(job, health);
        }
        let host = run.host().to_owned();
        let connected = self.hosts.get(&host).is_some_and(|host| host.session.is_some());
        if let Some(kill) = run.kill.as_mut().filter(|_| connected) {
            kill.sent = Some(Instant::now());
            self.terminate(&host, job);
        }
    }

    /// Asks a provider to end a job. A provider that is away is asked when it is back.
    fn terminate(&mut self, host: &str, job: JobId) {
        let Some(session) = self.hosts.get(host).and_then(|host| host.session.clone()) else { return };
        let message = json!({"type": "terminate-job", "job_id": job.to_string()}).to_string();
        self.after(move || _ = session.send(message));
    }

    /// Repeats all requests to end jobs to a provider that is back.
    pub(super) fn repeat_kills(&mut self, name: &str) {
        let here = self.runs.on(name).filter(|(_, run)| run.kill.is_some() && run.told.is_none());
        let jobs: Vec<JobId> = here.map(|(job, _)| job).collect();
        for job in jobs {
            self.send_kill(job, Health::Terminate);
        }
        let orphans = self.hosts.get_mut(name).map(|host| std::mem::take(&mut host.orphans));
        orphans.unwrap_or_default().into_keys().for_each(|job| self.terminate(name, job));
    }

    /// Finds jobs that are too long in their stage, jobs that do not end as told, and ended jobs whose results do not
    /// come.
    pub(super) fn tick_runs(&mut self, now: u64, at: Instant) {
        let without = self.runs.iter().filter(|(_, run)| run.acknowledged && run.record.lacks_results(now));
        let without: Vec<JobId> = without.map(|(job, _)| job).collect();
        for job in without {
            if let Some(run) = self.runs.get_mut(job) {
                run.record.readiness = Readiness::Incomplete;
                self.keep(job);
            }
        }
        let mut due = Vec::new();
        for (job, run) in self.runs.iter().filter(|(_, run)| run.told.is_none()) {
            let is_late = run.kill.is_none() && run.record.deadline().is_some_and(|end| end <= now);
            let sent = run.kill.as_ref().and_then(|kill| kill.sent);
            let is_connected = self.hosts.get(run.host()).is_some_and(|host| host.session.is_some());
            let is_stuck = is_connected && sent.is_some_and(|sent| at.duration_since(sent) >= KILL_PATIENCE);
            if is_late || is_stuck {
                due.push((job, is_late));
            }
        }
        for (job, is_late) in due {
            let Some(run) = self.runs.get_mut(job) else { continue };
            if !is_late {
                self.end_run(job, Health::Terminate);
                continue;
            }
            let health = Health::timeout(run.record.stage).unwrap_or(Health::TimeoutRunning);
            run.record.suffer(health);
            run.kill = Some(Kill { reason: KillReason::TooLong, sent: None });
            self.keep(job);
            self.send_kill(job, health);
        }
    }

    /// The engine has the end of a job durably.
    pub(super) fn acknowledged(&mut self, job: JobId, attempt: u32) {
        let Some(run) = self.runs.get_mut(job).filter(|run| run.place().attempt == attempt) else { return };
        if run.told.is_some() && !run.acknowledged {
            run.acknowledged = true;
            if run.record.is_closed() {
                self.keep(job);
            }
        }
    }

    /// Compares a run with the engine: the attempt that it has booked, and whether the job may still run.
    pub(super) fn concluded(&mut self, job: JobId, booked: Option<u32>, active: bool) {
        let Some(run) = self.runs.get_mut(job) else { return };
        let place = run.place();
        if booked == Some(place.attempt) {
            return;
        }
        if run.told.is_some() {
            let attempt = place.attempt;
            return self.acknowledged(job, attempt);
        }
        // An administrator declared the host gone.
        self.orphan(job);
        let Some(run) = self.runs.get_mut(job) else { return };
        if active {
            self.forget_run(job);
        } else {
            run.record.end(Health::Terminate, now_s());
            (run.told, run.acknowledged) = (Some(TaskResult::bare(End::Lost)), true);
            self.keep(job);
        }
    }

    /// Notes that the host must end the job if it comes back, because the engine gave up the attempt.
    fn orphan(&mut self, job: JobId) {
        let Some(run) = self.runs.get(job).filter(|run| run.told.is_none()) else { return };
        let (name, attempt) = (run.host().to_owned(), run.place().attempt);
        if let Some(host) = self.hosts.get_mut(&name) {
            host.orphans.insert(job, attempt);
        }
    }

    /// Drops the run of a job that has not ended and is at no host.
    pub(super) fn forget_run(&mut self, job: JobId) {
        let Some(run) = self.runs.remove(job) else { return };
        let write = match run.record.waited {
            None => ForeignWrite::Forget(job),
            Some(waited) => {
                let record = Record { waited: Some(waited), ..Record::default() };
                ForeignWrite::Job { job, open: false, doc: record.to_text() }
            }
        };
        self.writes.push(write);
        let changes = self.changes.clone();
        // The send fails if there is no listener.
        self.after(move || _ = changes.send(job));
    }

    /// Passes a provider's output of a job to the clients that watch it.
    pub(super) fn passed(&mut self, host: &str, job: JobId, text: &str, console: bool) {
        let Some(run) = self.runs.get(job).filter(|run| run.host() == host) else { return };
        // Logs of providers contain the URLs that they fetch. A client that reads a log must not learn the job's token.
        let token = run.record.place.as_ref().map(|place| &*place.token).filter(|token| !token.is_empty());
        let text = token.map_or_else(|| text.to_owned(), |token| text.replace(token, "***"));
        let told = self.clients.pass(job, &text, console);
        self.after(told);
    }
}
