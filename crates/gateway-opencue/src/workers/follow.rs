//! Follows the Windlass server: reports its workers as hosts, reports the ends of frames to OpenCue, and compares
//! both sides for what was missed.

use super::ending::{self, Outcome};
use super::frame::run_of_job;
use super::live::{FrameJob, HeldProc, compare};
use super::reports::{self, Share};
use super::{Workers, WorkersError};
use crate::faults::Faults;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_api::client::{ClientError, JobsQuery};
use windlass_api::{ErrorCode, JobState, Role, ServerEvent, Task, Worker};
use windlass_cuebot::generated::report::{FrameCompleteReport, RunningFrameInfo};
use windlass_cuebot::verdict::{EXIT_CLEARED, EXIT_FAILED_LAUNCH};
use windlass_cuebot::{Amounts, Cuebot, FrameRun};

/// The time between looks at the workers.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// The time after which an unchanged worker is reported: less than the age at which hosts get no frames.
const REPORT_TIME: Duration = Duration::from_secs(30);
/// The time between comparisons of jobs and procs.
const COMPARE_TIME: Duration = Duration::from_secs(10);
/// The time between marks that frames still run. RQD reports them each minute.
const RUNNING_TIME: Duration = Duration::from_secs(60);
/// The time before the stream of events is opened again.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Ends that are reported to OpenCue at a time.
const ENDS_AT_A_TIME: usize = 8;
/// Jobs and procs that are compared at most. Beyond that none is taken for missing.
const COMPARED_MAX: usize = 200_000;
/// Jobs of a page of the server's list.
const PAGE_JOBS: usize = 1_000;
/// Procs of one statement that marks them.
const MARKED_MAX: usize = 1_000;

const HELD: &str =
    "SELECT h.str_name::text, sum(p.int_cores_reserved)::bigint, sum(p.int_mem_reserved)::bigint,
        sum(p.int_gpus_reserved)::bigint, sum(p.int_gpu_mem_reserved)::bigint
    FROM proc p JOIN host h USING (pk_host) WHERE h.str_name = ANY($1::text[]) GROUP BY 1";
const PROCS: &str = "SELECT p.pk_proc::text, p.pk_frame::text,
        extract(epoch FROM current_timestamp - p.ts_booked)::float8
    FROM proc p JOIN host h USING (pk_host) WHERE h.str_name = ANY($1::text[]) LIMIT $2";
/// A proc that another transaction holds is left out: it ends, or the next look marks it.
const MARK: &str = "UPDATE proc SET ts_ping = current_timestamp WHERE pk_proc IN (
        SELECT pk_proc FROM proc WHERE pk_proc = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)";
const PLACE: &str = "SELECT pk_host::text, pk_layer::text FROM proc WHERE pk_proc = $1";

/// The tasks that follow the server.
struct Follower {
    workers: Workers,
    cuebot: Arc<Cuebot>,
    faults: Arc<Mutex<Faults>>,
}

/// The last report of each worker, and its time.
type Reported = BTreeMap<String, (Share, Instant)>;

impl Workers {
    /// Follows the Windlass server until the future is dropped. A second call returns at once.
    pub(crate) async fn follow(self, cuebot: Arc<Cuebot>, faults: Arc<Mutex<Faults>>) -> std::io::Result<()> {
        let to_tell = self.state.to_tell.lock().take();
        let Some(to_tell) = to_tell else { return Ok(()) };
        let follower = Follower { workers: self, cuebot, faults };
        tokio::join!(follower.look(), follower.listen(), follower.tell_ends(to_tell), follower.check_role());
        Ok(())
    }
}

impl Follower {
    /// Looks at workers, jobs and procs from time to time.
    async fn look(&self) {
        let mut reported = Reported::new();
        let (mut compared, mut marked): (Option<Instant>, Option<Instant>) = (None, None);
        let mut is_failing = false;
        loop {
            let looked = self.look_once(&mut reported, &mut compared, &mut marked).await;
            match &looked {
                Err(error) if !is_failing => tracing::warn!("the workers are not looked after: {error}"),
                Ok(()) if is_failing => tracing::info!("the workers are looked after again"),
                _ => {}
            }
            is_failing = looked.is_err();
            tokio::select! {
                () = tokio::time::sleep(LOOK_TIME) => {}
                () = self.workers.state.missed.notified() => compared = None,
            }
        }
    }

    async fn look_once(
        &self,
        reported: &mut Reported,
        compared: &mut Option<Instant>,
        marked: &mut Option<Instant>,
    ) -> Result<(), WorkersError> {
        self.report(reported).await?;
        if is_due(*compared, COMPARE_TIME) {
            let marks = is_due(*marked, RUNNING_TIME);
            self.compare(marks).await?;
            *compared = Some(Instant::now());
            if marks {
                *marked = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Warns of a token that gives more than the gateway needs, once the server has answered.
    async fn check_role(&self) {
        let role = loop {
            match self.workers.state.client.version().await {
                Ok(version) => break version.role,
                Err(_) => tokio::time::sleep(RETRY_TIME).await,
            }
        };
        if role == Some(Role::Admin) {
            tracing::warn!(
                "the token of 'windlass.workers' is an administrator's: anyone who reads it may do everything; \
                 'windlass token create --role submitter' makes one for the gateway"
            );
        }
    }

    /// Reports workers that changed, and all of them from time to time.
    async fn report(&self, reported: &mut Reported) -> Result<(), WorkersError> {
        let state = &self.workers.state;
        let mut workers = state.client.workers(false).await?;
        workers.retain(|worker| reports::is_host(worker, &state.settings));
        self.workers.add_names(workers.iter().map(|worker| worker.name.clone()));
        let held = self.held(&workers).await?;
        for worker in &workers {
            let share = reports::share(worker, held.get(&worker.name).copied().unwrap_or_default());
            let last = reported.get(&worker.name);
            if last.is_some_and(|(told, at)| *told == share && at.elapsed() < REPORT_TIME) {
                continue;
            }
            let host = reports::report(worker, &share, &state.settings);
            if let Err(error) = self.cuebot.share_host(host).await {
                tracing::warn!(worker = worker.name, "a worker cannot be a host: {error}");
            }
            reported.insert(worker.name.clone(), (share, Instant::now()));
        }
        Ok(())
    }

    /// The amounts that procs hold of these workers.
    async fn held(&self, workers: &[Worker]) -> Result<BTreeMap<String, Amounts>, WorkersError> {
        let names: Vec<&str> = workers.iter().map(|worker| worker.name.as_str()).collect();
        let rows = self.workers.state.pool.get().await?.query(HELD, &[&names]).await?;
        let held = rows.iter().map(|row| {
            let amounts =
                Amounts { cores: row.get(1), mem_kib: row.get(2), gpus: row.get(3), gpu_mem_kib: row.get(4) };
            (row.get(0), amounts)
        });
        Ok(held.collect())
    }

    /// Compares the jobs of frames with the procs on workers, and acts on the outcome.
    async fn compare(&self, marks: bool) -> Result<(), WorkersError> {
        let known = self.workers.state.live.lock().all();
        let jobs = self.jobs().await?;
        let procs = self.procs().await?;
        if jobs.len() >= COMPARED_MAX || procs.len() >= COMPARED_MAX {
            tracing::warn!(
                "more than {COMPARED_MAX} frames run on workers; ends that were missed are not found"
            );
            return Ok(());
        }
        for job in &jobs {
            self.workers.began(job.job, job.run.clone());
        }
        self.forget(known, &jobs, &procs);
        let compared = compare(&jobs, procs);
        if marks {
            for some in compared.running.chunks(MARKED_MAX) {
                self.workers.state.pool.get().await?.execute(MARK, &[&some]).await?;
            }
        }
        stream::iter(compared.cancel)
            .for_each_concurrent(ENDS_AT_A_TIME, |job| async move {
                tracing::info!(job, "a job runs a frame that OpenCue does not want there; it is cancelled");
                tell(self.workers.cancel_job(job).await);
            })
            .await;
        stream::iter(compared.missing)
            .for_each_concurrent(ENDS_AT_A_TIME, |held| async move { tell(self.recover(held).await) })
            .await;
        Ok(())
    }

    /// Forgets jobs that were known before the lists were read, and that neither list has: another instance reported
    /// their ends, or these do not matter any more.
    fn forget(&self, known: BTreeSet<u64>, jobs: &[FrameJob], procs: &[HeldProc]) {
        let listed: BTreeSet<u64> = jobs.iter().map(|job| job.job).collect();
        let held: BTreeSet<&str> = procs.iter().map(|held| held.proc_id.as_str()).collect();
        let mut live = self.workers.state.live.lock();
        for job in known.difference(&listed) {
            if live.run(*job).is_some_and(|run| !held.contains(run.proc_id.as_str())) {
                live.remove(*job);
            }
        }
    }

    /// Jobs of frames that have not ended, by the server.
    async fn jobs(&self) -> Result<Vec<FrameJob>, WorkersError> {
        let state = &self.workers.state;
        let mut query = JobsQuery {
            state: Some("pending,running,held".to_owned()),
            queue: Some(state.settings.queue.clone()),
            limit: Some(PAGE_JOBS),
            ..JobsQuery::default()
        };
        let mut found = Vec::new();
        loop {
            let page = state.client.jobs(&query).await?;
            found.extend(page.items.iter().filter_map(|job| {
                let is_pending = job.state != JobState::Running;
                run_of_job(&job.name).map(|run| FrameJob { job: job.id, run, is_pending })
            }));
            if page.next.is_none() || found.len() >= COMPARED_MAX {
                return Ok(found);
            }
            query.cursor = page.next;
        }
    }

    async fn procs(&self) -> Result<Vec<HeldProc>, WorkersError> {
        let client = self.workers.state.pool.get().await?;
        let rows = client.query(PROCS, &[&self.workers.names(), &(COMPARED_MAX as i64)]).await?;
        let procs =
            rows.iter().map(|row| HeldProc { proc_id: row.get(0), frame: row.get(1), age_s: row.get(2) });
        Ok(procs.collect())
    }

    /// Settles a proc without a running job: the job ended unheard, or was never submitted and must not be any more.
    async fn recover(&self, held: HeldProc) -> Result<(), WorkersError> {
        let run = FrameRun { frame: held.frame.unwrap_or_default(), proc_id: held.proc_id };
        let Some((job, is_own)) = self.workers.claim(&run).await? else { return Ok(()) };
        if is_own {
            self.workers.state.live.lock().add(job, run);
            return self.tell_end(job).await;
        }
        self.workers.cancel_job(job).await?;
        tracing::warn!(
            proc_id = run.proc_id,
            "a frame was booked on a worker and never launched; it waits again"
        );
        self.again(&run, EXIT_CLEARED).await
    }

    /// Hears of ends while the stream of events lasts, and opens it again.
    async fn listen(&self) {
        loop {
            if let Err(error) = self.hear().await {
                tracing::debug!("the stream of events broke: {error}");
            }
            self.workers.state.missed.notify_one();
            tokio::time::sleep(RETRY_TIME).await;
        }
    }

    async fn hear(&self) -> Result<(), ClientError> {
        let events = self.workers.state.client.brief_events().await?;
        let mut events = std::pin::pin!(events);
        // What ended before it was open was not heard.
        self.workers.state.missed.notify_one();
        while let Some(event) = events.next().await {
            match event? {
                ServerEvent::Job(event) if event.state.is_end() => {
                    let is_known = self.workers.state.live.lock().end(event.job);
                    if is_known {
                        self.workers.tell(event.job);
                    }
                }
                ServerEvent::Lagged => self.workers.state.missed.notify_one(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports ends to OpenCue as they are heard.
    async fn tell_ends(&self, to_tell: mpsc::Receiver<u64>) {
        let ends =
            stream::unfold(
                to_tell,
                |mut to_tell| async move { to_tell.recv().await.map(|job| (job, to_tell)) },
            );
        ends.for_each_concurrent(ENDS_AT_A_TIME, |job| async move { tell(self.tell_end(job).await) }).await;
    }

    /// Reports to OpenCue how the job of a frame ended. The next comparison finds what fails.
    async fn tell_end(&self, job: u64) -> Result<(), WorkersError> {
        let Some(run) = self.workers.state.live.lock().run(job) else { return Ok(()) };
        let task = match self.workers.state.client.task(&format!("{job}.0")).await {
            Ok(task) if !task.state.is_end() => return Ok(()),
            Ok(task) => Some(task),
            Err(error) if error.code() == Some(ErrorCode::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        match task.as_ref().map_or(Outcome::Again(EXIT_CLEARED), ending::outcome) {
            Outcome::Again(exit_status) => self.again(&run, exit_status).await?,
            Outcome::Ended { exit_status, exit_signal } => {
                self.complete(&run, task.as_ref(), (exit_status, exit_signal)).await?;
            }
            Outcome::Refused(why) => {
                self.blame(&run, &why).await?;
                self.complete(&run, task.as_ref(), (EXIT_FAILED_LAUNCH, 0)).await?;
            }
        }
        self.workers.state.live.lock().remove(job);
        Ok(())
    }

    /// The frame waits again and spends no retry.
    async fn again(&self, run: &FrameRun, exit_status: i32) -> Result<(), WorkersError> {
        Ok(self.cuebot.clear(&run.proc_id, exit_status).await?)
    }

    /// Reports an end, as RQD does.
    async fn complete(
        &self,
        run: &FrameRun,
        task: Option<&Task>,
        (exit_status, exit_signal): (i32, i32),
    ) -> Result<(), WorkersError> {
        let frame = RunningFrameInfo {
            resource_id: run.proc_id.clone(),
            frame_id: run.frame.clone(),
            max_rss: task.map_or(0, ending::max_rss_kib),
            ..RunningFrameInfo::default()
        };
        let report = FrameCompleteReport {
            host: None,
            frame: Some(frame),
            exit_status,
            exit_signal,
            run_time: task.map_or(0, ending::run_s),
        };
        let outcome = self.cuebot.complete(report).await?;
        tracing::debug!(?outcome, proc_id = run.proc_id, exit_status, "a frame on a worker ended");
        Ok(())
    }

    /// Notes that a worker refused a frame, like a host that refuses a launch: a layer that all hosts refuse is left
    /// out for a while, and so is a worker that refuses all frames.
    async fn blame(&self, run: &FrameRun, why: &str) -> Result<(), WorkersError> {
        let row = self.workers.state.pool.get().await?.query_opt(PLACE, &[&run.proc_id]).await?;
        let Some(row) = row else { return Ok(()) };
        let (host, layer): (String, Option<String>) = (row.get(0), row.get(1));
        let layer = layer.unwrap_or_default();
        tracing::warn!(frame = run.frame, why, "a worker did not run a frame");
        let began = self.faults.lock().refused(&host, &layer, why, Instant::now());
        if let Some(reason) = began {
            tracing::warn!(layer, reason, "a layer is left out for a while");
        }
        Ok(())
    }
}

fn is_due(last: Option<Instant>, time: Duration) -> bool {
    last.is_none_or(|at| at.elapsed() >= time)
}

/// Logs an error. The next comparison tries again.
fn tell(done: Result<(), WorkersError>) {
    if let Err(error) = done {
        tracing::warn!("a frame on a worker is not settled yet: {error}");
    }
}
