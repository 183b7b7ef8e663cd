"""The requests of this client, for whichever server answers. Nothing here is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Union
from urllib.parse import quote, urlencode

from .models import Job, Submitted, Task

GREETING_S = 5.0
"""How long a server may take for an answer for which it need not do anything, where there is another one to ask."""
ANSWER_S = 10.0
"""The same for an answer for which it looks something up, or makes a change durable."""
BODY_BYTES_PER_S = 128 << 10
"""Bytes of a body for which a server may take a second longer."""
PAGE = 1000
"""Entries that a page of a list is asked for: the most that a server gives."""
REASONS_PAGE = 50
"""The same for a list of jobs with their reasons: a server says those of no more."""

JobRef = Union[int, str, Job, Submitted]
"""A job: its number, or what a submission or a list returned."""
TaskRef = Union[str, Task]
"""A task: its id, such as "12.3", or what a list returned."""
Query = Mapping[str, Union[str, int, bool, None]]


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    doing: str
    """The purpose, for errors: "submit a job"."""
    body: Optional[bytes] = None
    is_repeatable: bool = True
    """True if it does no harm to make it twice."""
    patience_s: Optional[float] = ANSWER_S
    """How long one of several servers may take; None is as long as the connection lasts."""
    look_s: Optional[float] = None
    """After this time the client looks away, and asks no other server; None is never."""
    last_event_id: Optional[str] = None
    """The last event that the client got, for a server that resumes streams."""
    content_type: str = "application/json"
    """What the body is."""
    file: Optional[str] = None
    """The path of a file that is the body."""
    file_bytes: int = 0

    def body_bytes(self) -> int:
        """The length of the body."""
        return len(self.body or b"") + self.file_bytes

    def bound_s(self) -> Optional[float]:
        if self.patience_s is None:
            return None
        return self.patience_s + self.body_bytes() / BODY_BYTES_PER_S


def job_id(job: JobRef) -> int:
    """The number of a job."""
    if isinstance(job, Job):
        return job.id
    if isinstance(job, Submitted):
        return job.job
    return int(job)


def task_id(task: TaskRef) -> str:
    """The id of a task. A number with a point would be read as a fraction, so it must be text."""
    text = task.id if isinstance(task, Task) else task
    job, point, index = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not (point and job.isdigit() and index.isdigit()):
        raise ValueError(f"{text!r} is not the id of a task: write '12.3', as text")
    return text


def get(path: str, doing: str, query: Optional[Query] = None) -> Call:
    return Call("GET", with_query(path, query), doing)


def post(path: str, doing: str, body: Optional[Mapping[str, Any]] = None, is_repeatable: bool = True) -> Call:
    data = None if body is None else json.dumps(body).encode()
    return Call("POST", path, doing, body=data, is_repeatable=is_repeatable)


def with_query(path: str, query: Optional[Query]) -> str:
    """The path with what is given of the query."""
    words = {
        name: {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else str(value)
        for name, value in (query or {}).items()
        if value is not None and value is not False
    }
    return f"{path}?{urlencode(words)}" if words else path


def segment(name: str) -> str:
    """A name that users chose, as one part of a path."""
    return quote(name, safe="")


def version() -> Call:
    return Call("GET", "/api/v1/version", "reach the server", patience_s=GREETING_S)


def submit(spec: Mapping[str, Any]) -> Call:
    """With a key a job is submitted once, however often the request is made."""
    return post("/api/v1/jobs", "submit a job", spec, is_repeatable=bool(spec.get("key")))


def wait(job: int, lend: Optional[str], look_s: float) -> Call:
    path = with_query(f"/api/v1/jobs/{job}/wait", {"lend": lend})
    return Call("GET", path, f"wait for job {job}", patience_s=None, look_s=look_s)


def dry_run(spec: Mapping[str, Any]) -> Call:
    return post("/api/v1/jobs?dry_run=true", "submit a job", spec)


def jobs_query(
    state: Optional[str], user: Optional[str], queue: Optional[str], name: Optional[str], reasons: bool
) -> Query:
    limit = REASONS_PAGE if reasons else PAGE
    return {"state": state, "user": user, "queue": queue, "name": name, "reasons": reasons, "limit": limit}


def act(job: int, verb: str, tasks: Optional[str] = None) -> Call:
    # A second retry would run what has failed again since the first, or find nothing to retry.
    is_repeatable = verb != "retry"
    if tasks is None:
        return post(f"/api/v1/jobs/{job}/{verb}", f"{verb} job {job}", is_repeatable=is_repeatable)
    path, doing = f"/api/v1/jobs/{job}/tasks/{verb}", f"{verb} tasks {tasks} of job {job}"
    return post(path, doing, {"tasks": tasks}, is_repeatable)


def set_priority(job: int, priority: int) -> Call:
    return post(f"/api/v1/jobs/{job}/priority", f"set the priority of job {job}", {"priority": priority})


def log(task: str, query: Query) -> Call:
    return get(f"/api/v1/tasks/{task}/log", f"read the output of task {task}", query)


def events(job: Optional[int], brief: bool, last_event_id: Optional[str]) -> Call:
    path = with_query("/api/v1/events", {"job": job, "brief": brief})
    return Call("GET", path, "listen to events", last_event_id=last_event_id)


def upload(path: str, body: bytes, method: str) -> Call:
    """One blob, or several together."""
    whole = f"/api/v1/files/{path}"
    return Call(method, whole, "upload files", body=body, content_type="application/octet-stream")


def upload_file(digest: str, file: str, size: int) -> Call:
    """A large blob, which is read while it is sent."""
    path, octets = f"/api/v1/files/blobs/{digest}", "application/octet-stream"
    return Call("PUT", path, "upload files", content_type=octets, file=file, file_bytes=size)


def job_files(job: int, start: int) -> Call:
    """A page of what was kept of tasks, from the task with this index on."""
    return get(f"/api/v1/jobs/{job}/files", f"list the files of job {job}", {"from": start})


def outputs_archive(job: int, index: int) -> Call:
    query: Query = {"tasks": index, "flat": True}
    return get(f"/api/v1/jobs/{job}/files/tar", f"fetch the outputs of task {job}.{index}", query)
