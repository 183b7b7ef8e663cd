"""The client for asyncio. It has the methods of `Client`, as coroutines and asynchronous iterators."""

from __future__ import annotations

import asyncio
import time
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    List,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import calls
from .aio_transport import AsyncResponse, AsyncTransport
from .answer import EVENTS_SILENT_S, EventParser, Place, parse
from .base import STDERR_BYTES, WAIT_LOOK_S, ClientBase, Story, failure, list_call, log_query, written_bytes
from .calls import Call, JobRef, TaskRef, job_id, task_id
from .errors import ConnectionLost, LookedAway, Refused, Silent, WaitTimeout, WindlassError
from .models import DryRun, Event, Failures, Job, Json, Lagged, Page, Submitted, Task, TaskEvent, TaskResult, Version, Why
from .own import start_server
from .servers import Circle, Outage
from .spec import JobSpec, TaskOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient(ClientBase):
    """A client of a Windlass server, or of several of one farm. It belongs to the loop that first uses it."""

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
        self._transport = AsyncTransport(is_one=not self._servers.are_several)

    async def aclose(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Requests.

    async def _open(self, call: Call) -> AsyncResponse:
        """An answer that is read as it comes."""

        async def as_it_comes(response: AsyncResponse) -> AsyncResponse:
            return response

        return await self._ask(call, as_it_comes)

    async def _json(self, call: Call) -> Any:
        async def whole(response: AsyncResponse) -> Any:
            async with response:
                return parse(await response.read(), response.address)

        return await self._ask(call, whole)

    async def _ask(self, call: Call, read: Callable[[AsyncResponse], Awaitable[T]]) -> T:
        """Asks one server after the other, once around. The user's own server is started if it does not run."""
        try:
            self._check_own()
            return await self._circle(call, read)
        except WindlassError as error:
            if not self._may_start(error, call):
                raise
        try:
            await asyncio.get_running_loop().run_in_executor(None, start_server, self._env)
        except WindlassError as error:
            error.doing = call.doing
            raise
        return await self._circle(call, read)

    async def _circle(self, call: Call, read: Callable[[AsyncResponse], Awaitable[T]]) -> T:
        circle = Circle(self._servers, call)
        for server in circle:
            try:
                answer = await read(await self._transport.open(server, call, circle.bound_s()))
            except WindlassError as error:
                circle.failed(error)
            else:
                circle.answered()
                return answer
        raise circle.none()

    async def _all(self, path: str, doing: str, query: Optional[calls.Query] = None) -> AsyncIterator[Json]:
        """All entries of a list, page by page."""
        cursor: Optional[str] = None
        while True:
            page = Page.from_json(await self._json(list_call(path, doing, cursor, query or {})))
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return

    async def _pause(self, outage: Outage, error: WindlassError, deadline_s: Optional[float] = None) -> None:
        """Waits a moment after a failure; of several servers the next one is asked first."""
        pause_s = outage.pause_s(error)
        self._servers.pass_over(error)
        if deadline_s is not None:
            pause_s = max(0.0, min(pause_s, deadline_s - time.monotonic()))
        await asyncio.sleep(pause_s)

    async def _look(self, outage: Outage) -> None:
        """Looks, after a long wait, whether the server lives. Of several, a silent one is passed over."""
        outage.calm()
        if self._servers.are_several:
            try:
                await self.version()
            except WindlassError as error:
                await self._pause(outage, error)

    async def version(self) -> Version:
        """The server's version, and who the caller is there."""
        return Version.from_json(await self._json(calls.version()))

    # Submissions.

    async def submit(
        self,
        command: Sequence[str],
        *,
        values: Optional[Iterable[object]] = None,
        array: Union[range, str, None] = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Submits a command, and returns when the job is durable. See `Client.submit`."""
        return await self.submit_spec(self._spec(command, values, array, options))

    async def submit_spec(self, spec: JobSpec) -> Submitted:
        """Submits a job as the HTTP interface takes it. Without a key it gets a fresh one, and without a user yours."""
        call, outage, tries = calls.submit(await self._whole(spec)), Outage(), 0
        while True:
            try:
                return Submitted.from_json(await self._json(call))
            except WindlassError as error:
                tries += 1
                if not self._submits_again(error, tries):
                    raise
                await self._pause(outage, error)

    async def dry_run(
        self,
        command: Sequence[str],
        *,
        values: Optional[Iterable[object]] = None,
        array: Union[range, str, None] = None,
        **options: Unpack[TaskOptions],
    ) -> DryRun:
        """Says what the submission of a command would do now: what would be accepted, where it would run, and what it
        would wait for. Nothing is submitted."""
        return await self.dry_run_spec(self._spec(command, values, array, options))

    async def dry_run_spec(self, spec: JobSpec) -> DryRun:
        """The same of a job as the HTTP interface takes it."""
        return DryRun.from_json(await self._json(calls.dry_run(await self._whole(spec))))

    async def _whole(self, spec: JobSpec) -> JobSpec:
        """The job with a key and a user."""
        if "user" not in spec and self._needs_user():
            self._learn_user(await self.version())
        return self._complete(spec)

    async def run(
        self, command: Sequence[str], *, timeout_s: Optional[float] = None, **options: Unpack[TaskOptions]
    ) -> TaskResult:
        """Runs a command, waits for it, and returns its output. See `Client.run`."""
        return (await self.map(command, None, timeout_s=timeout_s, **options))[0]

    async def map(
        self,
        command: Sequence[str],
        values: Optional[Iterable[object]],
        *,
        timeout_s: Optional[float] = None,
        **options: Unpack[TaskOptions],
    ) -> List[TaskResult]:
        """Runs a command for each value, waits for all of them, and returns their outputs in the order of the values.

        Raises `JobFailed` if one fails. After `timeout_s`, and if the caller is cancelled, the job is cancelled.
        """
        listed = None if values is None else list(values)
        if listed is not None and not listed:
            return []
        parent = self.parent_task()
        if parent is not None:
            options.setdefault("parent", parent)
        # The cancellation of the caller must end neither the submission, whose job would run on unknown, nor the request
        # that cancels the job.
        submitting = asyncio.ensure_future(self.submit(command, values=listed, **options))
        try:
            job = await self.wait(await asyncio.shield(submitting), timeout_s)
        except BaseException:
            await asyncio.shield(self._cancel_quietly(submitting))
            raise
        await self.check(job)
        return [await self.result(task) async for task in self.tasks(job)]

    async def _cancel_quietly(self, submitting: asyncio.Future[Submitted]) -> None:
        try:
            await self.cancel((await submitting).job)
        except Exception:
            # What interrupted the wait says more. Perhaps there is no job, or it has just ended.
            pass

    async def result(self, task: TaskRef) -> TaskResult:
        """A task with its whole output."""
        known = task if isinstance(task, Task) else await self.task(task)
        outputs = [
            await self.log(known, stream, attempt=known.last.attempt) if size and known.last.attempt else b""
            for stream, size in (("stdout", known.last.out_bytes), ("stderr", known.last.err_bytes))
        ]
        return TaskResult(known, outputs[0], outputs[1])

    # Waiting.

    async def wait(self, job: JobRef, timeout_s: Optional[float] = None) -> Job:
        """The job once it has ended. Raises `WaitTimeout` after `timeout_s`; the job goes on. See `Client.wait`."""
        number, lend, outage = job_id(job), self.parent_task(), Outage()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            look_s = WAIT_LOOK_S if deadline_s is None else min(WAIT_LOOK_S, deadline_s - time.monotonic())
            if look_s <= 0:
                raise WaitTimeout(f"job {number} did not end within {timeout_s} s")
            try:
                return Job.from_json(await self._json(calls.wait(number, lend, look_s)))
            except LookedAway:
                await self._look(outage)
            except WindlassError as error:
                await self._pause(outage, error, deadline_s)

    async def check(self, job: Job) -> None:
        """Raises `JobFailed` if the job has not succeeded."""
        if job.has_succeeded:
            return
        task: Optional[Task] = None
        stderr = b""
        if job.counts.failed:
            async for task in self.tasks(job, state="failed"):
                break
        if task is not None:
            try:
                stderr = await self.log(task, "stderr", offset=-STDERR_BYTES)
            except Refused:
                # Its worker is away, or its output is another user's: the error is shown without it.
                pass
        raise failure(job, task, stderr)

    async def as_completed(self, job: JobRef) -> AsyncIterator[TaskEvent]:
        """The ends of the job's tasks, each once and as it comes, until the job has ended."""
        story, outage = Story(job_id(job)), Outage()
        while True:
            try:
                # The stream is opened before the state is read, so that no change is missed between the two.
                async with await AsyncEventStream.open(self, story.job) as stream:
                    known = await self.job(story.job)
                    outage.calm()
                    for end in await self._missed(known, story):
                        yield end
                    while not known.has_ended:
                        event = await stream.next()
                        for end in story.ends_in(event):
                            yield end
                        if story.must_read(event):
                            known = await self.job(story.job)
                            for end in await self._missed(known, story):
                                yield end
                return
            except WindlassError as error:
                await self._pause(outage, error)

    async def _missed(self, job: Job, story: Story) -> List[TaskEvent]:
        """The ends that no event told."""
        if not story.misses_some(job):
            return []
        ended = self.tasks(job, state="succeeded,failed,canceled,skipped")
        return story.new([TaskEvent.of_task(task) async for task in ended])

    def events(self, job: Optional[JobRef] = None, *, brief: bool = False) -> AsyncEvents:
        """What happens from now on, of one job or of all. With `brief` single tasks are left out.

        It listens from the moment when `async with` enters it; without `async with` from its first step.
        """
        return AsyncEvents(self, None if job is None else job_id(job), brief)

    # Jobs and tasks.

    async def job(self, job: JobRef) -> Job:
        """A job as it is now."""
        number = job_id(job)
        return Job.from_json(await self._json(calls.get(f"/api/v1/jobs/{number}", f"show job {number}")))

    async def jobs(
        self,
        *,
        state: Optional[str] = None,
        user: Optional[str] = None,
        queue: Optional[str] = None,
        name: Optional[str] = None,
        reasons: bool = False,
    ) -> AsyncIterator[Job]:
        """The jobs, newest first. `state` is one word or several separated by commas; `name` is a part of a name. With
        `reasons` the server says why they failed or wait."""
        query = calls.jobs_query(state, user, queue, name, reasons)
        async for item in self._all("/api/v1/jobs", "list the jobs", query):
            yield Job.from_json(item)

    async def tasks(self, job: JobRef, *, state: Optional[str] = None) -> AsyncIterator[Task]:
        """The tasks of a job by their index."""
        number = job_id(job)
        path = f"/api/v1/jobs/{number}/tasks"
        async for item in self._all(path, f"list the tasks of job {number}", {"state": state}):
            yield Task.from_json(item)

    async def task(self, task: TaskRef) -> Task:
        """A task with its earlier attempts."""
        name = task_id(task)
        return Task.from_json(await self._json(calls.get(f"/api/v1/tasks/{name}", f"show task {name}")))

    async def why(self, task: TaskRef) -> Why:
        """Why a task is where it is, and what would make it run."""
        name = task_id(task)
        call = calls.get(f"/api/v1/tasks/{name}/why", f"ask why task {name} waits")
        return Why.from_json(await self._json(call))

    async def failures(self, job: JobRef) -> Failures:
        """How the tasks of a job failed, by cause."""
        number = job_id(job)
        call = calls.get(f"/api/v1/jobs/{number}/failures", f"ask why tasks of job {number} failed")
        return Failures.from_json(await self._json(call))

    async def cancel(self, job: JobRef, tasks: Optional[str] = None) -> Job:
        """Kills the job's running tasks, and starts no more; or some of its tasks, such as "6" or "1,4-6"."""
        return await self._act(job, "cancel", tasks)

    async def retry(self, job: JobRef, tasks: Optional[str] = None) -> Job:
        """Runs the job's failed and cancelled tasks again; or some of them, such as "6" or "1,4-6"."""
        return await self._act(job, "retry", tasks)

    async def hold(self, job: JobRef) -> Job:
        """Starts no further task of the job; running tasks go on."""
        return await self._act(job, "hold")

    async def release(self, job: JobRef) -> Job:
        """Starts tasks of the job again after a hold."""
        return await self._act(job, "release")

    async def _act(self, job: JobRef, verb: str, tasks: Optional[str] = None) -> Job:
        return Job.from_json(await self._json(calls.act(job_id(job), verb, tasks)))

    async def set_priority(self, job: JobRef, priority: int) -> Job:
        """Gives the job another priority inside its queue; higher goes first."""
        return Job.from_json(await self._json(calls.set_priority(job_id(job), priority)))

    def workers(self) -> AsyncIterator[Json]:
        """The workers, as the HTTP interface tells them."""
        return self._all("/api/v1/workers", "list the workers")

    def limits(self) -> AsyncIterator[Json]:
        """The limits, such as licences, as the HTTP interface tells them."""
        return self._all("/api/v1/limits", "list the limits")

    def queues(self) -> AsyncIterator[Json]:
        """The queues, as the HTTP interface tells them."""
        return self._all("/api/v1/queues", "list the queues")

    # Output.

    async def log(
        self,
        task: TaskRef,
        stream: str = "stdout",
        *,
        attempt: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> bytes:
        """What a task has written until now. A negative `offset` counts from the end."""

        async def whole(response: AsyncResponse) -> bytes:
            async with response:
                return await response.read()

        return await self._ask(calls.log(task_id(task), log_query(stream, attempt, offset)), whole)

    async def log_text(self, task: TaskRef, stream: str = "stdout", *, attempt: Optional[int] = None) -> str:
        """The same as text. Bytes that are not valid UTF-8 are replaced."""
        return (await self.log(task, stream, attempt=attempt)).decode(errors="replace")

    async def follow_log(
        self,
        task: TaskRef,
        stream: str = "stdout",
        *,
        attempt: Optional[int] = None,
        offset: int = 0,
    ) -> AsyncIterator[bytes]:
        """What a task writes, as it comes, until the attempt ends. See `Client.follow_log`."""
        name, place, outage = task_id(task), Place(offset), Outage()
        known = await self.task(name)
        number = max(1, known.last.attempt) if attempt is None else attempt
        while True:
            try:
                is_over = written_bytes(known, number, stream) is not None
                call = calls.log(name, log_query(stream, number, place.offset, follow=True))
                async with await self._open(call) as response:
                    place.begin(response.header("windlass-log-offset"))
                    response.set_silence(WAIT_LOOK_S)
                    async for part in response.parts():
                        outage.calm()
                        yield place.add(part)
                if is_over:
                    return
                known = await self.task(name)
                written = written_bytes(known, number, stream)
                if written is not None and not 0 <= place.offset < written:
                    return
            except Silent:
                # A task may write nothing for long.
                await self._look(outage)
            except WindlassError as error:
                await self._pause(outage, error)


class AsyncEvents(AsyncIterator[Event]):
    """Events, which go on after a connection that broke. See `windlass.client.Events`."""

    def __init__(self, client: AsyncClient, job: Optional[int], brief: bool) -> None:
        self._client = client
        self._job = job
        self._brief = brief
        self._outage = Outage()
        self._is_first = True
        self._last_id: Optional[str] = None
        self._stream: Optional[AsyncEventStream] = None

    async def _open(self) -> AsyncEventStream:
        return await AsyncEventStream.open(self._client, self._job, self._brief, self._last_id)

    async def __anext__(self) -> Event:
        while True:
            try:
                if self._stream is None:
                    self._stream = await self._open()
                    is_first, self._is_first = self._is_first, False
                    if not is_first and self._last_id is None:
                        return Lagged()
                event = await self._stream.next()
                self._outage.calm()
                return event
            except WindlassError as error:
                self.close()
                await self._client._pause(self._outage, error)

    def close(self) -> None:
        """Closes the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._last_id = stream.last_event_id or self._last_id
            stream.close()

    async def __aenter__(self) -> AsyncEvents:
        self._stream, self._is_first = await self._open(), False
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncEventStream:
    """The events that one server tells, from the moment when it was opened. The end of the stream is an error."""

    def __init__(self, response: AsyncResponse) -> None:
        self._response = response
        self._response.set_silence(EVENTS_SILENT_S)
        self._parser = EventParser()
        self._events = self._read()

    @classmethod
    async def open(
        cls, client: AsyncClient, job: Optional[int], brief: bool = False, last_event_id: Optional[str] = None
    ) -> AsyncEventStream:
        return cls(await client._open(calls.events(job, brief, last_event_id)))

    @property
    def last_event_id(self) -> Optional[str]:
        return self._parser.last_event_id

    async def _read(self) -> AsyncIterator[Event]:
        async for part in self._response.parts():
            for event in self._parser.feed(part):
                yield event
        address = self._response.address
        raise ConnectionLost(f"the server at {address} closed the stream of events", address=address)

    async def next(self) -> Event:
        return await self._events.__anext__()

    def close(self) -> None:
        self._response.close()

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
