"""What servers answer, as typed values. A field that is None is unknown, never 0.

Servers add fields. Those that have no name here are in `raw`, the JSON as it came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

Json = Dict[str, Any]

JOB_ENDS = frozenset({"succeeded", "failed", "canceled"})
"""States of a job in which no task of it runs or will start."""
TASK_ENDS = frozenset({"succeeded", "failed", "canceled", "skipped"})
"""States of a task in which it runs no more."""


@dataclass(frozen=True)
class Counts:
    """The number of tasks in each state."""

    total: int = 0
    waiting: int = 0
    ready: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    skipped: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counts:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    @property
    def ended(self) -> int:
        """Tasks that have ended or will never start."""
        return self.succeeded + self.failed + self.canceled + self.skipped


@dataclass(frozen=True)
class Job:
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
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Job:
        return cls(
            id=data["id"],
            name=data["name"],
            state=data["state"],
            queue=data["queue"],
            user=data["user"],
            priority=data["priority"],
            counts=Counts.from_json(data["counts"]),
            created_ms=data["created_ms"],
            ended_ms=data.get("ended_ms"),
            expected_end_ms=data.get("expected_end_ms"),
            stopped=data.get("stopped"),
            raw=data,
        )

    @property
    def has_ended(self) -> bool:
        return self.state in JOB_ENDS

    @property
    def has_succeeded(self) -> bool:
        return self.state == "succeeded"


@dataclass(frozen=True)
class Attempt:
    """One attempt to run a task."""

    attempt: int
    """The attempt's number, from 1; 0 if the task was never booked."""
    worker: Optional[str] = None
    booked_ms: Optional[int] = None
    started_ms: Optional[int] = None
    finished_ms: Optional[int] = None
    end: Optional[str] = None
    """How it ended: `exited`, `signal`, `time_limit`, `oom`, `canceled`, `recalled`, `not_started` or `lost`."""
    exit_code: Optional[int] = None
    message: Optional[str] = None
    """Why it could not be started, or the task's own message about its failure."""
    cpu_ms: Optional[int] = None
    peak_memory_bytes: Optional[int] = None
    out_bytes: int = 0
    err_bytes: int = 0

    @classmethod
    def from_json(cls, data: Json) -> Attempt:
        return cls(
            attempt=data.get("attempt", 0),
            worker=data.get("worker"),
            booked_ms=data.get("booked_ms"),
            started_ms=data.get("started_ms"),
            finished_ms=data.get("finished_ms"),
            end=data.get("end"),
            exit_code=data.get("exit_code"),
            message=data.get("message"),
            cpu_ms=data.get("cpu_ms"),
            peak_memory_bytes=data.get("peak_memory"),
            out_bytes=data.get("out_bytes", 0),
            err_bytes=data.get("err_bytes", 0),
        )


@dataclass(frozen=True)
class Task:
    """A task of a job, with its last attempt."""

    id: str
    """`JOB.INDEX`."""
    job: int
    index: int
    step: str
    state: str
    """`waiting`, `ready`, `booked`, `running`, `succeeded`, `failed`, `canceled` or `skipped`."""
    last: Attempt
    """The last attempt."""
    value: Optional[str] = None
    progress: Optional[float] = None
    """The progress that it reports, in percent; only while it runs."""
    status: Optional[str] = None
    expected_end_ms: Optional[int] = None
    history: Tuple[Attempt, ...] = ()
    """Earlier attempts; only if one task was asked for."""
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Task:
        return cls(
            id=data["id"],
            job=data["job"],
            index=data["index"],
            step=data["step"],
            state=data["state"],
            last=Attempt.from_json(data),
            value=data.get("value"),
            progress=data.get("progress"),
            status=data.get("status"),
            expected_end_ms=data.get("expected_end_ms"),
            history=tuple(Attempt.from_json(one) for one in data.get("history", ())),
            raw=data,
        )

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
            "oom": "exceeded its memory limit",
            "not_started": "could not be started",
            "lost": "was lost with its worker",
        }
        said = words.get(last.end or "", f"is {self.state}")
        return f"{said}: {last.message}" if last.message else said


@dataclass(frozen=True)
class Submitted:
    """The answer to a submission."""

    job: int
    existing: bool
    """True if the job was submitted before with the same key."""
    unplaceable: Tuple[Json, ...] = ()
    """Steps that no worker that the farm has now could run, with the reasons."""

    @classmethod
    def from_json(cls, data: Json) -> Submitted:
        return cls(data["job"], data["existing"], tuple(data.get("unplaceable", ())))


@dataclass(frozen=True)
class Why:
    """Why a task is where it is."""

    task: str
    state: str
    reason: str
    """The reason in one word, for programs."""
    message: str
    """The reason as a sentence."""
    open_workers: int
    changes: Tuple[Tuple[str, ...], ...] = ()
    """What would make it run, the smallest change first. All steps of one change are needed."""
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Why:
        changes = tuple(tuple(change["steps"]) for change in data.get("changes", ()))
        return cls(
            data["task"], data["state"], data["reason"], data["message"], data["open_workers"], changes, data
        )


@dataclass(frozen=True)
class Version:
    """The server's version, and the caller as the server knows it."""

    version: str
    pid: int
    user: Optional[str] = None
    """The user of the token; None if the server asks for none."""
    role: Optional[str] = None
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Version:
        return cls(data["version"], data["pid"], data.get("user"), data.get("role"), data)


@dataclass(frozen=True)
class JobEvent:
    """A job was submitted, changed or ended."""

    job: int
    state: str
    counts: Counts


@dataclass(frozen=True)
class TaskEvent:
    """A change of one task."""

    job: int
    index: int
    state: str
    attempt: int
    exit_code: Optional[int] = None
    out_bytes: int = 0
    err_bytes: int = 0

    @classmethod
    def from_json(cls, job: int, data: Json) -> TaskEvent:
        return cls(
            job,
            data["index"],
            data["state"],
            data["attempt"],
            data.get("exit_code"),
            data.get("out_bytes", 0),
            data.get("err_bytes", 0),
        )

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
class TasksEvent:
    """Changes of one job's tasks that became durable together."""

    job: int
    counts: Counts
    tasks: Tuple[TaskEvent, ...]


@dataclass(frozen=True)
class WorkerEvent:
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
            return JobEvent(what["job"], what["state"], Counts.from_json(what["counts"]))
        if kind == "tasks":
            job = what["job"]
            tasks = tuple(TaskEvent.from_json(job, one) for one in what["tasks"])
            return TasksEvent(job, Counts.from_json(what["counts"]), tasks)
        if kind == "worker":
            return WorkerEvent(what["worker"], what["what"])
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
class Page:
    """A page of a list, as it came."""

    items: List[Json]
    next: Optional[str]

    @classmethod
    def from_json(cls, data: Json) -> Page:
        return cls(data["items"], data.get("next"))
