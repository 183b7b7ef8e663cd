//! Jobs that wait for others: held back in the engine until what they wait for is so far, and given up where
//! it never will be.

use crate::closing::ended;
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

/// New jobs that may wait to be looked at.
const NEW_MAX: usize = 4_096;
/// Between two tries at what could not be done.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// A way to say that a job waits.
#[derive(Clone)]
pub(crate) struct Waits {
    new: mpsc::Sender<JobId>,
}

impl Waits {
    /// Goes on until the server ends.
    pub fn start(front: Front, changes: broadcast::Sender<JobId>) -> Waits {
        let (new, inbox) = mpsc::channel(NEW_MAX);
        let heard = changes.subscribe();
        let handle = front.handle().clone();
        let waiting = WaitingClient { front, handle, changes, jobs: BTreeMap::new(), on: BTreeMap::new() };
        tokio::spawn(waiting.run(inbox, heard));
        Waits { new }
    }

    /// The job is held until what it waits for is so far.
    pub async fn watch(&self, job: JobId) {
        // A server that ends finds it again when it starts.
        _ = self.new.send(job).await;
    }
}

/// All nodes of a job.
fn tasks_of(job: JobId) -> RangeInclusive<TaskId> {
    TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX }
}

/// What a job waits for, and what was told of those that are so far.
struct Waiter {
    spec: WaitSpec,
    told: Fields,
}

struct WaitingClient {
    front: Front,
    handle: Handle,
    changes: broadcast::Sender<JobId>,
    jobs: BTreeMap<JobId, Waiter>,
    /// Who waits for a node of a job.
    on: BTreeMap<TaskId, BTreeSet<JobId>>,
}

impl WaitingClient {
    async fn run(mut self, mut inbox: mpsc::Receiver<JobId>, mut heard: broadcast::Receiver<JobId>) {
        let mut closing = self.handle.closing();
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
                // What ended between the look and this is found by looking again.
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
                () = ended(&mut closing) => return,
            }
        }
    }

    /// A job changed, or one of its nodes; `None` is any.
    fn changed(&self, job: Option<JobId>, again: &mut BTreeSet<JobId>) {
        match job {
            Some(job) => again.extend(self.on.range(tasks_of(job)).flat_map(|(_, by)| by)),
            None => again.extend(self.jobs.keys()),
        }
        again.extend(job.filter(|job| self.jobs.contains_key(job)));
    }

    /// Jobs that waited when an earlier server ended.
    async fn held(&self) -> BTreeSet<JobId> {
        match self.handle.store().held_jobs().await {
            Ok(held) => held.into_iter().collect(),
            Err(error) => {
                tracing::error!("jobs that wait for others cannot be read: {error}");
                BTreeSet::new()
            }
        }
    }

    /// Looks whether a job waits any longer.
    async fn look(&mut self, job: JobId) -> Result<(), Unavailable> {
        let Some(view) = View::find(&self.handle, job).await? else {
            self.forget(job);
            return Ok(());
        };
        if view.record.stage != Stage::Submit {
            self.forget(job);
            // It was given up, and the server ended before the engine heard of it.
            if view.record.stage == Stage::AbortWait {
                self.cancel(job).await?;
            }
            return Ok(());
        }
        let Some(mut waiter) = self.jobs.remove(&job).or_else(|| Waiter::of(&view.submitted)) else {
            return Ok(());
        };
        let mut outcome = Waited::Met;
        // A job is told of others what its user is told.
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

    /// All is so far: the job may start.
    async fn release(&mut self, job: JobId, nodes: usize, told: Fields) -> Result<(), Unavailable> {
        let record = Record { waited: Some(told), ..Record::untold(Stage::Submit, None, Readiness::None) };
        // Before it may start: what is kept of it from then on is its host's to say.
        self.keep(job, nodes, &record).await?;
        self.handle.request(move |request| Event::Hold { request, job, held: false }).await?;
        self.forget(job);
        Ok(())
    }

    /// What it waits for failed, or will never be: it does not run.
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

    /// Of all nodes: they wait together.
    async fn keep(&self, job: JobId, nodes: usize, record: &Record) -> Result<(), Unavailable> {
        let numbers = (0..nodes as u32).map(|index| number_of(TaskId { job, index }));
        let write = |job| ForeignWrite::Job { job, open: false, doc: record.to_text() };
        let written = self.handle.store().write_foreign(numbers.clone().map(write).collect()).await;
        written.map_err(|error| Unavailable::from_store(&error))?;
        for number in numbers {
            // Nobody may wait for it.
            _ = self.changes.send(number);
        }
        Ok(())
    }
}

impl Waiter {
    /// What the fields of a job say that it waits for, if anything.
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
