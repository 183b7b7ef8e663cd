//! Files of a submission: read, checked against what its user has uploaded, and pinned before the job is there.

use super::error::FilesTrouble;
use super::inputs::{Asker, InputFacts, look};
use super::names::{InputKey, digest_of};
use super::outputs::ROOTS_MAX;
use super::state::{FilesState, JobNeeds};
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::cas::Payer;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;
use windlass_api::{ErrorCode, StepFiles};
use windlass_cas::tree::PathGlobs;
use windlass_core::JobId;
use windlass_core::bounds::CACHE_BYTES_MAX;
use windlass_core::job::{DependencyKind, JobSpec};

/// Different trees and files of standard input that one job names.
const INPUTS_MAX: usize = 100;
/// Cache keys that a step gets by its inputs: the largest ones.
const KEYS_MAX: usize = 32;

/// The files of a job that is being submitted. What it needs is given up when this is dropped before [`SubmittedFiles::keep`].
pub(crate) struct SubmittedFiles {
    state: Arc<FilesState>,
    needs: JobNeeds,
    /// The cache keys of each step's inputs.
    pub cache_keys: Vec<BTreeMap<String, Option<u64>>>,
}

/// Whether what a submission names is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SubmissionKind {
    /// It is submitted, and needs its files from now on.
    Real,
    /// It is only tried.
    DryRun,
}

/// Checks the files of a submission, and pins them if it is a real one. `None` if no step has files.
pub(crate) async fn submitted(
    state: &Arc<FilesState>,
    caller: &Caller,
    (spec, steps): (&JobSpec, Vec<Option<StepFiles>>),
    kind: SubmissionKind,
) -> Result<Option<SubmittedFiles>, ApiError> {
    if steps.iter().all(Option::is_none) {
        return Ok(None);
    }
    let wanted = Wanted::of(spec, &steps)?;
    let user = (!state.cache.users_share).then(|| caller.user.clone());
    let all = wanted.inputs.clone();
    let looked = state.with_trees(move |blobs, jobs| match kind {
        SubmissionKind::Real => jobs.need_all(blobs, &all, user.as_deref()),
        SubmissionKind::DryRun => {
            let facts = |(key, what): &(InputKey, String)| {
                look(blobs, *key, Asker { user: user.as_deref(), what }).map(|(facts, _)| facts)
            };
            all.iter().map(facts).collect()
        }
    });
    let facts = looked.await.map_err(|trouble| {
        state.tell("a submission with files", &trouble);
        trouble.into_api_error()
    })?;
    let keys: Vec<InputKey> = match kind {
        SubmissionKind::Real => wanted.inputs.iter().map(|(key, _)| *key).collect(),
        SubmissionKind::DryRun => Vec::new(),
    };
    let needs = JobNeeds::new(&keys, &facts, Payer::of(caller).is_exempt);
    let cache_keys = wanted.cache_keys(&facts);
    Ok(Some(SubmittedFiles { state: state.clone(), needs, cache_keys }))
}

impl SubmittedFiles {
    /// The job is there, and needs what it named until it ends.
    pub async fn keep(mut self, job: JobId) {
        let needs = std::mem::take(&mut self.needs);
        if let Err(trouble) = self.state.needs(job, needs.clone()).await {
            // It is noted when its first task asks for its files.
            tracing::warn!("cannot note which files job {job} needs: {trouble}");
            self.needs = needs;
        } else if let Err(trouble) = self.state.look_after(job).await {
            tracing::warn!("files of job {job} stay until the server is restarted: {trouble}");
        }
    }
}

impl Drop for SubmittedFiles {
    fn drop(&mut self) {
        let needs = std::mem::take(&mut self.needs);
        // Without a runtime the process ends.
        let (Ok(runtime), false) = (Runtime::try_current(), needs.inputs.is_empty()) else { return };
        let state = self.state.clone();
        runtime.spawn(async move {
            if let Err(trouble) = state.give_up(needs).await {
                tracing::warn!(
                    "files of a job that was refused stay until the server is restarted: {trouble}"
                );
            }
        });
    }
}

/// What a submission names.
struct Wanted {
    /// Each once, with what it is for people.
    inputs: Vec<(InputKey, String)>,
    /// Of each step, the numbers of its inputs.
    of_steps: Vec<Vec<usize>>,
}

impl Wanted {
    fn of(spec: &JobSpec, steps: &[Option<StepFiles>]) -> Result<Wanted, ApiError> {
        let mut wanted = Wanted { inputs: Vec::new(), of_steps: Vec::new() };
        for (number, files) in steps.iter().enumerate() {
            let name = spec.steps.get(number).map_or("", |step| step.name.as_str());
            let read = match files {
                Some(files) => wanted.read(name, files).map_err(FilesTrouble::into_api_error)?,
                None => Vec::new(),
            };
            wanted.of_steps.push(read);
            if let Some(files) = files {
                check_roots(spec, number, files)?;
            }
        }
        if wanted.inputs.len() > INPUTS_MAX {
            let why =
                format!("the job names {} different inputs, and at most {INPUTS_MAX}", wanted.inputs.len());
            let hint = "put files of several steps into one tree, or submit several jobs";
            return Err(ApiError::new(ErrorCode::BadRequest, why).hint(hint));
        }
        Ok(wanted)
    }

    /// Reads what a step names. Returns the numbers of its inputs.
    fn read(&mut self, step: &str, files: &StepFiles) -> Result<Vec<usize>, FilesTrouble> {
        let tree = |source| FilesTrouble::Tree { what: format!("step '{step}': outputs"), source };
        PathGlobs::parse(&files.outputs).map_err(tree)?;
        let mut numbers = Vec::new();
        if let Some(root) = &files.root {
            let what = format!("step '{step}': root");
            numbers.push(
                self.number(InputKey::Tree(digest_of(root, what)?), format!("inputs of step '{step}'")),
            );
        }
        if let Some(stdin) = &files.stdin {
            let what = format!("step '{step}': stdin");
            let key = InputKey::Blob(digest_of(stdin, what)?);
            numbers.push(self.number(key, format!("standard input of step '{step}'")));
        }
        Ok(numbers)
    }

    fn number(&mut self, key: InputKey, what: String) -> usize {
        let known = self.inputs.iter().position(|(known, _)| *known == key);
        known.unwrap_or_else(|| {
            self.inputs.push((key, what));
            self.inputs.len() - 1
        })
    }

    /// What workers are preferred by: the bytes of small files by their tree, and each large file by itself.
    fn cache_keys(&self, facts: &[InputFacts]) -> Vec<BTreeMap<String, Option<u64>>> {
        let of_step = |numbers: &Vec<usize>| {
            let mut keys = Vec::new();
            for number in numbers {
                let ((key, _), facts) = (&self.inputs[*number], &facts[*number]);
                let large: u64 = facts.large.iter().map(|blob| blob.size).sum();
                match key {
                    InputKey::Tree(root) => keys.push((facts.bytes.saturating_sub(large), root.hex())),
                    InputKey::Blob(_) => {}
                }
                keys.extend(facts.large.iter().map(|blob| (blob.size, blob.hex())));
            }
            keys.retain(|(bytes, _)| *bytes > 0);
            keys.sort_unstable();
            let largest = keys.into_iter().rev().take(KEYS_MAX);
            largest.map(|(bytes, hex)| (format!("input:{hex}"), Some(bytes.min(CACHE_BYTES_MAX)))).collect()
        };
        self.of_steps.iter().map(of_step).collect()
    }
}

/// Refuses a step whose tasks would get the outputs of too many tasks.
fn check_roots(spec: &JobSpec, number: usize, files: &StepFiles) -> Result<(), ApiError> {
    let Some(step) = spec.steps.get(number) else { return Ok(()) };
    let first = |name: &String| spec.steps.iter().position(|first| first.name == *name);
    let mut roots: u64 = 0;
    for on in files.outputs_of.iter().filter_map(first) {
        let is_whole = step
            .depends
            .iter()
            .any(|depends| usize::from(depends.on) == on && depends.kind == DependencyKind::Step);
        roots += if is_whole { spec.steps[on].tasks.into() } else { 1 };
    }
    if roots <= ROOTS_MAX as u64 {
        return Ok(());
    }
    let why = format!(
        "step '{}': each task would get the outputs of {roots} tasks, and at most of {ROOTS_MAX}",
        step.name
    );
    let hint = "depend task by task, or let a step between them collect the outputs";
    Err(ApiError::new(ErrorCode::BadRequest, why).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::super::inputs::KEY_BYTES_MIN;
    use super::*;
    use std::collections::BTreeSet;
    use windlass_cas::Digest;
    use windlass_core::job::{Dependency, StepSpec};

    fn digest(seed: u8, size: u64) -> Digest {
        Digest { hash: [seed; 32], size }
    }

    #[test]
    fn large_files_are_cache_keys_of_their_own_and_the_rest_is_their_tree_s() {
        let (root, large) = (digest(1, 90), digest(2, KEY_BYTES_MIN));
        let files = StepFiles {
            root: Some(root.to_string()),
            stdin: Some(large.to_string()),
            ..StepFiles::default()
        };
        let spec = JobSpec { steps: vec![StepSpec::default(), StepSpec::default()], ..JobSpec::default() };
        let wanted = Wanted::of(&spec, &[Some(files), None]).unwrap_or_else(|error| panic!("{error}"));
        let tree = InputFacts { files: 3, bytes: KEY_BYTES_MIN + 5, large: BTreeSet::from([large]) };
        let stdin = InputFacts { files: 1, bytes: KEY_BYTES_MIN, large: BTreeSet::from([large]) };
        let keys = wanted.cache_keys(&[tree, stdin]);
        let expected = [(root, 5), (large, KEY_BYTES_MIN)];
        let expected = expected.map(|(digest, bytes)| (format!("input:{}", digest.hex()), Some(bytes)));
        assert_eq!(keys, [BTreeMap::from(expected), BTreeMap::new()]);
        let many: BTreeSet<Digest> =
            (0..100).map(|seed| digest(seed, KEY_BYTES_MIN + u64::from(seed))).collect();
        let bytes = many.iter().map(|blob| blob.size).sum();
        let keys = wanted.cache_keys(&[InputFacts { files: 100, bytes, large: many }, InputFacts::default()]);
        assert_eq!(keys[0].len(), KEYS_MAX);
        assert!(keys[0].contains_key(&format!("input:{}", digest(99, 0).hex())), "the largest");
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_step() {
        let step = StepSpec { name: "compile".to_owned(), ..StepSpec::default() };
        let spec = JobSpec { steps: vec![step], ..JobSpec::default() };
        let refused = |files: StepFiles| match Wanted::of(&spec, &[Some(files)]) {
            Ok(_) => panic!("it is taken"),
            Err(error) => error.to_string(),
        };
        let text = |text: &str| Some(text.to_owned());
        let why = refused(StepFiles { root: text("abc/1"), ..StepFiles::default() });
        assert!(why.starts_with("step 'compile': root is not HASH/BYTES"), "{why}");
        let why = refused(StepFiles { stdin: text(""), ..StepFiles::default() });
        assert!(why.starts_with("step 'compile': stdin is not HASH/BYTES"), "{why}");
        for glob in ["", "/etc/*", "../x", "a/../../b", "a\0", "[", "{a"] {
            let why = refused(StepFiles { outputs: vec![glob.to_owned()], ..StepFiles::default() });
            assert!(why.starts_with("step 'compile': outputs: "), "{why}");
        }
    }

    #[test]
    fn a_task_gets_the_outputs_of_a_bounded_number_of_tasks() {
        let check = |tasks: u32, kind| {
            let first = StepSpec { name: "compile".to_owned(), tasks, ..StepSpec::default() };
            let depends = vec![Dependency { on: 0, kind }];
            let then = StepSpec { name: "link".to_owned(), depends, ..StepSpec::default() };
            let files = StepFiles { outputs_of: vec!["compile".to_owned()], ..StepFiles::default() };
            check_roots(&JobSpec { steps: vec![first, then], ..JobSpec::default() }, 1, &files).is_ok()
        };
        let max = ROOTS_MAX as u32;
        assert!(check(max, DependencyKind::Step) && !check(max + 1, DependencyKind::Step));
        assert!(check(max + 1, DependencyKind::Task));
    }
}
