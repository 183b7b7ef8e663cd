//! Outputs of tasks: what is kept of an attempt's directory, and what is told of it.

use super::error::FilesTrouble;
use super::inputs::{Asker, look};
use super::names::{InputKey, digest_of, of_job, of_outputs, outputs_number};
use super::state::FilesState;
use super::walk::file_at;
use crate::auth::Caller;
use crate::cas::{BookedAttempt, CacheTrouble, SpaceBlobs};
use windlass_api::wire::KeptOutputs;
use windlass_api::{StepFiles, StepFilesOf, TaskOutputs};
use windlass_cas::{Blob, Digest, Space};
use windlass_core::job::JobSpec;
use windlass_core::{JobId, TaskId};

/// Tasks of which one task gets the outputs.
pub(super) const ROOTS_MAX: usize = 20_000;
/// What was not kept: entries that are told of one task, and bytes of each.
const SKIPPED_MAX: usize = 20;
const SKIPPED_BYTES_MAX: usize = 300;

impl FilesState {
    /// Keeps the outputs of an attempt that is booked, in the place of those of an earlier one. Its blobs were uploaded
    /// before.
    pub async fn keep_outputs(&self, caller: Option<&Caller>, kept: KeptOutputs) -> Result<(), FilesTrouble> {
        let (task, attempt) = kept.task.as_ref().ok_or(FilesTrouble::Lacks("which task it is of"))?.key();
        let booked = BookedAttempt::find(&self.handle, caller, task, attempt).await?;
        if booked.epoch.0 != kept.epoch {
            return Err(CacheTrouble::NotBooked(format!("{task}.{attempt} of epoch {}", kept.epoch)).into());
        }
        let root = kept.root.as_deref().map(|root| digest_of(root, "root")).transpose()?;
        let skipped = kept.skipped.iter().take(SKIPPED_MAX).map(|text| shortened(text)).collect();
        let outputs = NewOutputs { task, attempt, root: root.unwrap_or(Digest::EMPTY), skipped };
        let user = booked.spec.user.clone();
        self.with_trees(move |blobs, _| outputs.keep(blobs, &user)).await
    }

    /// The outputs of up to `limit` tasks of a job, by rising index from one on.
    pub async fn outputs(
        &self,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskOutputs>, FilesTrouble> {
        if !self.is_used() {
            return Ok(Vec::new());
        }
        self.with(move |blobs| outputs(blobs, job, from, limit)).await
    }
}

impl FilesState {
    /// The steps of a job that have files, in their order.
    pub async fn steps(&self, job: JobId, spec: &JobSpec) -> Result<Vec<StepFilesOf>, FilesTrouble> {
        let mut steps = Vec::new();
        if !self.is_used() {
            return Ok(steps);
        }
        for (number, step) in (0u16..).zip(&spec.steps) {
            let Some(files) = self.steps.of(&self.handle, job, number).await? else { continue };
            let (step, files) = (step.name.clone(), StepFiles::clone(&files));
            steps.push(StepFilesOf { step, files, ..StepFilesOf::default() });
        }
        let needs = self.noted_needs(job).await?.unwrap_or_default();
        self.with(move |blobs| {
            for of in &mut steps {
                let root = of.files.root.as_deref().and_then(|root| digest_of(root, "root").ok());
                // After the job's end they may be evicted, and nobody looks through a tree for this.
                let left = root.filter(|root| blobs.has(*root));
                let input = left.and_then(|root| needs.input(InputKey::Tree(root)));
                (of.input_files, of.input_bytes) = input.map(|input| (input.files, input.bytes)).unzip();
            }
            Ok(steps)
        })
        .await
    }

    /// A file among the outputs of a task; `None` if there is none at that path.
    pub async fn output_file(
        &self,
        task: TaskId,
        path: String,
    ) -> Result<Option<(Digest, Blob)>, FilesTrouble> {
        let kept = self.outputs(task.job, task.index, 1).await?.pop();
        let Some(kept) = kept.filter(|kept| kept.index == task.index) else { return Ok(None) };
        let root = digest_of(&kept.root, "root")?;
        self.with(move |blobs| {
            let Some(digest) = file_at(blobs, root, &path)? else { return Ok(None) };
            Ok(blobs.read(digest)?.map(|blob| (digest, blob)))
        })
        .await
    }
}

/// The outputs of tasks that were kept, by rising index from one on.
pub(super) fn outputs(
    blobs: &SpaceBlobs,
    job: JobId,
    from: u32,
    limit: usize,
) -> Result<Vec<TaskOutputs>, FilesTrouble> {
    let notes = blobs.cas.notes(&of_job(job), outputs_number(from), limit)?;
    // One that cannot be read is of a later release.
    Ok(notes.iter().filter_map(|(_, note)| serde_json::from_slice(note).ok()).collect())
}

/// Outputs that are to be kept.
struct NewOutputs {
    task: TaskId,
    attempt: u32,
    root: Digest,
    skipped: Vec<String>,
}

impl NewOutputs {
    fn keep(self, blobs: &SpaceBlobs, user: &str) -> Result<(), FilesTrouble> {
        let NewOutputs { task, attempt, root, skipped } = self;
        let what = format!("the outputs of task {task}");
        let looked = look(blobs, InputKey::Tree(root), Asker { user: None, what: &what });
        let (facts, all) = looked.map_err(|trouble| match trouble {
            FilesTrouble::NotUploaded { missing, .. } => FilesTrouble::OutputsMissing(missing.len()),
            other => other,
        })?;
        let owner = of_outputs(task, attempt);
        let missing = blobs.cas.pin(Space::Jobs, &owner, &all)?;
        if !missing.is_empty() {
            blobs.cas.unpin(&owner)?;
            return Err(FilesTrouble::OutputsMissing(missing.len()));
        }
        // What a job of theirs has made they need not upload.
        blobs.cas.hold(user, &all)?;
        let before = outputs(blobs, task.job, task.index, 1)?.pop();
        let told = TaskOutputs {
            index: task.index,
            attempt,
            root: root.to_string(),
            files: facts.files,
            bytes: facts.bytes,
            skipped,
        };
        let note = serde_json::to_vec(&told).expect("strings and numbers always serialize");
        blobs.cas.set_note(&of_job(task.job), outputs_number(task.index), &note)?;
        match before.filter(|before| before.index == task.index && before.attempt != attempt) {
            Some(before) => Ok(blobs.cas.unpin(&of_outputs(task, before.attempt))?),
            None => Ok(()),
        }
    }
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(SKIPPED_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_workers_are_cut_between_letters() {
        assert_eq!(shortened("a.txt: it changed"), "a.txt: it changed");
        let long = "ä".repeat(SKIPPED_BYTES_MAX);
        assert_eq!(shortened(&format!("x{long}")).len(), SKIPPED_BYTES_MAX - 1);
    }
}
