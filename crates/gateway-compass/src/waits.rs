//! Jobs that wait for others. The engine holds them until the others meet the conditions. They are given up if one
//! never will.

use crate::format::{Fields, Health, Readiness, Stage, WaitSpec, Waited};
use crate::number::{number_of, task_of};
use crate::record::Record;
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use tokio::sync::{broadcast, mpsc};
use windlass_api::ServerEvent;
use windlass_core::engine::Event;
use windlass_core::{JobId, TaskId};
use windlass_server::{Front, Handle, Unavailable};
use windlass_store::ForeignWrite;

/// New jobs in the inbox.
const NEW_MAX: usize = 4_096;
/// The delay before a failed check is repeated.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// The channel to the task that checks conditions.
#[derive(Clone)]
pub(crate) struct Waits {
    new: mpsc::Sender<JobId>,
}

impl Waits {
    /// Starts the task, which runs until the server ends.
    pub fn start(front: Front, changes: broadcast::Sender<JobId>) -> Waits {
        let (new, inbox) = mpsc::channel(NEW_MAX);
        let heard = changes.subscribe();
        let handle = front.handle().clone();
        let waiting = WaitingClient { front, handle, changes, jobs: BTreeMap::new(), on: BTreeMap::new() };
        tokio::spawn(waiting.run(inbox, heard));
        Waits { new }
    }

    /// Checks the conditions of a held job from now on.
    pub async fn watch(&self, job: JobId) {
        // After a restart the server finds the job among the held ones.
        _ = self.new.send(job).await;
    }
}

fn tasks_of(job: JobId) -> RangeInclusive<TaskId> {
    TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX }
}

/// The open conditions of a job, and the fields of jobs that met theirs.
struct Waiter {
    spec: WaitSpec,
    told: Fields,
}

struct WaitingClient {
    front: Front,
    handle: Handle,
    changes: broadcast::Sender<JobId>,
    jobs: BTreeMap<JobId, Waiter>,
    /// The jobs that wait for each task.
    on: BTreeMap<TaskId, BTreeSet<JobId>>,
}

impl WaitingClient {
    async fn run(mut self, mut inbox: mpsc::Receiver<JobId>, mut heard: broadcast::Receiver<JobId>) {
        let mut events = None;
        let mut again: BTreeSet<JobId> = self.held().await;
        loop {
            let jobs = std::mem::take(&mut again);
            for job in jobs {
                if let Err(why) = self.look(job).await {
                    tracing::warn!("what job {job} waits for cannot be looked at: {why}");
                    again.insert(job);
                }
            }
            if self.jobs.is_empty() {
                events = None;
            } else if events.is_none() {
                // Checking again finds jobs that ended before the subscription.
                events = Some(self.handle.subscribe());
                again.extend(self.jobs.keys().copied());
                continue;
            }
            tokio::select! {
                job = inbox.recv() => match job {
                    Some(job) => _ = again.insert(job),
                    None => return,
                },
                number = heard.recv() => self.changed(number.ok().map(|number| task_of(number).job), &mut again),
                event = next(&mut events) => match event.as_deref() {
                    Ok(ServerEvent::Job(job)) => self.changed(Some(JobId(job.job)), &mut again),
                    Ok(_) => {}
                    Err(_) => self.changed(None, &mut again),
                },
                () = tokio::time::sleep(RETRY), if !again.is_empty() => {}
                () = self.handle.ends() => return,
            }
        }
    }

    /// Notes which jobs to check after a job changed; `None` is any job.
    fn changed(&self, job: Option<JobId>, again: &mut BTreeSet<JobId>) {
        match job {
            Some(job) => again.extend(self.on.range(tasks_of(job)).flat_map(|(_, by)| by)),
            None => again.extend(self.jobs.keys()),
        }
        again.extend(job.filter(|job| self.jobs.contains_key(job)));
    }

    /// The jobs that waited when an earlier server ended.
    async fn held(&self) -> BTreeSet<JobId> {
        match self.handle.store().held_jobs().await {
            Ok(held) => held.into_iter().collect(),
            Err(error) => {
                tracing::error!("jobs that wait for others cannot be read: {error}");
                BTreeSet::new()
            }
        }
    }

    /// Checks the conditions of a job.
    async fn look(&mut self, job: JobId) -> Result<(), Unavailable> {
        let Some(view) = View::find(&self.handle, job).await? else {
            self.forget(job);
            return Ok(());
        };
        if view.record.stage != Stage::Submit {
            self.forget(job);
            // The job was given up, and an earlier server ended before it could cancel it.
            if view.record.stage == Stage::AbortWait {
                self.cancel(job).await?;
            }
            return Ok(());
        }
        let Some(mut waiter) = self.jobs.remove(&job).or_else(|| Waiter::of(&view.submitted)) else {
            return Ok(());
        };
        let mut outcome = Waited::Met;
        // A job reads of others what its user may read.
        let reader = self.front.reader_for_user(&view.spec.user);
        let ids: Vec<u64> = waiter.spec.wait_on.keys().copied().collect();
        for id in ids {
            let met = match View::find(&self.handle, JobId(id)).await? {
                None => Waited::Never,
                Some(on) => {
                    let fields = on.fields(JobId(id), &reader);
                    let met = waiter.spec.look(id, &fields, on.record.is_closed());
                    if met == Waited::Met {
                        waiter.told.insert(id.to_string(), waiter.spec.tell(&fields).into());
                        waiter.spec.wait_on.remove(&id);
                    }
                    met
                }
            };
            match met {
                Waited::Met => {}
                Waited::Open => {
                    self.on.entry(task_of(JobId(id))).or_default().insert(job);
                    outcome = if outcome == Waited::Met { Waited::Open } else { outcome };
                }
                end => outcome = end,
            }
        }
        match outcome {
            Waited::Open => _ = self.jobs.insert(job, waiter),
            Waited::Met => self.release(job, view.spec.steps.len(), waiter.told).await?,
            Waited::Failed | Waited::Never => self.give_up(job, view.spec.steps.len()).await?,
        }
        Ok(())
    }

    fn forget(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.on.retain(|_, by| {
            by.remove(&job);
            !by.is_empty()
        });
    }

    /// Releases a job whose conditions are all met.
    async fn release(&mut self, job: JobId, nodes: usize, told: Fields) -> Result<(), Unavailable> {
        let record = Record { waited: Some(told), ..Record::default() };
        // Written before the job may start, because its host's updates change the record afterwards.
        self.keep(job, nodes, &record).await?;
        self.handle.request(move |request| Event::Hold { request, job, held: false }).await?;
        self.forget(job);
        Ok(())
    }

    /// Gives up a job one of whose conditions failed or can never be met.
    async fn give_up(&mut self, job: JobId, nodes: usize) -> Result<(), Unavailable> {
        let record = Record::untold(Stage::AbortWait, Some(Health::AbortWait), Readiness::Norun);
        self.keep(job, nodes, &record).await?;
        self.cancel(job).await?;
        self.forget(job);
        Ok(())
    }

    async fn cancel(&self, job: JobId) -> Result<(), Unavailable> {
        self.handle.request(move |request| Event::Cancel { request, job }).await.map(|_| ())
    }

    /// Writes the record of all nodes, which wait together.
    async fn keep(&self, job: JobId, nodes: usize, record: &Record) -> Result<(), Unavailable> {
        let (mut numbers, mut writes) = (Vec::new(), Vec::new());
        for index in 0..nodes as u32 {
            let job = number_of(TaskId { job, index });
            numbers.push(job);
            writes.push(ForeignWrite::Job { job, open: false, doc: record.to_text() });
        }
        let written = self.handle.store().write_foreign(writes).await;
        written.map_err(|error| Unavailable::from_store(&error))?;
        for number in numbers {
            // The send fails if there is no listener.
            _ = self.changes.send(number);
        }
        Ok(())
    }
}

impl Waiter {
    /// The conditions in a job's fields; `None` if there are none.
    fn of(submitted: &Fields) -> Option<Waiter> {
        let spec = WaitSpec::parse(submitted).ok().filter(|spec| !spec.wait_on.is_empty())?;
        Some(Waiter { spec, told: Fields::new() })
    }
}

async fn next(
    events: &mut Option<windlass_server::Subscription>,
) -> Result<std::sync::Arc<ServerEvent>, broadcast::error::RecvError> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
