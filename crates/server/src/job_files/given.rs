//! What an attempt finds in its directory.

use super::error::FilesTrouble;
use super::names::{InputKey, digest_of};
use super::outputs::ROOTS_MAX;
use super::state::{FilesState, JobNeeds};
use super::step_files::{first_task, step_of};
use crate::auth::Caller;
use crate::cas::BookedAttempt;
use std::ops::Range;
use windlass_api::StepFiles;
use windlass_api::wire::TaskFiles;
use windlass_cas::Digest;
use windlass_core::job::{DependencyKind, JobSpec};
use windlass_core::{JobId, TaskId};

/// Notes that are read at a time.
const PAGE: usize = 1_000;

impl FilesState {
    /// The files of an attempt that is booked.
    pub async fn files_of(
        &self,
        caller: Option<&Caller>,
        task: TaskId,
        attempt: u32,
    ) -> Result<TaskFiles, FilesTrouble> {
        let booked = BookedAttempt::find(&self.handle, caller, task, attempt).await?;
        let spec = &booked.spec;
        let none = || FilesTrouble::NoFiles(task);
        let (step, first) = step_of(spec, task.index).ok_or_else(none)?;
        let files = self.steps.of(&self.handle, task.job, step).await?.ok_or_else(none)?;
        if self.needs_of(task.job).await?.is_none() {
            self.need_again(task.job, spec).await?;
            self.look_after(task.job).await?;
        }
        let mut roots: Vec<String> = files.root.iter().cloned().collect();
        for range in firsts(spec, step, task.index - first, &files) {
            self.add_roots(task, range, &mut roots).await?;
        }
        Ok(TaskFiles { roots, stdin: files.stdin.clone(), outputs: files.outputs.clone() })
    }

    /// Adds the trees of the outputs of these tasks that have some.
    async fn add_roots(
        &self,
        task: TaskId,
        range: Range<u32>,
        roots: &mut Vec<String>,
    ) -> Result<(), FilesTrouble> {
        let empty = Digest::EMPTY.to_string();
        let mut from = range.start;
        loop {
            let page = self.outputs(task.job, from, PAGE).await?;
            let is_last = page.len() < PAGE;
            let Some(last) = page.last().map(|outputs| outputs.index) else { return Ok(()) };
            let own = page.into_iter().filter(|outputs| range.contains(&outputs.index));
            roots.extend(own.map(|outputs| outputs.root).filter(|root| *root != empty));
            if roots.len() > ROOTS_MAX {
                return Err(FilesTrouble::ManyRoots { task, roots_max: ROOTS_MAX });
            }
            if is_last || last + 1 >= range.end {
                return Ok(());
            }
            from = last + 1;
        }
    }

    /// A job is to be retried: its inputs are pinned again, if it had some and they are not pinned.
    pub async fn retried(&self, job: JobId) -> Result<(), FilesTrouble> {
        if !self.is_used() || self.needs_of(job).await?.is_some() || self.noted_needs(job).await?.is_none() {
            return Ok(());
        }
        match self.handle.store().job(job).await? {
            Some(view) => self.need_again(job, &view.spec).await,
            None => Ok(()),
        }
    }

    /// It is known whether the job is retried.
    pub async fn retry_is_over(&self, job: JobId) {
        if self.is_used()
            && let Err(trouble) = self.look_after(job).await
        {
            self.tell("a retry of a job with files", &trouble);
        }
    }

    /// Pins the inputs of a job again, which its tasks need from now on: of one that is retried, or that no note says needs
    /// any. They may be gone.
    pub(super) async fn need_again(&self, job: JobId, spec: &JobSpec) -> Result<(), FilesTrouble> {
        let (keys, is_exempt): (Vec<InputKey>, bool) = match self.noted_needs(job).await? {
            Some(needs) => (needs.keys().collect(), needs.is_exempt),
            None => (self.inputs_by_steps(job, spec).await?, false),
        };
        let what = format!("the files of job {job}");
        let wanted: Vec<(InputKey, String)> = keys.iter().map(|key| (*key, what.clone())).collect();
        let needed = self.with_trees(move |blobs, jobs| jobs.need_all(blobs, &wanted, None)).await;
        let facts = needed.map_err(|trouble| match trouble {
            FilesTrouble::NotUploaded { .. } => FilesTrouble::Gone(job),
            other => other,
        })?;
        self.needs(job, JobNeeds::new(&keys, &facts, is_exempt)).await
    }

    /// The inputs of a job, as its steps say.
    async fn inputs_by_steps(&self, job: JobId, spec: &JobSpec) -> Result<Vec<InputKey>, FilesTrouble> {
        let mut keys = Vec::new();
        for number in (0u16..).take(spec.steps.len()) {
            let Some(files) = self.steps.of(&self.handle, job, number).await? else { continue };
            if let Some(root) = &files.root {
                keys.push(InputKey::Tree(digest_of(root, "root")?));
            }
            if let Some(stdin) = &files.stdin {
                keys.push(InputKey::Blob(digest_of(stdin, "stdin")?));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// The tasks of which a task gets the outputs, in the order in which their steps were named. `place` is its place in its
/// step.
fn firsts(spec: &JobSpec, step: u16, place: u32, files: &StepFiles) -> Vec<Range<u32>> {
    let mut ranges = Vec::new();
    let Some(own) = spec.steps.get(usize::from(step)) else { return ranges };
    for name in &files.outputs_of {
        let Some(on) = spec.steps.iter().position(|first| first.name == *name) else { continue };
        let kinds = own.depends.iter().filter(|depends| usize::from(depends.on) == on);
        let is_whole = kinds.clone().any(|depends| depends.kind == DependencyKind::Step);
        let (first, tasks) = (first_task(spec, on), spec.steps[on].tasks);
        let range = match (is_whole, kinds.count()) {
            (_, 0) => continue,
            (true, _) => first..first + tasks,
            (false, _) => first + place..(first + place + 1).min(first + tasks),
        };
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::{Dependency, StepSpec};

    #[test]
    fn a_task_gets_outputs_of_the_tasks_on_which_it_depends() {
        let step = |name: &str, tasks, depends| StepSpec {
            name: name.to_owned(),
            tasks,
            depends,
            ..StepSpec::default()
        };
        let on = |on, kind| Dependency { on, kind };
        let depends = vec![on(1, DependencyKind::Task), on(0, DependencyKind::Step)];
        let steps =
            vec![step("make", 3, Vec::new()), step("compile", 26, Vec::new()), step("link", 26, depends)];
        let spec = JobSpec { steps, ..JobSpec::default() };
        let of = |names: &[&str]| {
            let outputs_of = names.iter().map(|name| (*name).to_owned()).collect();
            firsts(&spec, 2, 5, &StepFiles { outputs_of, ..StepFiles::default() })
        };
        assert_eq!(of(&["compile", "make", "compile"]), [8..9, 0..3]);
        assert!(of(&["link", "nothing"]).is_empty());
        assert!(of(&[]).is_empty());
    }
}
