"""What servers answer, as typed values. A field that is None is unknown, never 0.

Servers add fields. Those that have no name here are in `raw`, the JSON as it came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from .fields import Model, field_of, raw_field
from .spec import Depends, OnEnd, Resources

Json = Dict[str, Any]

JOB_ENDS = frozenset({"succeeded", "failed", "canceled"})
"""States of a job in which no task of it runs or will start."""
TASK_ENDS = frozenset({"succeeded", "failed", "canceled", "skipped"})
"""States of a task in which it runs no more."""


@dataclass(frozen=True)
class Counts(Model):
    """The number of tasks in each state."""

    total: int = 0
    waiting: int = 0
    ready: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        """Tasks that have ended or will never start."""
        return self.succeeded + self.failed + self.canceled + self.skipped


@dataclass(frozen=True)
class JobReason(Model):
    """How the first failed task of a failed job did, or why the first waiting task of another waits."""

    word: str
    """The cause or the reason in one word, for programs."""
    message: str


@dataclass(frozen=True)
class Step(Model):
    """A step of a job."""

    name: str
    first_task: int
    """The index of its first task in the job."""
    tasks: int
    """The number of its tasks."""
    resources: Resources
    """The amounts that each task holds."""
    retries: int
    command: Tuple[str, ...] = ()
    """Only if one job was asked for, by a user who may read it."""
    cwd: Optional[str] = None
    """As the command."""
    depends: Tuple[Depends, ...] = ()
    with_: Optional[str] = field_of("with", None)
    """The step with which it starts."""
    tags: Tuple[str, ...] = ()
    workers: Tuple[str, ...] = ()
    """The only workers that may run it; none is any."""
    limits: Tuple[str, ...] = ()
    time_limit_ms: Optional[int] = None
    max_running: Optional[int] = None
    nodes: Optional[int] = None
    """The number of tasks in a row that start together; None is one by one."""
    kind: Optional[str] = None
    network_bound: bool = False
    prefer_local: bool = False
    fetches: bool = False
    prefers: Tuple[str, ...] = ()
    """Workers that its tasks wait for a while before they run elsewhere."""
    caches: Mapping[str, Optional[int]] = field(default_factory=dict)
    """The keys of caches that its tasks read, each with its bytes; None is unknown."""
    deadline_ms: Optional[int] = None
    """How long a ready task should wait at most."""
    cpus_auto: bool = False
    cpus_max: Optional[float] = None
    jobserver: Optional[str] = None
    """`auto`, `fifo` or `pipes`; None of a step whose tasks have no jobserver."""
    umask: Optional[str] = None
    """In octal digits; as the command."""
    processes: Optional[int] = None
    """How many processes run its tasks in chunks of a fixed size."""
    shape: str = ""
    """The command without what differs from task to task."""


@dataclass(frozen=True)
class NoticeFailure(Model):
    """An address that could not be told of a job's end."""

    why: str
    """Why the last try failed. It names the host, never the whole address."""
    tries: int
    given_up: bool = False
    """It is not tried any more."""


@dataclass(frozen=True)
class Job(Model):
    """A job with its progress."""

    id: int
    name: str
    state: str
    """`pending`, `running`, `held`, `succeeded`, `failed` or `canceled`."""
    queue: str
    user: str
    priority: int
    counts: Counts
    created_ms: int
    ended_ms: Optional[int] = None
    expected_end_ms: Optional[int] = None
    """An estimate from the run times so far; None where nothing runs, or too little is known."""
    stopped: Optional[str] = None
    """Why no further task starts; None if the job was not stopped."""
    after: Tuple[int, ...] = ()
    """Jobs that must succeed first."""
    after_any: Tuple[int, ...] = ()
    """Jobs that must end first, whatever way."""
    after_not_ok: Tuple[int, ...] = ()
    """Jobs that must fail or be cancelled first."""
    after_tasks: Optional[int] = None
    """The job after whose tasks its own come, number by number."""
    max_running: Optional[int] = None
    """How many of its tasks may run at a time; None is any number."""
    on_end: Tuple[OnEnd, ...] = ()
    """Addresses that are told when it has ended."""
    notice_failures: Tuple[NoticeFailure, ...] = ()
    """Addresses that could not be told so far. Only if one job was asked for."""
    parent: Optional[str] = None
    """The task that submitted it."""
    reason: Optional[JobReason] = None
    """Why it failed or waits; None of a job that does neither, and in lists unless it is asked for."""
    steps: Tuple[Step, ...] = ()
    raw: Json = raw_field()

    @property
    def has_ended(self) -> bool:
        return self.state in JOB_ENDS

    @property
    def has_succeeded(self) -> bool:
        return self.state == "succeeded"


@dataclass(frozen=True)
class Attempt(Model):
    """One attempt to run a task."""

    attempt: int = 0
    """The attempt's number, from 1; 0 if the task was never booked."""
    worker: Optional[str] = None
    booked_ms: Optional[int] = None
    started_ms: Optional[int] = None
    finished_ms: Optional[int] = None
    end: Optional[str] = None
    """How it ended: `exited`, `signal`, `time_limit`, `oom`, `canceled`, `recalled`, `not_started`, `lost` or
    `outputs_lost`."""
    exit_code: Optional[int] = None
    message: Optional[str] = None
    """Why it could not be started or its outputs not be kept, or the task's own message about its failure."""
    cpu_ms: Optional[int] = None
    peak_memory_bytes: Optional[int] = field_of("peak_memory", None)
    out_bytes: int = 0
    err_bytes: int = 0
    late: bool = False
    """True if the result was refused, because the attempt was not the booked one any more."""


@dataclass(frozen=True)
class Failure(Model):
    """How a task failed in its last attempt."""

    cause: str
    """One word for programs: `directory`, `program`, `user`, `not_started`, `exit_code`, `signal`, `out_of_memory`,
    `time_limit`, `lost`, `outputs_lost`, `canceled`, `dependency` or `other`."""
    summary: str
    """The cause as a sentence, such as "exit code 4"."""
    message: Optional[str] = None
    """What the task itself said of its failure."""
    advice: Optional[str] = None
    """What to do about it; None where only the output can tell."""
    stderr: Tuple[str, ...] = ()
    """The last lines of standard error; none in lists, and while the worker is away."""


@dataclass(frozen=True)
class FailedTask(Model):
    """A failed task."""

    task: str
    """`JOB.INDEX`."""
    step: str
    attempt: int
    """The number of the attempt that failed last, from 1."""
    failure: Failure = field_of("")
    value: Optional[str] = None
    worker: Optional[str] = None
    finished_ms: Optional[int] = None


@dataclass(frozen=True)
class FailureGroup(Model):
    """Failed tasks of one job with the same cause."""

    cause: str
    """As in `Failure`."""
    summary: str
    """The cause as a sentence."""
    tasks: int
    """The number of these tasks."""
    task_examples: Tuple[str, ...]
    """Ids of the first of them."""
    workers: int
    """The number of workers on which they failed."""
    first: FailedTask
    """The first of them, with the last lines of its standard error."""
    worker_examples: Tuple[str, ...] = ()
    """Names of some of these workers."""


@dataclass(frozen=True)
class Failures(Model):
    """How the tasks of a job failed."""

    job: int
    failed: int
    """The number of its failed tasks."""
    groups: Tuple[FailureGroup, ...]
    """By cause, the most frequent one first."""
    other_tasks: int = 0
    """Failed tasks with causes that are not among the groups."""
    not_looked_at: int = 0
    """Failed tasks beyond those that one request looks at."""
    stopped: Optional[str] = None
    """Why no further task starts; None if the job was not stopped."""


@dataclass(frozen=True)
class JobserverUse(Model):
    """How many processes a running task with a jobserver may run at a time, and how many it runs."""

    share: int
    used: int
    wants: bool
    """It takes all that it is given."""
    held_back: Optional[str] = None
    """Why its worker gives it no more: `memory` or `pressure`."""


@dataclass(frozen=True)
class Task(Model):
    """A task of a job, with its last attempt."""

    id: str
    """`JOB.INDEX`."""
    job: int
    index: int
    step: str
    state: str
    """`waiting`, `ready`, `booked`, `running`, `succeeded`, `failed`, `canceled` or `skipped`."""
    last: Attempt = field_of("")
    """The last attempt."""
    value: Optional[str] = None
    progress: Optional[float] = None
    """The progress that it reports, in percent; only while it is booked or runs."""
    status: Optional[str] = None
    jobserver: Optional[JobserverUse] = None
    """Only while it runs, and of a task with a jobserver."""
    expected_end_ms: Optional[int] = None
    history: Tuple[Attempt, ...] = ()
    """Earlier attempts; only if one task was asked for."""
    failure: Optional[Failure] = None
    """How the last attempt failed; None of a task that did not."""
    raw: Json = raw_field()

    @property
    def has_ended(self) -> bool:
        return self.state in TASK_ENDS

    @property
    def exit_code(self) -> Optional[int]:
        return self.last.exit_code

    def describe_end(self) -> str:
        """How it ended, in words."""
        last = self.last
        if self.state in ("canceled", "skipped"):
            return "was cancelled" if self.state == "canceled" else "was skipped, because a dependency failed"
        if last.end == "exited":
            return f"ended with exit code {last.exit_code}"
        if last.end == "signal":
            return f"was ended by signal {(last.exit_code or 128) - 128}"
        words = {
            "time_limit": "exceeded its time limit",
            "oom": "ran out of memory",
            "not_started": "could not be started",
            "lost": "was lost with its worker",
            "outputs_lost": "succeeded, but its outputs could not be kept",
        }
        said = words.get(last.end or "", f"is {self.state}")
        return f"{said}: {last.message}" if last.message else said


@dataclass(frozen=True)
class Submitted(Model):
    """The answer to a submission."""

    job: int
    existing: bool
    """True if the job was submitted before with the same key."""
    unplaceable: Tuple[Json, ...] = ()
    """Steps that no worker that the farm has now could run, with the reasons."""
    queue_created: bool = False
    """True if the job made its queue, and that is not the one of the user's name, `vip` or `idle`."""


def _steps_of_changes(changes: Any) -> Tuple[Tuple[str, ...], ...]:
    return tuple(tuple(change["steps"]) for change in changes)


@dataclass(frozen=True)
class JobserverWhy(JobserverUse):
    """What a running task with a jobserver has of its worker, and who has the rest."""

    most: int = 0
    """Processes that it may run at a time at most."""
    message: str = ""
    """What it runs, and why it runs no more."""
    helps: Tuple[str, ...] = ()
    """What would let it run more."""


@dataclass(frozen=True)
class Why(Model):
    """Why a task is where it is."""

    task: str
    state: str
    reason: str
    """The reason in one word, for programs."""
    message: str
    """The reason as a sentence."""
    open_workers: int
    changes: Tuple[Tuple[str, ...], ...] = field_of("changes", (), _steps_of_changes)
    """What would make it run, the smallest change first. All steps of one change are needed."""
    failure: Optional[FailedTask] = None
    """How it failed; None of a task that did not."""
    jobserver: Optional[JobserverWhy] = None
    """Only of a running task with a jobserver."""
    raw: Json = raw_field()


@dataclass(frozen=True)
class StartsOn(Model):
    """Tasks that would start on a worker."""

    worker: str
    tasks: int
    """The number of these tasks."""


@dataclass(frozen=True)
class DryRunStep(Model):
    """What would become of a step."""

    step: Step
    """The step after defaults."""
    waiting: int
    """Tasks that would wait."""
    starts: Tuple[StartsOn, ...] = ()
    """Where tasks would start at once."""
    why: Optional[Why] = None
    """Why the first of the waiting ones would wait."""


@dataclass(frozen=True)
class DryRun(Model):
    """What a submission would do now. Nothing of it was done."""

    name: str
    queue: str
    user: str
    priority: int
    steps: Tuple[DryRunStep, ...]
    existing: Optional[int] = None
    """The job that was submitted before with the same key: nothing would be submitted."""
    queue_created: bool = False
    """As in `Submitted`."""
    unplaceable: Tuple[Json, ...] = ()
    """As in `Submitted`."""


@dataclass(frozen=True)
class MissingBlobs(Model):
    """The blobs that must be uploaded."""

    missing: Tuple[str, ...] = ()


@dataclass(frozen=True)
class StepFilesOf(Model):
    """The files of one step."""

    step: str
    root: Optional[str] = None
    """The tree of inputs, by the digest of its top directory."""
    outputs_of: Tuple[str, ...] = ()
    """Steps whose outputs its tasks find."""
    outputs: Tuple[str, ...] = ()
    """Globs of what is kept."""
    stdin: Optional[str] = None
    """The standard input of its tasks, by its digest."""
    input_files: Optional[int] = None
    """Files of the tree of inputs; None where it is gone."""
    input_bytes: Optional[int] = None


@dataclass(frozen=True)
class TaskOutputs(Model):
    """What was kept of the directory of a task."""

    index: int
    """The task's place in the job."""
    attempt: int
    root: str
    """The tree, by the digest of its top directory."""
    files: int
    bytes: int
    skipped: Tuple[str, ...] = ()
    """What was not kept, each with the reason."""


@dataclass(frozen=True)
class JobFiles(Model):
    """The files of a job, with the outputs of some of its tasks."""

    steps: Tuple[StepFilesOf, ...] = ()
    outputs: Tuple[TaskOutputs, ...] = ()
    next: Optional[int] = None
    """The index of the task with which the next page begins; None at the end."""


@dataclass(frozen=True)
class Version(Model):
    """The server's version, and the caller as the server knows it."""

    version: str
    pid: int
    user: Optional[str] = None
    """The user of the token; None if the server asks for none."""
    role: Optional[str] = None
    raw: Json = raw_field()


@dataclass(frozen=True)
class JobEvent(Model):
    """A job was submitted, changed or ended."""

    job: int
    state: str
    counts: Counts


@dataclass(frozen=True)
class TaskEvent(Model):
    """A change of one task."""

    job: int
    index: int
    state: str
    attempt: int
    exit_code: Optional[int] = None
    out_bytes: int = 0
    err_bytes: int = 0

    @classmethod
    def of_task(cls, task: Task) -> TaskEvent:
        last = task.last
        return cls(
            task.job, task.index, task.state, last.attempt, last.exit_code, last.out_bytes, last.err_bytes
        )

    @property
    def id(self) -> str:
        """The task's id, `JOB.INDEX`."""
        return f"{self.job}.{self.index}"

    @property
    def has_ended(self) -> bool:
        return self.state in TASK_ENDS


@dataclass(frozen=True)
class TasksEvent(Model):
    """Changes of one job's tasks that became durable together."""

    job: int
    counts: Counts
    tasks: Tuple[TaskEvent, ...]


@dataclass(frozen=True)
class WorkerEvent(Model):
    """A worker connected, disconnected, or changed its state."""

    worker: str
    what: str


@dataclass(frozen=True)
class Lagged:
    """Some events were missed: read the state again."""


Event = Union[JobEvent, TasksEvent, WorkerEvent, Lagged]


def event_from_json(data: Any) -> Optional[Event]:
    """The event; None if a newer server tells of something that this release does not know."""
    if data == "lagged":
        return Lagged()
    if not isinstance(data, dict):
        return None
    for kind, what in data.items():
        if kind == "job":
            return JobEvent.from_json(what)
        if kind == "tasks":
            tasks = [{"job": what["job"], **one} for one in what["tasks"]]
            return TasksEvent.from_json({**what, "tasks": tasks})
        if kind == "worker":
            return WorkerEvent.from_json(what)
    return None


@dataclass(frozen=True)
class TaskResult:
    """A task that has ended, with its output."""

    task: Task
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text, without the newline at its end."""
        return self.stdout.decode(errors="replace").rstrip("\n")


@dataclass(frozen=True)
class Page(Model):
    """A page of a list, as it came."""

    items: List[Json]
    next: Optional[str] = None