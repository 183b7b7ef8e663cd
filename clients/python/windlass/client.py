"""The client with blocking calls. Threads may share one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, Sequence, TypeVar, Union

from . import calls
from .answer import EVENTS_SILENT_S, EventParser, Place, parse
from .base import STDERR_BYTES, WAIT_LOOK_S, ClientBase, Story, failure, list_call, log_query, written_bytes
from .calls import Call, JobRef, TaskRef, job_id, task_id
from .errors import ConnectionLost, LookedAway, Refused, Silent, WaitTimeout, WindlassError
from .models import DryRun, Event, Failures, Job, Json, Lagged, Page, Submitted, Task, TaskEvent, TaskResult, Version, Why
from .own import start_server
from .servers import Circle, Outage
from .spec import JobSpec, TaskOptions
from .transport import Response, Transport

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Client(ClientBase):
    """A client of a Windlass server, or of several of one farm."""

    def __init__(
        self,
        server: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca: Optional[str] = None,
        cert: Optional[str] = None,
        key: Optional[str] = None,
    ) -> None:
        super().__init__(server, token=token, token_file=token_file, ca=ca, cert=cert, key=key)
        self._transport = Transport(is_one=not self._servers.are_several)

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Requests.

    def _open(self, call: Call) -> Response:
        """An answer that is read as it comes."""
        return self._ask(call, lambda response: response)

    def _json(self, call: Call) -> Any:
        return self._ask(call, lambda response: parse(response.read_and_close(), response.address))

    def _ask(self, call: Call, read: Callable[[Response], T]) -> T:
        """Asks one server after the other, once around. The user's own server is started if it does not run."""
        try:
            self._check_own()
            return self._circle(call, read)
        except WindlassError as error:
            if not self._may_start(error, call):
                raise
        try:
            start_server(self._env)
        except WindlassError as error:
            error.doing = call.doing
            raise
        return self._circle(call, read)

    def _circle(self, call: Call, read: Callable[[Response], T]) -> T:
        circle = Circle(self._servers, call)
        for server in circle:
            try:
                answer = read(self._transport.open(server, call, circle.bound_s()))
            except WindlassError as error:
                circle.failed(error)
            else:
                circle.answered()
                return answer
        raise circle.none()

    def _all(self, path: str, doing: str, query: Optional[calls.Query] = None) -> Iterator[Json]:
        """All entries of a list, page by page."""
        cursor: Optional[str] = None
        while True:
            page = Page.from_json(self._json(list_call(path, doing, cursor, query or {})))
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _pause(self, outage: Outage, error: WindlassError, deadline_s: Optional[float] = None) -> None:
        """Waits a moment after a failure; of several servers the next one is asked first."""
        pause_s = outage.pause_s(error)
        self._servers.pass_over(error)
        if deadline_s is not None:
            pause_s = max(0.0, min(pause_s, deadline_s - time.monotonic()))
        time.sleep(pause_s)

    def _look(self, outage: Outage) -> None:
        """Looks, after a long wait, whether the server lives. Of several, a silent one is passed over."""
        outage.calm()
        if self._servers.are_several:
            try:
                self.version()
            except WindlassError as error:
                self._pause(outage, error)

    def version(self) -> Version:
        """The server's version, and who the caller is there."""
        return Version.from_json(self._json(calls.version()))

    # Submissions.

    def submit(
        self,
        command: Sequence[str],
        *,
        values: Optional[Iterable[object]] = None,
        array: Union[range, str, None] = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Submits a command, and returns when the job is durable.

        `values` makes one task for each value, `array` one for each number: `range(1, 101)` or "1-100". `{}` in the
        command stands for the value.
        """
        return self.submit_spec(self._spec(command, values, array, options))

    def submit_spec(self, spec: JobSpec) -> Submitted:
        """Submits a job as the HTTP interface takes it. Without a key it gets a fresh one, and without a user yours."""
        call, outage, tries = calls.submit(self._whole(spec)), Outage(), 0
        while True:
            try:
                return Submitted.from_json(self._json(call))
            except WindlassError as error:
                tries += 1
                if not self._submits_again(error, tries):
                    raise
                self._pause(outage, error)

    def dry_run(
        self,
        command: Sequence[str],
        *,
        values: Optional[Iterable[object]] = None,
        array: Union[range, str, None] = None,
        **options: Unpack[TaskOptions],
    ) -> DryRun:
        """Says what the submission of a command would do now: what would be accepted, where it would run, and what it
        would wait for. Nothing is submitted."""
        return self.dry_run_spec(self._spec(command, values, array, options))

    def dry_run_spec(self, spec: JobSpec) -> DryRun:
        """The same of a job as the HTTP interface takes it."""
        return DryRun.from_json(self._json(calls.dry_run(self._whole(spec))))

    def _whole(self, spec: JobSpec) -> JobSpec:
        """The job with a key and a user."""
        if "user" not in spec and self._needs_user():
            self._learn_user(self.version())
        return self._complete(spec)

    def run(
        self, command: Sequence[str], *, timeout_s: Optional[float] = None, **options: Unpack[TaskOptions]
    ) -> TaskResult:
        """Runs a command, waits for it, and returns its output. Raises `JobFailed` if it fails. After `timeout_s` the
        job is cancelled."""
        return self.map(command, None, timeout_s=timeout_s, **options)[0]

    def map(
        self,
        command: Sequence[str],
        values: Optional[Iterable[object]],
        *,
        timeout_s: Optional[float] = None,
        **options: Unpack[TaskOptions],
    ) -> List[TaskResult]:
        """Runs a command for each value, waits for all of them, and returns their outputs in the order of the values.

        Raises `JobFailed` if one fails. After `timeout_s`, and if the caller is interrupted, the job is cancelled.
        """
        listed = None if values is None else list(values)
        if listed is not None and not listed:
            return []
        parent = self.parent_task()
        if parent is not None:
            options.setdefault("parent", parent)
        submitted = self.submit(command, values=listed, **options)
        try:
            job = self.wait(submitted, timeout_s)
        except BaseException:
            self._cancel_quietly(submitted.job)
            raise
        self.check(job)
        return [self.result(task) for task in self.tasks(job)]

    def _cancel_quietly(self, job: int) -> None:
        try:
            self.cancel(job)
        except WindlassError:
            # What interrupted the wait says more. Perhaps the job has just ended.
            pass

    def result(self, task: TaskRef) -> TaskResult:
        """A task with its whole output."""
        known = task if isinstance(task, Task) else self.task(task)
        outputs = [
            self.log(known, stream, attempt=known.last.attempt) if size and known.last.attempt else b""
            for stream, size in (("stdout", known.last.out_bytes), ("stderr", known.last.err_bytes))
        ]
        return TaskResult(known, outputs[0], outputs[1])

    # Waiting.

    def wait(self, job: JobRef, timeout_s: Optional[float] = None) -> Job:
        """The job once it has ended. Servers that restart or change places meanwhile are waited for.

        Raises `WaitTimeout` after `timeout_s`; the job goes on. If this process is itself a task of the same server, it
        lends its cpus to other tasks while it waits.
        """
        number, lend, outage = job_id(job), self.parent_task(), Outage()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            look_s = WAIT_LOOK_S if deadline_s is None else min(WAIT_LOOK_S, deadline_s - time.monotonic())
            if look_s <= 0:
                raise WaitTimeout(f"job {number} did not end within {timeout_s} s")
            try:
                return Job.from_json(self._json(calls.wait(number, lend, look_s)))
            except LookedAway:
                self._look(outage)
            except WindlassError as error:
                self._pause(outage, error, deadline_s)

    def check(self, job: Job) -> None:
        """Raises `JobFailed` if the job has not succeeded."""
        if job.has_succeeded:
            return
        task = next(self.tasks(job, state="failed"), None) if job.counts.failed else None
        stderr = b""
        if task is not None:
            try:
                stderr = self.log(task, "stderr", offset=-STDERR_BYTES)
            except Refused:
                # Its worker is away, or its output is another user's: the error is shown without it.
                pass
        raise failure(job, task, stderr)

    def as_completed(self, job: JobRef) -> Iterator[TaskEvent]:
        """The ends of the job's tasks, each once and as it comes, until the job has ended."""
        story, outage = Story(job_id(job)), Outage()
        while True:
            try:
                # The stream is opened before the state is read, so that no change is missed between the two.
                with EventStream(self, story.job) as stream:
                    known = self.job(story.job)
                    outage.calm()
                    yield from self._missed(known, story)
                    while not known.has_ended:
                        event = next(stream)
                        yield from story.ends_in(event)
                        if story.must_read(event):
                            known = self.job(story.job)
                            yield from self._missed(known, story)
                return
            except WindlassError as error:
                self._pause(outage, error)

    def _missed(self, job: Job, story: Story) -> Iterator[TaskEvent]:
        """The ends that no event told."""
        if story.misses_some(job):
            ended = self.tasks(job, state="succeeded,failed,canceled,skipped")
            yield from story.new(TaskEvent.of_task(task) for task in ended)

    def events(self, job: Optional[JobRef] = None, *, brief: bool = False) -> Events:
        """What happens from now on, of one job or of all. With `brief` single tasks are left out."""
        return Events(self, None if job is None else job_id(job), brief)

    # Jobs and tasks.

    def job(self, job: JobRef) -> Job:
        """A job as it is now."""
        number = job_id(job)
        return Job.from_json(self._json(calls.get(f"/api/v1/jobs/{number}", f"show job {number}")))

    def jobs(
        self,
        *,
        state: Optional[str] = None,
        user: Optional[str] = None,
        queue: Optional[str] = None,
        name: Optional[str] = None,
        reasons: bool = False,
    ) -> Iterator[Job]:
        """The jobs, newest first. `state` is one word or several separated by commas; `name` is a part of a name. With
        `reasons` the server says why they failed or wait."""
        query = calls.jobs_query(state, user, queue, name, reasons)
        return map(Job.from_json, self._all("/api/v1/jobs", "list the jobs", query))

    def tasks(self, job: JobRef, *, state: Optional[str] = None) -> Iterator[Task]:
        """The tasks of a job by their index."""
        number = job_id(job)
        path = f"/api/v1/jobs/{number}/tasks"
        return map(Task.from_json, self._all(path, f"list the tasks of job {number}", {"state": state}))

    def task(self, task: TaskRef) -> Task:
        """A task with its earlier attempts."""
        name = task_id(task)
        return Task.from_json(self._json(calls.get(f"/api/v1/tasks/{name}", f"show task {name}")))

    def why(self, task: TaskRef) -> Why:
        """Why a task is where it is, and what would make it run."""
        name = task_id(task)
        return Why.from_json(self._json(calls.get(f"/api/v1/tasks/{name}/why", f"ask why task {name} waits")))

    def failures(self, job: JobRef) -> Failures:
        """How the tasks of a job failed, by cause."""
        number = job_id(job)
        call = calls.get(f"/api/v1/jobs/{number}/failures", f"ask why tasks of job {number} failed")
        return Failures.from_json(self._json(call))

    def cancel(self, job: JobRef, tasks: Optional[str] = None) -> Job:
        """Kills the job's running tasks, and starts no more; or some of its tasks, such as "6" or "1,4-6"."""
        return self._act(job, "cancel", tasks)

    def retry(self, job: JobRef, tasks: Optional[str] = None) -> Job:
        """Runs the job's failed and cancelled tasks again; or some of them, such as "6" or "1,4-6"."""
        return self._act(job, "retry", tasks)

    def hold(self, job: JobRef) -> Job:
        """Starts no further task of the job; running tasks go on."""
        return self._act(job, "hold")

    def release(self, job: JobRef) -> Job:
        """Starts tasks of the job again after a hold."""
        return self._act(job, "release")

    def _act(self, job: JobRef, verb: str, tasks: Optional[str] = None) -> Job:
        return Job.from_json(self._json(calls.act(job_id(job), verb, tasks)))

    def set_priority(self, job: JobRef, priority: int) -> Job:
        """Gives the job another priority inside its queue; higher goes first."""
        return Job.from_json(self._json(calls.set_priority(job_id(job), priority)))

    def workers(self) -> Iterator[Json]:
        """The workers, as the HTTP interface tells them."""
        return self._all("/api/v1/workers", "list the workers")

    def limits(self) -> Iterator[Json]:
        """The limits, such as licences, as the HTTP interface tells them."""
        return self._all("/api/v1/limits", "list the limits")

    def queues(self) -> Iterator[Json]:
        """The queues, as the HTTP interface tells them."""
        return self._all("/api/v1/queues", "list the queues")

    # Output.

    def log(
        self,
        task: TaskRef,
        stream: str = "stdout",
        *,
        attempt: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> bytes:
        """What a task has written until now. A negative `offset` counts from the end."""
        call = calls.log(task_id(task), log_query(stream, attempt, offset))
        return self._ask(call, Response.read_and_close)

    def log_text(self, task: TaskRef, stream: str = "stdout", *, attempt: Optional[int] = None) -> str:
        """The same as text. Bytes that are not valid UTF-8 are replaced."""
        return self.log(task, stream, attempt=attempt).decode(errors="replace")

    def follow_log(
        self,
        task: TaskRef,
        stream: str = "stdout",
        *,
        attempt: Optional[int] = None,
        offset: int = 0,
    ) -> Iterator[bytes]:
        """What a task writes, as it comes, until the attempt ends.

        After a connection that broke it goes on at the byte where it was. The exception is an output over the server's
        `log_bytes_max`: where its middle is left out, the place of the next byte is not known exactly.
        """
        name, place, outage = task_id(task), Place(offset), Outage()
        known = self.task(name)
        # The attempt is chosen once: after a broken connection there may be another one.
        number = max(1, known.last.attempt) if attempt is None else attempt
        while True:
            try:
                is_over = written_bytes(known, number, stream) is not None
                call = calls.log(name, log_query(stream, number, place.offset, follow=True))
                with self._open(call) as response:
                    place.begin(response.header("windlass-log-offset"))
                    response.set_silence(WAIT_LOOK_S)
                    for part in response.parts():
                        outage.calm()
                        yield place.add(part)
                if is_over:
                    return
                # A server that stops ends the stream, too, and more may have been written since.
                known = self.task(name)
                written = written_bytes(known, number, stream)
                if written is not None and not 0 <= place.offset < written:
                    return
            except Silent:
                # A task may write nothing for long.
                self._look(outage)
            except WindlassError as error:
                self._pause(outage, error)


class Events(Iterator[Event]):
    """Events from the moment when this was made.

    After a connection that broke it goes on by itself. `Lagged` says that events were missed: read the state again. It
    ends with an error after 60 s without a server.
    """

    def __init__(self, client: Client, job: Optional[int], brief: bool) -> None:
        self._client = client
        self._job = job
        self._brief = brief
        self._outage = Outage()
        self._last_id: Optional[str] = None
        self._stream: Optional[EventStream] = self._open()

    def _open(self) -> EventStream:
        return EventStream(self._client, self._job, self._brief, self._last_id)

    def __next__(self) -> Event:
        while True:
            try:
                if self._stream is None:
                    self._stream = self._open()
                    if self._last_id is None:
                        return Lagged()
                event = next(self._stream)
                self._outage.calm()
                return event
            except WindlassError as error:
                self.close()
                self._client._pause(self._outage, error)

    def close(self) -> None:
        """Closes the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._last_id = stream.last_event_id or self._last_id
            stream.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventStream(Iterator[Event]):
    """The events that one server tells, from the moment when this returns. The end of the stream is an error."""

    def __init__(
        self,
        client: Client,
        job: Optional[int] = None,
        brief: bool = False,
        last_event_id: Optional[str] = None,
        parser: Optional[EventParser] = None,
    ) -> None:
        self._response = client._open(calls.events(job, brief, last_event_id))
        self._response.set_silence(EVENTS_SILENT_S)
        self._parser = parser or EventParser()
        self._events = self._read()

    @property
    def last_event_id(self) -> Optional[str]:
        return self._parser.last_event_id

    def _read(self) -> Iterator[Event]:
        for part in self._response.parts():
            yield from self._parser.feed(part)
        address = self._response.address
        raise ConnectionLost(f"the server at {address} closed the stream of events", address=address)

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        self._response.close()

    def interrupt(self) -> None:
        """Ends the stream for another thread that reads it."""
        self._response.interrupt()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
