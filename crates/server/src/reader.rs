//! Readers: what a caller may read of users' jobs. Answers are cut to that here and nowhere else.
//!
//! - Handlers have jobs and tasks as [`Whole`] alone, which cannot be sent.
//! - A [`Reader`] makes the answer of it. Of another user's job it leaves out what its tasks run and what they wrote.
//! - [`Outline`] names every field of a type, so that a new one does not compile before it is decided who may read it.

use crate::auth::{Caller, Role};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use windlass_api::{Attempt, Failure, Hints, Job, JobReason, Step, Task};
use windlass_core::explain::Cause;
use windlass_core::job::JobSpec;

/// A caller as a reader of users' jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reader {
    /// The jobs of all users.
    reads_all: bool,
    /// The user whose jobs the caller reads; `None` for a worker, which reads no user's, and for a submitter, which reads
    /// those that it may act on.
    user: Option<String>,
    /// The caller, who also reads the jobs that they may act on; `None` for what is not a caller.
    caller: Option<Caller>,
}

impl Reader {
    /// A caller as a reader. `read_all`: users read the output and the commands of others' jobs.
    pub(crate) fn of(caller: &Caller, read_all: bool) -> Reader {
        let is_worker = caller.role == Role::Worker;
        let has_own = matches!(caller.role, Role::Admin | Role::User | Role::Viewer);
        Reader {
            reads_all: !is_worker && (read_all || caller.role == Role::Admin),
            user: has_own.then(|| caller.user.clone()),
            caller: Some(caller.clone()),
        }
    }

    /// A reader for something that acts for a user, such as a job of theirs.
    pub(crate) fn for_user(user: &str, read_all: bool) -> Reader {
        Reader { reads_all: read_all, user: Some(user.to_owned()), caller: None }
    }

    /// True where it may read what all tasks of a user run and wrote.
    pub fn may_read(&self, user: &str) -> bool {
        self.reads_all || self.user.as_deref() == Some(user)
    }

    pub(crate) fn may_read_job(&self, job: &JobSpec) -> bool {
        self.may_read(&job.user)
            || self.caller.as_ref().is_some_and(|caller| caller.may_act_on(&job.user, &job.queue))
    }

    /// True where it may read all users'.
    pub fn reads_all(&self) -> bool {
        self.reads_all
    }

    /// The answer that is made of a job or a task for this reader.
    pub(crate) fn told<T: Outline>(&self, whole: Whole<T>) -> T {
        let Whole { spec, mut all } = whole;
        if !self.may_read_job(&spec) {
            all.keep_outline();
        }
        all
    }

    pub(crate) fn told_each<T: Outline>(&self, all: Vec<Whole<T>>) -> Vec<T> {
        all.into_iter().map(|whole| self.told(whole)).collect()
    }
}

/// A job or a task with all that the server knows of it. It becomes an answer by [`Reader::told`] alone.
pub(crate) struct Whole<T> {
    /// The job's, which says whose it is.
    spec: Arc<JobSpec>,
    all: T,
}

impl<T> Whole<T> {
    pub fn new(spec: Arc<JobSpec>, all: T) -> Whole<T> {
        Whole { spec, all }
    }

    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }
}

impl<T> Deref for Whole<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.all
    }
}

impl<T> DerefMut for Whole<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.all
    }
}

/// A part of an answer with fields that only some callers may read.
pub(crate) trait Outline {
    /// Leaves what everybody who may look reads: names, states, times and amounts.
    fn keep_outline(&mut self);
}

impl Outline for Job {
    fn keep_outline(&mut self) {
        let Job {
            id: _,
            name: _,
            queue: _,
            user: _,
            priority: _,
            state: _,
            stopped: _,
            reason,
            created_ms: _,
            ended_ms: _,
            expected_end_ms: _,
            max_running: _,
            after: _,
            after_any: _,
            after_not_ok: _,
            after_tasks: _,
            on_end,
            notice_failures,
            parent: _,
            counts: _,
            steps,
        } = self;
        reason.iter_mut().for_each(JobReason::keep_outline);
        // An address is often a secret by itself.
        on_end.clear();
        notice_failures.clear();
        steps.iter_mut().for_each(Step::keep_outline);
    }
}

impl Outline for JobReason {
    fn keep_outline(&mut self) {
        let JobReason { word, message } = self;
        if let Some(outline) = Cause::parse(word).outline() {
            *message = outline.to_owned();
        }
    }
}

impl Outline for Step {
    fn keep_outline(&mut self) {
        let Step {
            name: _,
            first_task: _,
            tasks: _,
            processes: _,
            command,
            cwd,
            umask: _,
            resources: _,
            tags: _,
            workers: _,
            time_limit_ms: _,
            max_running: _,
            nodes: _,
            with: _,
            retries: _,
            depends: _,
            limits: _,
            hints,
        } = self;
        command.clear();
        *cwd = None;
        hints.keep_outline();
    }
}

impl Outline for Hints {
    fn keep_outline(&mut self) {
        let Hints {
            kind: _,
            shape,
            network_bound: _,
            prefer_local: _,
            fetches: _,
            caches,
            deadline_ms: _,
            cpus_auto: _,
            cpus_max: _,
            jobserver: _,
            prefers: _,
        } = self;
        // The shape of a command is most of it, and cache keys name what is read.
        shape.clear();
        caches.clear();
    }
}

impl Outline for Task {
    fn keep_outline(&mut self) {
        let Task {
            id: _,
            job: _,
            index: _,
            step: _,
            value,
            state: _,
            progress,
            status,
            jobserver: _,
            expected_end_ms: _,
            attempt,
            failure,
            history,
        } = self;
        failure.iter_mut().for_each(Failure::keep_outline);
        // A task says progress and status by lines of its output.
        (*value, *progress, *status) = (None, None, None);
        attempt.keep_outline();
        history.iter_mut().for_each(Attempt::keep_outline);
    }
}

impl Outline for Failure {
    fn keep_outline(&mut self) {
        let Failure { cause, summary, message, advice, stderr } = self;
        // The sentence of a start that failed quotes what the task runs, and so may the advice.
        if let Some(outline) = cause.0.outline() {
            (*summary, *advice) = (outline.to_owned(), None);
        }
        *message = None;
        stderr.clear();
    }
}

impl Outline for Attempt {
    fn keep_outline(&mut self) {
        let Attempt {
            attempt: _,
            worker: _,
            booked_ms: _,
            started_ms: _,
            finished_ms: _,
            end: _,
            exit_code: _,
            message,
            cpu_ms: _,
            peak_memory: _,
            out_bytes: _,
            err_bytes: _,
            late: _,
        } = self;
        // It quotes paths of commands, and what the task said of its failure.
        *message = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::TaskState;

    const MARK: &str = "a-mark-of-ann";

    fn reader(user: Option<&str>) -> Reader {
        Reader { reads_all: false, user: user.map(str::to_owned), caller: None }
    }

    fn of_ann<T>(all: T) -> Whole<T> {
        Whole::new(Arc::new(JobSpec { user: "ann".to_owned(), ..JobSpec::default() }), all)
    }

    fn failure() -> Failure {
        Failure {
            cause: Cause::Program.into(),
            summary: MARK.to_owned(),
            message: Some(MARK.to_owned()),
            advice: Some(MARK.to_owned()),
            stderr: vec![MARK.to_owned()],
        }
    }

    fn job() -> Job {
        let step = serde_json::json!({
            "name": "main", "first_task": 0, "tasks": 1, "resources": {"cpus": 1, "memory": 0}, "retries": 0,
            "command": [MARK], "cwd": MARK, "shape": MARK, "caches": {MARK: null},
        });
        let counts = serde_json::to_value(windlass_api::Counts::default()).unwrap();
        let job = serde_json::json!({
            "id": 7, "name": "film", "queue": "ann", "user": "ann", "priority": 0, "state": "running",
            "created_ms": 1, "counts": counts, "steps": [step],
            "reason": {"word": "directory", "message": MARK}, "on_end": [{"url": MARK}],
        });
        serde_json::from_value(job).unwrap()
    }

    fn task() -> Task {
        let attempt = Attempt { attempt: 2, message: Some(MARK.to_owned()), ..Attempt::default() };
        Task {
            id: "7.0".to_owned(),
            job: 7,
            index: 0,
            step: "main".to_owned(),
            value: Some(MARK.to_owned()),
            state: TaskState::Running,
            progress: Some(50.0),
            status: Some(MARK.to_owned()),
            jobserver: None,
            expected_end_ms: None,
            attempt: attempt.clone(),
            failure: Some(failure()),
            history: vec![attempt],
        }
    }

    #[test]
    fn others_are_told_neither_what_tasks_run_nor_what_they_wrote() {
        for other in [reader(Some("bob")), reader(None)] {
            let (job, task) = (other.told(of_ann(job())), other.told(of_ann(task())));
            assert_eq!((&*job.name, &*task.step, task.attempt.attempt), ("film", "main", 2));
            assert_eq!((task.progress, task.history.len()), (None, 1));
            let told = serde_json::to_string(&(job, task)).unwrap();
            assert!(!told.contains(MARK), "{told}");
        }
    }

    #[test]
    fn a_job_s_user_and_a_reader_of_all_are_told_the_whole() {
        let all = Reader { reads_all: true, ..reader(None) };
        for own in [reader(Some("ann")), all] {
            let told = serde_json::to_string(&(own.told(of_ann(job())), own.told(of_ann(task())))).unwrap();
            // An address, the command, the directory, the shape, a cache and the reason; the value, the status, two messages, and
            // four parts of a failure.
            assert_eq!(told.matches(MARK).count(), 14, "{told}");
        }
    }
}
