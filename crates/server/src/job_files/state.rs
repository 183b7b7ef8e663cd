//! What all parts of the files of jobs share: the store, the engine, and which jobs need which inputs.
//!
//! A job that has files is noted in the store of files, so that the next process knows it. Its inputs are pinned until it
//! ends, and its outputs until retention deletes it. What a process leaves between two steps is put right when the store is
//! opened again, and a job whose note was not written is noted when its first task asks for its files.

use super::error::FilesTrouble;
use super::inputs::{Asker, InputFacts, PinnedInputs};
use super::names::{INPUTS, InputKey, JOBS, needs_inputs, of_job};
use super::step_files::StepFilesCache;
use crate::cas::{BlobStore, CacheState, SpaceBlobs};
use crate::handle::Handle;
use crate::job_ends::JobsOver;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OnceCell, Semaphore};
use windlass_core::JobId;
use windlass_core::job::JobState;

/// Trees that are looked through at a time: one of a million files has some 300 MB in memory.
const TREES_MAX: usize = 2;
/// The number of the note that says what a job needs.
const NEEDS_NUMBER: u64 = 0;

pub(crate) struct FilesState {
    pub cache: Arc<CacheState>,
    /// The store's part for blobs of jobs.
    pub store: BlobStore,
    pub handle: Handle,
    pub(super) steps: StepFilesCache,
    trees: Semaphore,
    jobs: OnceCell<Arc<NeedyJobs>>,
}

/// The jobs that are not over and have files.
#[derive(Default)]
pub(super) struct NeedyJobs {
    pub inputs: PinnedInputs,
    jobs: Mutex<BTreeMap<JobId, JobNeeds>>,
}

/// What a job needs, as its note has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct JobNeeds {
    pub inputs: Vec<InputNote>,
    /// An administrator submitted it, so its outputs count for nobody's day.
    #[serde(default)]
    pub is_exempt: bool,
}

/// One input that a job needs, and how much it is in all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct InputNote {
    /// The name under which it is pinned.
    pub owner: String,
    pub files: u64,
    pub bytes: u64,
}

impl JobNeeds {
    /// Of inputs that were looked through.
    pub fn new(keys: &[InputKey], facts: &[InputFacts], is_exempt: bool) -> JobNeeds {
        let note = |(key, facts): (&InputKey, &InputFacts)| InputNote {
            owner: key.owner(),
            files: facts.files,
            bytes: facts.bytes,
        };
        JobNeeds { inputs: keys.iter().zip(facts).map(note).collect(), is_exempt }
    }

    pub fn keys(&self) -> impl Iterator<Item = InputKey> {
        self.inputs.iter().filter_map(|input| InputKey::parse(&input.owner))
    }

    /// What is noted of an input.
    pub fn input(&self, key: InputKey) -> Option<&InputNote> {
        let owner = key.owner();
        self.inputs.iter().find(|input| input.owner == owner)
    }
}

impl FilesState {
    pub fn new(cache: Arc<CacheState>, handle: Handle) -> FilesState {
        FilesState {
            store: cache.store.of_jobs(),
            cache,
            handle,
            steps: StepFilesCache::default(),
            trees: Semaphore::new(TREES_MAX),
            jobs: OnceCell::new(),
        }
    }

    /// False if no job has had files here: then the store is not made for a question about them.
    pub fn is_used(&self) -> bool {
        self.store.opened().is_some() || self.store.is_left()
    }

    /// Does something with the blobs of jobs, on a thread that may wait for the disk.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SpaceBlobs) -> Result<T, FilesTrouble> + Send + 'static,
    ) -> Result<T, FilesTrouble> {
        self.store.with(move |blobs| Ok(work(blobs))).await?
    }

    /// The same with the jobs, for what looks through trees: few do at a time.
    pub(super) async fn with_trees<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SpaceBlobs, &NeedyJobs) -> Result<T, FilesTrouble> + Send + 'static,
    ) -> Result<T, FilesTrouble> {
        let jobs = self.jobs().await?;
        let _turn = self.trees.acquire().await.expect("nothing closes it");
        self.with(move |blobs| work(blobs, &jobs)).await
    }

    /// The jobs that have files. What an earlier process left is read first.
    pub(super) async fn jobs(&self) -> Result<Arc<NeedyJobs>, FilesTrouble> {
        self.jobs.get_or_try_init(|| self.recover()).await.cloned()
    }

    /// The jobs, if the store was used.
    pub(super) fn known_jobs(&self) -> Option<Arc<NeedyJobs>> {
        self.jobs.get().cloned()
    }

    async fn recover(&self) -> Result<Arc<NeedyJobs>, FilesTrouble> {
        self.handle.parts().job_ends.listen();
        let left = self.with(|blobs| Ok(blobs.cas.owners(INPUTS)?)).await?;
        let (mut active, mut over) = (Vec::new(), Vec::new());
        for name in left {
            let Some(job) = name.parse().ok().map(JobId) else { continue };
            // Its end is noted from here on.
            self.handle.parts().job_ends.watch(job);
            let view = self.handle.store().job(job).await?;
            let is_active = view.is_some_and(|view| view.state == JobState::Active);
            if is_active { active.push(job) } else { over.push(job) }
        }
        let jobs = self.with(move |blobs| restore(blobs, &active, &over)).await?;
        let exempt = jobs.exempt();
        self.cache.exempt_jobs.lock().extend(exempt);
        Ok(Arc::new(jobs))
    }

    /// Notes that a job needs inputs, which are pinned for it. See [`FilesState::look_after`].
    pub(super) async fn needs(&self, job: JobId, needs: JobNeeds) -> Result<(), FilesTrouble> {
        let jobs = self.jobs().await?;
        if needs.is_exempt {
            self.cache.exempt_jobs.lock().insert(job);
        }
        self.handle.parts().job_ends.watch(job);
        self.with(move |blobs| jobs.add(blobs, job, needs)).await
    }

    /// Lets go of what a job was noted to need, if the job has ended before that, or is not there.
    pub(super) async fn look_after(&self, job: JobId) -> Result<(), FilesTrouble> {
        if self.needs_of(job).await?.is_none() {
            return Ok(());
        }
        let view = self.handle.store().job(job).await?;
        let is_active = view.is_some_and(|view| view.state == JobState::Active);
        if is_active { Ok(()) } else { self.job_ended(job).await }
    }

    /// Tells the log of what an administrator has to see to.
    pub fn tell(&self, call: &str, trouble: &FilesTrouble) {
        if let FilesTrouble::Cache(trouble) = trouble {
            self.cache.tell(call, trouble);
        }
    }

    /// Gives up what a submission needed that came to nothing.
    pub(super) async fn give_up(&self, needs: JobNeeds) -> Result<(), FilesTrouble> {
        let jobs = self.jobs().await?;
        self.with(move |blobs| jobs.release(blobs, &needs)).await
    }

    /// What a job with files needs that is not over; `None` of another one.
    pub(super) async fn needs_of(&self, job: JobId) -> Result<Option<JobNeeds>, FilesTrouble> {
        Ok(self.jobs().await?.jobs.lock().get(&job).cloned())
    }

    /// What a job needed that was noted, whether it is over or not.
    pub(super) async fn noted_needs(&self, job: JobId) -> Result<Option<JobNeeds>, FilesTrouble> {
        self.with(move |blobs| {
            let note = blobs.cas.notes(&of_job(job), NEEDS_NUMBER, 1)?.pop();
            // One that cannot be read is of a later release.
            Ok(note.filter(|(number, _)| *number == NEEDS_NUMBER).and_then(|(_, note)| read_needs(&note)))
        })
        .await
    }

    /// Lets go of the inputs of a job that has ended.
    async fn job_ended(&self, job: JobId) -> Result<(), FilesTrouble> {
        self.cache.exempt_jobs.lock().remove(&job);
        self.steps.forget(job);
        let jobs = self.jobs().await?;
        self.with(move |blobs| jobs.remove(blobs, job)).await
    }

    /// Lets go of what belongs to jobs that are over. After an error the rest is left.
    pub(super) async fn settle(&self, over: &mut JobsOver) -> Result<(), FilesTrouble> {
        while let Some(job) = over.ended.last().copied() {
            // A retry may have come since.
            let view = self.handle.store().job(job).await?;
            match view.is_some_and(|view| view.state == JobState::Active) {
                true => self.handle.parts().job_ends.watch(job),
                false => self.job_ended(job).await?,
            }
            over.ended.pop();
        }
        let Some(deleted) = &mut over.deleted else {
            self.forget_deleted().await?;
            over.deleted = Some(Vec::new());
            return Ok(());
        };
        while let Some(job) = deleted.last().copied() {
            self.with(move |blobs| Ok(blobs.cas.forget(&of_job(job))?)).await?;
            deleted.pop();
        }
        Ok(())
    }

    /// Forgets what is kept of jobs that were deleted while nobody noted it.
    pub(super) async fn forget_deleted(&self) -> Result<(), FilesTrouble> {
        for name in self.with(|blobs| Ok(blobs.cas.owners(JOBS)?)).await? {
            let Some(job) = name.parse().ok().map(JobId) else { continue };
            if self.handle.store().job(job).await?.is_none() {
                self.with(move |blobs| Ok(blobs.cas.forget(&of_job(job))?)).await?;
            }
        }
        Ok(())
    }
}

/// Takes in which inputs the jobs need that an earlier process left, and lets go of the others.
fn restore(blobs: &SpaceBlobs, active: &[JobId], over: &[JobId]) -> Result<NeedyJobs, FilesTrouble> {
    let jobs = NeedyJobs::default();
    for job in active {
        let note = blobs.cas.notes(&of_job(*job), NEEDS_NUMBER, 1)?.pop();
        let needs = note.and_then(|(_, note)| read_needs(&note)).unwrap_or_default();
        needs.keys().for_each(|key| jobs.inputs.restore(key));
        jobs.jobs.lock().insert(*job, needs);
    }
    for job in over {
        blobs.cas.forget(&needs_inputs(*job))?;
    }
    jobs.inputs.drop_others(&blobs.cas)?;
    Ok(jobs)
}

fn read_needs(note: &[u8]) -> Option<JobNeeds> {
    serde_json::from_slice(note).ok()
}

impl NeedyJobs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.jobs.lock().len()
    }

    fn exempt(&self) -> Vec<JobId> {
        let jobs = self.jobs.lock();
        jobs.iter().filter(|(_, needs)| needs.is_exempt).map(|(job, _)| *job).collect()
    }

    fn add(&self, blobs: &SpaceBlobs, job: JobId, needs: JobNeeds) -> Result<(), FilesTrouble> {
        let note = serde_json::to_vec(&needs).expect("strings always serialize");
        blobs.cas.set_note(&of_job(job), NEEDS_NUMBER, &note)?;
        blobs.cas.set_note(&needs_inputs(job), NEEDS_NUMBER, b"")?;
        let before = self.jobs.lock().insert(job, needs);
        // It was noted before: the inputs are needed once.
        match before {
            Some(before) => self.release(blobs, &before),
            None => Ok(()),
        }
    }

    fn remove(&self, blobs: &SpaceBlobs, job: JobId) -> Result<(), FilesTrouble> {
        let needs = self.jobs.lock().remove(&job);
        blobs.cas.forget(&needs_inputs(job))?;
        needs.map_or(Ok(()), |needs| self.release(blobs, &needs))
    }

    fn release(&self, blobs: &SpaceBlobs, needs: &JobNeeds) -> Result<(), FilesTrouble> {
        needs.keys().try_for_each(|key| self.inputs.release(&blobs.cas, key))
    }

    /// Needs these inputs, all or none. Returns what they are.
    pub fn need_all(
        &self,
        blobs: &SpaceBlobs,
        wanted: &[(InputKey, String)],
        user: Option<&str>,
    ) -> Result<Vec<InputFacts>, FilesTrouble> {
        let mut all = Vec::with_capacity(wanted.len());
        for (key, what) in wanted {
            match self.inputs.need(blobs, *key, Asker { user, what }) {
                Ok(facts) => all.push(facts),
                Err(trouble) => {
                    let needed = wanted.iter().take(all.len());
                    needed.map(|(key, _)| *key).try_for_each(|key| self.inputs.release(&blobs.cas, key))?;
                    return Err(trouble);
                }
            }
        }
        Ok(all)
    }
}
