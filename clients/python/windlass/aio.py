"""The client for asyncio. The one with blocking calls does the same in other surroundings."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
)

from . import calls
from .answer import EVENTS_SILENT_S, EventParser, Place, parse
from .base import STDERR_BYTES, WAIT_LOOK_S, ClientBase, Story, failure, list_call, log_query, written_bytes
from .calls import Call, JobRef, TaskRef, job_id, task_id
from .errors import ConnectionLost, LookedAway, Refused, Silent, WaitTimeout, WindlassError
from .fields import M
from .files import EMPTY, AnyPath, directory_of, in_the_way, questions, tree_of, unpack, uploads
from .looping import LoopIo
from .models import DryRun, Event, Failures, Job, JobFiles, Json, Lagged, MissingBlobs, Page, Submitted, Task
from .models import TaskEvent, TaskOutputs, TaskResult, Version, Why
from .own import start_server
from .servers import Circle, Outage
from .spec import JobSpec, TaskOptions, fresh_key, user_name
from .transport import Response
from .wire import Io

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

CANCEL_S = 10.0
"""How long a caller who was interrupted waits for each answer of the server about the job that is to be cancelled."""


class AsyncClient(ClientBase):
    """A client of a Windlass server, or of several of one farm. It belongs to the loop that first uses it."""

    _io: Io = LoopIo()

    async def aclose(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Requests.

    async def _open(self, call: Call) -> Response:
        """An answer that is read as it comes."""

        async def as_it_comes(response: Response) -> Response:
            return response

        return await self._ask(call, as_it_comes)

    async def _read(self, model: Type[M], call: Call) -> M:
        async def whole(response: Response) -> M:
            return model.from_json(parse(await response.read(), response.address))

        return await self._ask(call, whole)

    async def _ask(self, call: Call, read: Callable[[Response], Awaitable[T]]) -> T:
        """Asks one server after the other, once around. The user's own server is started if it does not run."""
        try:
            self._check_own()
            return await self._circle(call, read)
        except WindlassError as error:
            if not self._may_start(error, call):
                raise
        try:
            await self._io.call(start_server, self._env)
        except WindlassError as error:
            error.doing = call.doing
            raise
        return await self._circle(call, read)

    async def _circle(self, call: Call, read: Callable[[Response], Awaitable[T]]) -> T:
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

    async def _all(
        self, read: Callable[[Json], T], path: str, doing: str, query: Optional[calls.Query] = None
    ) -> AsyncIterator[T]:
        """All entries of a list, page by page."""
        cursor: Optional[str] = None
        while True:
            page = await self._read(Page, list_call(path, doing, cursor, query or {}))
            for item in page.items:
                yield read(item)
            cursor = page.next
            if cursor is None:
                return

    async def _pause(self, outage: Outage, error: WindlassError, deadline_s: Optional[float] = None) -> None:
        """Waits a moment after a failure; of several servers the next one is asked first."""
        pause_s = outage.pause_s(error)
        self._servers.pass_over(error)
        if deadline_s is not None:
            pause_s = max(0.0, min(pause_s, deadline_s - time.monotonic()))
        await self._io.sleep(pause_s)

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
        return await self._read(Version, calls.version())

    # Submissions.

    async def submit(
        self,
        command: Sequence[str],
        *,
        values: Optional[Iterable[object]] = None,
        array: Union[range, str, None] = None,
        **options: Unpack[TaskOptions],
    ) -> Submitted:
        """Submits a command, and returns when the job is durable.

        `values` makes one task for each value, `array` one for each number: `range(1, 101)`, "1-100" or "1,3,7-9". `{}`
        in the command stands for the value.
        """
        return await self.submit_spec(await self._with_inputs(command, values, array, options))

    async def _with_inputs(
        self, command: Sequence[str], values: Any, array: Any, options: Mapping[str, Any]
    ) -> JobSpec:
        """The job, whose inputs were uploaded."""
        spec = self._spec(command, values, array, options)
        inputs = options.get("inputs")
        if inputs is not None:
            tree = await self._io.call(tree_of, inputs)
            missing = [await self._read(MissingBlobs, call) for call in questions(tree)]
            for call in uploads(tree, [digest for page in missing for digest in page.missing]):
                await self._ask(call, Response.read)
            spec["steps"][0]["files"]["root"] = tree.root
        return spec

    async def submit_spec(self, spec: JobSpec) -> Submitted:
        """Submits a job as the HTTP interface takes it. Without a key it gets a fresh one, and without a user yours."""
        call, outage, tries = calls.submit(await self._whole(spec)), Outage(), 0
        while True:
            try:
                return await self._read(Submitted, call)
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
        return await self._read(DryRun, calls.dry_run(await self._whole(spec)))

    async def _whole(self, spec: JobSpec) -> JobSpec:
        """The job with a key and a user."""
        whole: JobSpec = {"key": fresh_key(), **spec}
        if "user" not in whole:
            if self._user is None and self._servers.current().token is not None:
                # The user is that of the token.
                self._user = (await self.version()).user
            whole["user"] = self._user or user_name()
        return whole

    async def run(
        self, command: Sequence[str], *, timeout_s: Optional[float] = None, **options: Unpack[TaskOptions]
    ) -> TaskResult:
        """Runs a command, waits for it, and returns its output. Raises `JobFailed` if it fails. After `timeout_s` the
        job is cancelled."""
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

        Raises `JobFailed` if one fails. After `timeout_s`, and if the caller is interrupted or cancelled, the job is
        cancelled.
        """
        listed = None if values is None else list(values)
        if listed is not None and not listed:
            return []
        parent = self.parent_task()
        if parent is not None:
            options.setdefault("parent", parent)
        spec = await self._whole(await self._with_inputs(command, listed, None, options))
        submitted: Optional[Submitted] = None
        try:
            submitted = await self.submit_spec(spec)
            job = await self.wait(submitted, timeout_s)
        except BaseException as error:
            # A submission that was refused has no job.
            if submitted is not None or not isinstance(error, WindlassError):
                # A second cancellation of the caller must not end the request that cancels the job.
                await self._io.shield(self._cancel_quietly(spec, submitted))
            raise
        await self.check(job)
        return [await self.result(task) async for task in self.tasks(job)]

    async def _cancel_quietly(self, spec: JobSpec, submitted: Optional[Submitted]) -> None:
        """Cancels a job whose submission may have been interrupted: made again with its key, it tells the same job."""
        try:
            if submitted is None:
                submitted = await self._read(Submitted, replace(calls.submit(spec), look_s=CANCEL_S))
            await self._read(Job, replace(calls.act(submitted.job, "cancel"), look_s=CANCEL_S))
        except Exception:
            # What interrupted the caller says more. Perhaps the job has just ended.
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
                return await self._read(Job, calls.wait(number, lend, look_s))
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
                        event = await stream.__anext__()
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
        return await self._read(Job, calls.get(f"/api/v1/jobs/{number}", f"show job {number}"))

    def jobs(
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
        return self._all(Job.from_json, "/api/v1/jobs", "list the jobs", query)

    def tasks(self, job: JobRef, *, state: Optional[str] = None) -> AsyncIterator[Task]:
        """The tasks of a job by their index."""
        number = job_id(job)
        path = f"/api/v1/jobs/{number}/tasks"
        return self._all(Task.from_json, path, f"list the tasks of job {number}", {"state": state})

    async def task(self, task: TaskRef) -> Task:
        """A task with its earlier attempts."""
        name = task_id(task)
        return await self._read(Task, calls.get(f"/api/v1/tasks/{name}", f"show task {name}"))

    async def why(self, task: TaskRef) -> Why:
        """Why a task is where it is, and what would make it run."""
        name = task_id(task)
        return await self._read(Why, calls.get(f"/api/v1/tasks/{name}/why", f"ask why task {name} waits"))

    async def failures(self, job: JobRef) -> Failures:
        """How the tasks of a job failed, by cause."""
        number = job_id(job)
        call = calls.get(f"/api/v1/jobs/{number}/failures", f"ask why tasks of job {number} failed")
        return await self._read(Failures, call)

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
        return await self._read(Job, calls.act(job_id(job), verb, tasks))

    async def set_priority(self, job: JobRef, priority: int) -> Job:
        """Gives the job another priority inside its queue; higher goes first."""
        return await self._read(Job, calls.set_priority(job_id(job), priority))

    def workers(self) -> AsyncIterator[Json]:
        """The workers, as the HTTP interface tells them."""
        return self._all(dict, "/api/v1/workers", "list the workers")

    def limits(self) -> AsyncIterator[Json]:
        """The limits, such as licences, as the HTTP interface tells them."""
        return self._all(dict, "/api/v1/limits", "list the limits")

    def queues(self) -> AsyncIterator[Json]:
        """The queues, as the HTTP interface tells them."""
        return self._all(dict, "/api/v1/queues", "list the queues")

    # Output.

    async def outputs(self, job: JobRef) -> AsyncIterator[TaskOutputs]:
        """What was kept of the files of the job's tasks, by their index."""
        number, start = job_id(job), 0
        while True:
            page = await self._read(JobFiles, calls.job_files(number, start))
            for outputs in page.outputs:
                yield outputs
            if page.next is None:
                return
            start = page.next

    async def fetch(
        self,
        job: JobRef,
        directory: AnyPath = ".",
        *,
        tasks: Optional[Iterable[int]] = None,
        flat: bool = False,
        force: bool = False,
    ) -> List[TaskOutputs]:
        """Writes the outputs of the job's tasks, or of those with these indexes, to a directory.

        Those of one task are in the directory itself, and so are all with `flat`; of several tasks those of task 3 are
        in `STEP.3`. A file that is there with the same content is not written again. Raises `FileExistsError` in the
        end if something else stands in the way, which `force` overwrites.
        """
        known = await self.job(job)
        wanted = None if tasks is None else set(tasks)
        is_one = flat or known.counts.total == 1 or (wanted is not None and len(wanted) == 1)
        fetched: List[TaskOutputs] = []
        kept: List[str] = []
        async for outputs in self.outputs(known):
            if outputs.root == EMPTY or (wanted is not None and outputs.index not in wanted):
                continue
            step = next((step.name for step in reversed(known.steps) if step.first_task <= outputs.index), "")
            into = os.fspath(directory) if is_one else os.path.join(directory, directory_of(step, outputs.index))
            with tempfile.TemporaryFile() as archive:
                async with await self._open(calls.outputs_archive(known.id, outputs.index)) as response:
                    async for part in response.parts():
                        archive.write(part)
                archive.seek(0)
                kept += await self._io.call(unpack, archive, into, force)
            fetched.append(outputs)
        if kept:
            raise in_the_way(kept)
        return fetched

    async def log(
        self,
        task: TaskRef,
        stream: str = "stdout",
        *,
        attempt: Optional[int] = None,
        offset: Optional[int] = None,
    ) -> bytes:
        """What a task has written until now. A negative `offset` counts from the end."""
        return await self._ask(calls.log(task_id(task), log_query(stream, attempt, offset)), Response.read)

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
        """What a task writes, as it comes, until the attempt ends.

        After a connection that broke it goes on at the byte where it was. The exception is an output over the server's
        `log_bytes_max`: where its middle is left out, the place of the next byte is not known exactly.
        """
        name, place, outage = task_id(task), Place(offset), Outage()
        known = await self.task(name)
        # The attempt is chosen once: after a broken connection there may be another one.
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
                # A server that stops ends the stream, too, and more may have been written since.
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
    """Events from the moment when it listens.

    After a connection that broke it goes on by itself. `Lagged` says that events were missed: read the state again. It
    ends with an error after 60 s without a server.
    """

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
                event = await self._stream.__anext__()
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


class AsyncEventStream(AsyncIterator[Event]):
    """The events that one server tells, from the moment when it was opened. The end of the stream is an error."""

    def __init__(self, response: Response, parser: EventParser) -> None:
        self._response = response
        self._response.set_silence(EVENTS_SILENT_S)
        self._parser = parser
        self._events = self._read()

    @classmethod
    async def open(
        cls,
        client: AsyncClient,
        job: Optional[int] = None,
        brief: bool = False,
        last_event_id: Optional[str] = None,
        parser: Optional[EventParser] = None,
    ) -> AsyncEventStream:
        return cls(await client._open(calls.events(job, brief, last_event_id)), parser or EventParser())

    @property
    def last_event_id(self) -> Optional[str]:
        return self._parser.last_event_id

    async def _read(self) -> AsyncIterator[Event]:
        async for part in self._response.parts():
            for event in self._parser.feed(part):
                yield event
        address = self._response.address
        raise ConnectionLost(f"the server at {address} closed the stream of events", address=address)

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    def close(self) -> None:
        self._response.close()

    def interrupt(self) -> None:
        """Ends the stream for another thread that reads it."""
        self._response.interrupt()

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
