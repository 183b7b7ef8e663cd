//! The JSON of submissions.

use crate::after::after_of;
use crate::body::{BODY_BYTES_MAX, ChunkedBody, Params, StepBody, VALUE_BYTES_MAX};
use crate::chunk_range::{ChunkRange, runs_of};
use crate::fail_limit::parse_fail_limit;
use crate::files::{LinkedStep, StepFiles, check_links};
use crate::job_name::name_of;
use crate::on_end::OnEnd;
use crate::quantity::parse_umask;
use crate::session::Session;
use crate::shape::shape_of;
use crate::space::{Param, Range, Values};
use crate::submit_error::SubmitError;
use crate::word::words_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::JobId;
use windlass_core::bounds;
use windlass_core::job::{
    self as core, ChunkSize, Chunks, Dependency, DependencyKind, Hints, JobSpec, StepSpec,
};
use windlass_core::tags::{EXECUTOR, Need};

/// The most cpus of a task.
const CPUS_MAX: f64 = 40_000_000.0;

/// A job to be submitted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The job's name, for people; by default the first step's program. That of a shell is named by its script: `sh FILE`
    /// by the file, `sh -c SCRIPT` by the script's first program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue; by default the one of the user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The user who submits it; by default the user of the caller's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The priority inside the queue; higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Idempotency key of the submitter's choice: a second submission with it returns the first job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The task that submits this job and waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Jobs that must succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// Jobs that must end first, whatever way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<u64>,
    /// Jobs that must fail or be cancelled first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_not_ok: Vec<u64>,
    /// The job after whose tasks its own come, task by task: each starts when the task of its number there has
    /// succeeded, and is skipped if that one has not when its job ends. Both jobs have the same number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_tasks: Option<u64>,
    /// What failed tasks do to the rest of the job; by default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<FailFast>,
    /// The failed tasks with which `fail_fast` takes effect: a number such as `3`, or `5%` for more than 5 percent of
    /// the job's tasks; by default one task. Without `fail_fast`, running tasks finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_limit: Option<String>,
    /// How many of the job's tasks may run at a time; by default any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Addresses that are told when the job has ended; 8 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_end: Vec<OnEnd>,
    /// Refuse the job if no worker of the farm, and no declared class of machines, could ever run one of its steps.
    #[serde(default)]
    pub placeable_only: bool,
    /// Accept limits that are not set: such a limit holds nothing back until it is. By default the job is refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit_unset_ok: bool,
    /// The steps of the job.
    pub steps: Vec<StepRequest>,
}

/// What a failed task does to the rest of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailFast {
    /// No further task starts; running ones finish.
    Finish,
    /// No further task starts; running ones are killed.
    Kill,
}

/// The default working directory of a step with a session.
const SESSION_DIR: &str = "{{Session.WorkingDirectory}}";

/// A step: tasks with one command and one set of requirements.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepRequest {
    /// The step's name, unique in the job; `main` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Program and arguments, not a shell line. `{}`, `{.}`, `{/}`, `{//}` and `{/.}` stand for the task's value, as in
    /// GNU parallel.
    pub command: Vec<String>,
    /// The complete environment of the tasks.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The working directory; `/` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The umask of the tasks, in octal digits such as `0022`; absent is that of their worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<String>,
    /// The values of the tasks; absent is one task without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<Param>,
    /// The amounts that each task holds while it runs; one cpu by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Tags that the worker must have: `key`, `key=value` or `key=a|b`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Names of the only workers that may run it; empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Milliseconds that a task may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// How many of the step's tasks may run at a time; by default any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// The number of tasks of each value, 1 by default. They start together, each on another worker, or none starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// One process may run several of the tasks, because starting it takes longer than they do. Its value is then a
    /// range such as `1-250`, or the values are arguments in the place of one that is `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<ChunksRequest>,
    /// The name of an earlier step with which it starts: the tasks of the first values of both together, and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// How often a failed task is run again.
    #[serde(default)]
    pub retries: u32,
    /// Steps of this job that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Depends>,
    /// The session: environments and files that a worker sets up once for all tasks there. With it, or with a parameter
    /// space, command, environment and working directory hold references such as `{{Task.Param.Frame}}` instead of
    /// replacement strings, and the working directory is the session's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// Names of limits, such as licences, of which each task holds one while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// Kind of work; `build` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The tasks mostly wait for the network: prefer workers with a fast one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_bound: bool,
    /// The tasks are short, and best run where their inputs are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefer_local: bool,
    /// The tasks need a worker with the tag `fetch`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fetches: bool,
    /// The keys that its tasks read from caches of workers, each with its bytes; null is unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caches: BTreeMap<String, Option<u64>>,
    /// Target queueing delay: milliseconds that a ready task should wait at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The requested cpus are only the first guess; later tasks are sized by the task profile.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpus_auto: bool,
    /// Cores that a task can use at most. It waits for the requested cpus alone, and takes more of its worker, up to
    /// this number, where nothing else that waits has a use for them. It finds what it has in `WINDLASS_CPUS`.
    /// With `jobserver` it is the most processes that it may run at a time; absent is as many as its worker has cpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_max: Option<f64>,
    /// Each task finds a GNU make jobserver in its environment. It books the requested cpus alone, and what its worker
    /// has idle beyond them moves between the builds there while they run. Excludes `cpus_auto`, `nodes`, `with` and
    /// `chunks`. Absent is what the queue's `jobserver` says, and without that none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<JobserverRequest>,
    /// Files that each task finds in a directory of its own, and what is kept of it. The working directory is then one
    /// inside it, `.` by default. Excludes `session` and `nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<StepFiles>,
}

/// What a step says of its jobserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobserverRequest {
    /// As the command and the tools of the worker need it.
    Auto,
    /// A named pipe, for make 4.4, ninja 1.13 and cargo.
    Fifo,
    /// Two inherited descriptors, for earlier releases of make.
    Pipes,
    /// The client detected that the command is a build, and its user said nothing of jobservers and cpus: as `auto`, with
    /// 0.1 cpus, unless the queue's `jobserver` is false.
    Detected,
    /// None, whatever the queue says.
    None,
}

impl JobserverRequest {
    fn form(self) -> Option<core::Jobserver> {
        match self {
            JobserverRequest::Auto | JobserverRequest::Detected => Some(core::Jobserver::Auto),
            JobserverRequest::Fifo => Some(core::Jobserver::Fifo),
            JobserverRequest::Pipes => Some(core::Jobserver::Pipes),
            JobserverRequest::None => None,
        }
    }
}

/// How a build gets its jobserver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Jobserver {
    /// As the command and the tools of the worker need it.
    Auto,
    /// A named pipe, for make 4.4, ninja 1.13 and cargo.
    Fifo,
    /// Two inherited descriptors, for earlier releases of make.
    Pipes,
}

words_of! { Jobserver of core::Jobserver: Auto "auto", Fifo "fifo", Pipes "pipes" }

/// How many tasks one process runs. Without a number it is learned from how long chunks take.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChunksRequest {
    /// The number of tasks of a chunk. With `target_ms` it is only the size of the first chunks, until their length is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Milliseconds that a chunk should run; by default long enough for its start not to matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ms: Option<u64>,
    /// The parameter of a space of which one process gets several values. It must be the one that varies fastest, of
    /// whole numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// The step's tasks are divided into blocks of this size, and a chunk never reaches from one block into the next;
    /// by default all tasks are one block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// The numbers that one process may get, and how it gets them; by default any, and the last chunk may be short.
    /// Excludes `block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<ChunkRange>,
}

/// The kind of work of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It builds something, such as a package.
    #[default]
    Build,
    /// Finds out what to build.
    Evaluation,
}

words_of! { Kind of core::Kind: Build "build", Evaluation "evaluation" }

/// Amounts of resources, of a task or a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Cpus, in hundredths at the finest.
    #[serde(default)]
    pub cpus: f64,
    /// Bytes of memory. For a task also its limit. 0 books none and sets no limit.
    #[serde(default)]
    pub memory: u64,
    /// Number of whole gpus.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: u32,
    /// Bytes of gpu memory over all gpus.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu_memory: u64,
    /// Amounts of other resources, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
}

/// True of what an absent field means.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A dependency of one step on another.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Depends {
    /// The name of the step that must succeed first.
    pub on: String,
    /// Whether each task depends on the whole step, or on one task of it.
    #[serde(default)]
    pub by: By,
}

/// How a step depends on another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// On all tasks of the other step.
    #[default]
    Step,
    /// Task i on task i of the other step.
    Task,
}

/// The answer to a submission.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Id of the job, unique on the farm.
    pub job: u64,
    /// True if the job was submitted before with the same key.
    pub existing: bool,
    /// True if the farm had no queue of that name, and it is not the one of the user's name, `vip` or `idle`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue_created: bool,
    /// Steps that no worker that the farm has now could run, and no declared class of machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaceable: Vec<Unplaceable>,
}

/// A step that no worker of the farm could run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Unplaceable {
    /// Name of the step, unique in its job.
    pub step: String,
    /// The reasons for which workers are ineligible, with their numbers.
    pub reasons: Vec<crate::why::IneligibleWorkers>,
}

impl Unplaceable {
    /// From the core's, without examples of workers.
    pub fn from_core(step: &windlass_core::engine::Unplaceable) -> Self {
        let reasons = step.reasons.iter();
        let reasons =
            reasons.map(|(why, n)| crate::why::IneligibleWorkers::from_core(why, *n, Vec::new())).collect();
        Unplaceable { step: step.step.clone(), reasons }
    }
}

impl SubmitRequest {
    /// The numbers of its steps that leave it to their queue whether they have a jobserver.
    pub fn jobservers_open(&self) -> Vec<u16> {
        let open = self.steps.iter().enumerate().filter(|(_, step)| step.leaves_jobserver_to_queue());
        open.filter_map(|(number, _)| u16::try_from(number).ok()).collect()
    }

    /// The job for the engine. `user` is used if the request names none.
    pub fn into_spec(self, user: &str) -> Result<JobSpec, SubmitError> {
        let caps = self.steps.iter().map(|step| step.max_running).chain([self.max_running]);
        if caps.flatten().any(|max| max == 0) {
            return Err(SubmitError::MaxRunning);
        }
        let names: Vec<String> = self.steps.iter().map(StepRequest::name_or_default).collect();
        self.check_files(&names)?;
        let user = self.user.unwrap_or_else(|| user.to_owned());
        let name = self.name.or_else(|| self.steps.first().map(|step| name_of(&step.command)));
        let steps = self.steps.into_iter().map(|step| step.into_spec(&names));
        let (after, after_ends) =
            after_of(self.after, self.after_any, self.after_not_ok).map_err(SubmitError::AfterTwice)?;
        let fail_limit = self.fail_limit.as_deref().map(parse_fail_limit).transpose()?;
        Ok(JobSpec {
            name: name.unwrap_or_default(),
            queue: self.queue.unwrap_or_else(|| user.clone()),
            user,
            priority: self.priority,
            key: self.key,
            parent: self.parent.as_deref().map(str::parse).transpose()?,
            after,
            after_ends,
            after_tasks: self.after_tasks.map(JobId),
            fail_limit: fail_limit.unwrap_or_default(),
            fail_fast: match self.fail_fast {
                None if fail_limit.is_some() => windlass_core::job::FailFast::Finish,
                None => windlass_core::job::FailFast::No,
                Some(FailFast::Finish) => windlass_core::job::FailFast::Finish,
                Some(FailFast::Kill) => windlass_core::job::FailFast::Kill,
            },
            max_running: self.max_running,
            on_end: self.on_end.into_iter().map(OnEnd::into_core).collect(),
            steps: steps.collect::<Result<_, _>>()?,
        })
    }
}

impl SubmitRequest {
    /// Checks of which steps others get the outputs.
    fn check_files(&self, names: &[String]) -> Result<(), SubmitError> {
        let linked = self.steps.iter().zip(names).map(|(step, name)| LinkedStep {
            name,
            files: step.files.as_ref(),
            depends: step.depends.iter().map(|first| (first.on.as_str(), first.by == By::Task)).collect(),
            is_chunked: step.chunks.is_some(),
        });
        let checked = check_links(&linked.collect::<Vec<_>>());
        checked.map_err(|(step, source)| SubmitError::BadFiles { step, source })
    }
}

/// Bytes of all values of one chunk: the kernel takes 2 MiB of arguments as a rule.
const CHUNK_BYTES_MAX: usize = 512 << 10;

/// The chunks of a step; `tasks` is how many tasks it has.
fn chunks_of(
    from: &ChunksRequest,
    params: &Params,
    command: &[String],
    tasks: u128,
) -> Result<Chunks, &'static str> {
    let mut block = u32::try_from(tasks).unwrap_or(u32::MAX);
    let mut runs = Vec::new();
    match params {
        Params::None => return Err("the step has one task; give it values, or leave chunks out"),
        Params::Range { start, step } => {
            let end = start.saturating_add(step.saturating_mul(i64::from(block) - 1));
            let numbers = Values::Ranges(vec![Range { start: *start, end, step: *step }]);
            runs = from.range.map(|range| runs_of(range, &numbers)).unwrap_or_default();
        }
        Params::Values(_) if from.range.is_some() => return Err("range is for numbers; leave it out"),
        Params::Values(values) => {
            let braces = command.iter().filter(|argument| argument.contains('{')).count();
            if braces != 1 || !command.iter().any(|argument| argument == "{}") {
                return Err("one argument must be {}, and no other may have replacement strings");
            }
            let longest = values.iter().map(String::len).max().unwrap_or(0) + 1;
            block = block.min(u32::try_from(CHUNK_BYTES_MAX / longest).unwrap_or(u32::MAX)).max(1);
        }
        Params::Space(space) => {
            let name = from.param.as_deref().ok_or("name the parameter of the space, as param")?;
            let (numbers, count) = space
                .fastest(name)
                .ok_or("param must be the parameter that varies fastest, of whole numbers")?;
            block = count;
            runs = from.range.map(|range| runs_of(range, numbers)).unwrap_or_default();
        }
    }
    if from.tasks == Some(0) || from.target_ms == Some(0) || from.block == Some(0) {
        return Err("tasks, target_ms and block must be at least 1");
    }
    if from.range.is_some() && from.block.is_some() {
        return Err("range says where chunks end; leave block out");
    }
    let size = match (from.tasks, from.target_ms) {
        (Some(tasks), None) => ChunkSize::Fixed(tasks),
        (first, target_ms) => ChunkSize::Learned { first: first.unwrap_or(1), target_ms },
    };
    Ok(Chunks { block: from.block.unwrap_or(block).min(block), runs, size })
}

fn check_range_of_cpus(
    step: &str,
    cpus: f64,
    cpus_max: Option<f64>,
    is_auto: bool,
) -> Result<(), SubmitError> {
    match cpus_max.filter(|max| is_auto || !(cpus..=CPUS_MAX).contains(max)) {
        Some(cpus_max) => Err(SubmitError::BadCpusMax { step: step.to_owned(), cpus, cpus_max }),
        None => Ok(()),
    }
}

impl StepRequest {
    fn leaves_jobserver_to_queue(&self) -> bool {
        matches!(self.jobserver, None | Some(JobserverRequest::Detected))
    }

    fn name_or_default(&self) -> String {
        self.name.clone().unwrap_or_else(|| "main".to_owned())
    }

    fn into_spec(self, names: &[String]) -> Result<StepSpec, SubmitError> {
        let name = self.name_or_default();
        let session = self.session_or_default();
        self.check(&name, session.as_ref())?;
        let (hints, umask) = (self.hints(), self.umask_number(&name)?);
        let cwd = self.cwd_or_default(session.is_some());
        let (params, values) = params_of(self.param, &name)?;
        let chunks = self.chunks.as_ref().map(|chunks| chunks_of(chunks, &params, &self.command, values));
        let chunks = chunks.transpose().map_err(|why| SubmitError::BadChunks { step: name.clone(), why })?;
        let nodes = self.nodes.unwrap_or(1);
        if nodes == 0 {
            return Err(SubmitError::NoNodes(name));
        }
        let tasks = values.saturating_mul(nodes.into());
        let Some(tasks) = u32::try_from(tasks).ok().filter(|n| *n <= bounds::TASKS_PER_JOB_MAX) else {
            return Err(SubmitError::TooManyTasks { step: name, is: tasks });
        };
        let place_of = |on: String| {
            let place = names.iter().position(|name| *name == on);
            let place = place.and_then(|place| u16::try_from(place).ok());
            place.ok_or(SubmitError::UnknownStep { step: name.clone(), on })
        };
        let mut depends = Vec::new();
        for Depends { on, by } in self.depends {
            let kind = if by == By::Task { DependencyKind::Task } else { DependencyKind::Step };
            depends.push(Dependency { on: place_of(on)?, kind });
        }
        let with = self.with.map(place_of).transpose()?;
        let resources = self.resources.unwrap_or(Resources { cpus: 1.0, ..Default::default() });
        let Some(request) = resources.to_core() else {
            return Err(SubmitError::BadCpus { step: name, cpus: resources.cpus });
        };
        check_range_of_cpus(&name, resources.cpus, self.cpus_max, self.cpus_auto)?;
        let chunked = self.chunks.map(|chunks| ChunkedBody { param: chunks.param, range: chunks.range });
        let body = StepBody {
            command: self.command,
            env: self.env,
            cwd,
            umask,
            params,
            nodes,
            chunks: chunked,
            session,
            compass: None,
            files: self.files,
        };
        let stored = serde_json::to_vec(&body).expect("strings and numbers always serialize");
        // A worker gets a part of the body, which is only measured if the whole is large.
        let bytes = if stored.len() > BODY_BYTES_MAX { body.sent_bytes() } else { 0 };
        if bytes > BODY_BYTES_MAX {
            return Err(SubmitError::TooLarge { step: name, bytes });
        }
        Ok(StepSpec {
            tasks,
            request,
            name,
            needs: self.tags.iter().map(|tag| Need::parse(tag)).collect(),
            targets: self.workers.into_iter().collect(),
            time_limit_ms: self.time_limit_ms,
            max_running: self.max_running,
            nodes: self.nodes.filter(|nodes| *nodes > 1),
            chunks,
            with,
            retries: self.retries,
            depends,
            limits: self.limits.into_iter().collect(),
            hints,
            body: stored.into(),
            is_external: false,
        })
    }

    fn cwd_or_default(&self, has_session: bool) -> String {
        let default_cwd = match has_session {
            true => SESSION_DIR,
            false if self.files.is_some() => ".",
            false => "/",
        };
        self.cwd.clone().unwrap_or_else(|| default_cwd.to_owned())
    }

    fn umask_number(&self, name: &str) -> Result<Option<u32>, SubmitError> {
        let umask = self.umask.as_deref().map(parse_umask).transpose();
        umask.map_err(|source| SubmitError::BadUmask { step: name.to_owned(), source })
    }

    fn hints(&self) -> Hints {
        Hints {
            kind: match self.kind.unwrap_or_default() {
                Kind::Build => core::Kind::Build,
                Kind::Evaluation => core::Kind::Evaluation,
            },
            shape: shape_of(&self.command),
            network_bound: self.network_bound,
            prefer_local: self.prefer_local,
            fetches: self.fetches,
            caches: self.caches.clone(),
            deadline_ms: self.deadline_ms,
            cpus_auto: self.cpus_auto,
            cpus_max: self.cpus_max.map(|max| (max * 100.0).round() as u32),
            jobserver: self.jobserver.and_then(JobserverRequest::form),
            prefers: BTreeSet::new(),
        }
    }

    /// The session; a step with a parameter space has one by default.
    fn session_or_default(&self) -> Option<Session> {
        let space = matches!(self.param, Some(Param::Space(_)));
        self.session.clone().or_else(|| space.then(Session::default))
    }

    /// Refuses texts that no process could be started with, and empty names.
    fn check(&self, name: &str, session: Option<&Session>) -> Result<(), SubmitError> {
        let step = || name.to_owned();
        if let Some(session) = session {
            let space = match &self.param {
                Some(Param::Space(space)) => Some(space),
                _ => None,
            };
            let command = self.command.iter().map(|text| ("the command", text.as_str()));
            let cwd = self.cwd.iter().map(|text| ("the working directory", text.as_str()));
            let checked = session.check(space, command.chain(cwd));
            checked.map_err(|source| SubmitError::BadSession { step: step(), source })?;
        }
        if self.command.first().is_none_or(String::is_empty) {
            return Err(SubmitError::NoCommand(step()));
        }
        if self.command.iter().any(|arg| arg.contains('\0')) {
            return Err(SubmitError::Nul { step: step(), what: "the command" });
        }
        let lists: Vec<&Vec<String>> = match &self.param {
            Some(Param::Values(values)) => vec![values],
            Some(Param::Space(space)) => space.params.iter().filter_map(|p| p.values.list()).collect(),
            Some(Param::Range(_)) | None => Vec::new(),
        };
        for value in lists.into_iter().flatten() {
            if value.contains('\0') {
                return Err(SubmitError::Nul { step: step(), what: "a value" });
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(SubmitError::LongValue { step: step(), bytes: value.len() });
            }
        }
        for (key, value) in &self.env {
            if key.is_empty() || key.contains('=') {
                return Err(SubmitError::BadVariable { step: step(), name: key.clone() });
            }
            if key.contains('\0') || value.contains('\0') {
                return Err(SubmitError::Nul { step: step(), what: "the environment" });
            }
        }
        self.check_place(name, session)?;
        if self.tags.iter().any(|t| t.is_empty() || t.starts_with('='))
            || self.workers.iter().any(String::is_empty)
        {
            return Err(SubmitError::EmptyTag(step()));
        }
        if self.tags.iter().any(|tag| Need::parse(tag).key == EXECUTOR) {
            return Err(SubmitError::OtherSystem(step()));
        }
        if self.limits.iter().any(String::is_empty) {
            return Err(SubmitError::EmptyName { step: step(), what: "a limit" });
        }
        if self.caches.contains_key("") {
            return Err(SubmitError::EmptyName { step: step(), what: "a cache" });
        }
        if self.deadline_ms == Some(0) {
            return Err(SubmitError::NoDeadline(step()));
        }
        let asked = self.jobserver.filter(|_| !self.leaves_jobserver_to_queue());
        if self.cpus_auto && asked.and_then(JobserverRequest::form).is_some() {
            return Err(SubmitError::LearnsAndShares(step()));
        }
        Ok(())
    }
}

impl StepRequest {
    /// Checks where its tasks run.
    fn check_place(&self, name: &str, session: Option<&Session>) -> Result<(), SubmitError> {
        let (step, cwd) = (name.to_owned(), self.cwd.as_deref());
        if let Some(files) = &self.files {
            let checked = files.check(cwd, session.is_some(), self.nodes.unwrap_or(1));
            return checked.map_err(|source| SubmitError::BadFiles { step, source });
        }
        let is_bad = |cwd: &&str| {
            let from_session = session.is_some() && cwd.starts_with(SESSION_DIR);
            (!cwd.starts_with('/') && !from_session) || cwd.contains('\0')
        };
        match cwd.filter(is_bad) {
            Some(cwd) => Err(SubmitError::RelativeCwd { step, cwd: cwd.to_owned() }),
            None => Ok(()),
        }
    }
}

/// The values of a step's tasks for its body, and the number of tasks.
fn params_of(param: Option<Param>, step: &str) -> Result<(Params, u128), SubmitError> {
    Ok(match param {
        None => (Params::None, 1),
        Some(Param::Values(values)) => {
            let tasks = values.len();
            (Params::Values(values), tasks as u128)
        }
        Some(Param::Range(range)) => {
            let tasks = range.count().ok_or_else(|| SubmitError::BadRange {
                step: step.to_owned(),
                start: range.start,
                end: range.end,
                by: range.step,
            })?;
            (Params::Range { start: range.start, step: range.step }, tasks)
        }
        Some(Param::Space(space)) => {
            let tasks = space.count();
            let tasks = tasks.map_err(|source| SubmitError::BadSpace { step: step.to_owned(), source })?;
            (Params::Space(space), tasks)
        }
    })
}

impl Resources {
    /// The core's amounts; `None` if `cpus` is not a number from 0 to 40000000.
    pub fn to_core(&self) -> Option<windlass_core::Resources> {
        if !self.cpus.is_finite() || !(0.0..=CPUS_MAX).contains(&self.cpus) {
            return None;
        }
        Some(windlass_core::Resources {
            cpu: (self.cpus * 100.0).round() as u32,
            memory: self.memory,
            gpus: self.gpus,
            gpu_memory: self.gpu_memory,
            custom: self.custom.clone(),
        })
    }

    /// Amounts from the core's.
    pub fn from_core(from: &windlass_core::Resources) -> Self {
        Resources {
            cpus: f64::from(from.cpu) / 100.0,
            memory: from.memory,
            gpus: from.gpus,
            gpu_memory: from.gpu_memory,
            custom: from.custom.clone(),
        }
    }
}
