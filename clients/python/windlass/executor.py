"""An executor of `concurrent.futures` that runs functions as tasks.

The contract: every worker sees the executor's directory under the same path, has the same Python there with the same
modules, and runs tasks as the user of this process. Functions, arguments and results can be pickled. A call may run
again if its worker is lost.
"""

from __future__ import annotations

import atexit
import collections
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
import weakref
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Set, TypeVar, cast

from .answer import EventParser, end_of
from .base import STDERR_BYTES
from .client import Client, EventStream
from .errors import ConfigError, RemoteError, TaskFailed, WindlassError
from .models import JOB_ENDS, JobEvent, Lagged, TaskEvent, TasksEvent
from .servers import Outage
from .spec import fresh_key

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .spec import TaskOptions

T = TypeVar("T")

UNSENT_MAX = 100_000
"""Most calls that wait to be submitted. `submit` blocks while there are more."""
BATCH_MAX = 1_000
"""Most calls of one job. Calls that are made while a job is submitted go together into the next one."""
RESULT_VISIBLE_S = 30.0
"""How long the result of a task that succeeded may take to appear: a network file system shows it late."""
LOOK_EVERY_S = 0.05
"""Pause between two looks for it."""


class WindlassFuture(Future):  # type: ignore[type-arg]  # Python 3.9 has no arguments for it at run time.
    """A call. It can be cancelled until a worker has taken it."""

    def __init__(self, executor: WindlassExecutor, number: int) -> None:
        super().__init__()
        self._executor = executor
        self._number = number

    def cancel(self) -> bool:
        """Cancels the call, unless a worker has taken it: then it goes on, and this returns False."""
        if self.done():
            return super().cancel()
        if not self._executor._take_back(self._number):
            return self.cancelled()
        # Those who wait for several futures are told by the second call alone.
        return super().cancel() and not self.set_running_or_notify_cancel()


class WindlassExecutor(Executor):
    """Runs picklable functions as tasks of Windlass. It is used as `ProcessPoolExecutor` is.

    `directory` is a directory that all workers see; below it the executor makes one of its own, for you alone, and
    removes it at the end. The default is `~/.cache/windlass`. The options are those of `Client.submit`: they hold for
    every call. With `chunks=True` one process may run several calls, which suits calls of less than a second.
    """

    def __init__(
        self,
        client: Optional[Client] = None,
        *,
        directory: Optional[str] = None,
        python: Optional[str] = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self._client = client or Client()
        self._options = options
        self._options.setdefault("name", "python")
        self.directory = _new_directory(directory)
        """The directory of this executor."""
        _write_setup(self.directory)
        self._command = [python or sys.executable, str(self.directory / "run_call.py"), "{}"]
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._count = 0
        self._unsent: Deque[int] = collections.deque()
        self._futures: Dict[int, WindlassFuture] = {}
        self._jobs: Dict[int, List[int]] = {}
        """The numbers of the calls of each job that has not ended, by the index of its tasks."""
        self._job_of: Dict[int, int] = {}
        """The job of each call that was submitted and has no result."""
        self._left: Dict[int, int] = {}
        """How many calls of each job have no result."""
        self._settling: Set[int] = set()
        """Calls whose result is being read."""
        self._is_shut = False
        self._broken: Optional[WindlassError] = None
        self._threads: List[threading.Thread] = []
        self._watch = _Watch(self._client, self._jobs)
        _open_executors.add(self)

    # What callers use.

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submits a call. Raises an error at once if it cannot be pickled."""
        data = pickle.dumps((fn, args, kwargs), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            while len(self._unsent) >= UNSENT_MAX and not self._is_shut and self._broken is None:
                self._changed.wait()
            if self._broken is not None:
                raise self._broken
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            number, self._count = self._count, self._count + 1
            (self.directory / "calls" / str(number)).write_bytes(data)
            future = WindlassFuture(self, number)
            self._futures[number] = future
            self._unsent.append(number)
            self._start_threads()
            self._changed.notify_all()
        return cast("Future[T]", future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls. With `wait` it returns when all calls have ended."""
        with self._lock:
            self._is_shut = True
            futures = list(self._futures.values()) if cancel_futures else []
            self._changed.notify_all()
        for future in futures:
            future.cancel()
        if wait:
            for thread in self._threads:
                thread.join()
        if not self._threads:
            self._clean()

    # What futures use.

    def _take_back(self, number: int) -> bool:
        """True if no worker has taken the call: none will."""
        with self._lock:
            try:
                # A worker renames the file, too, and one of the two is first.
                os.rename(self._path("calls", number), self._path("results", number).with_suffix(".canceled"))
            except OSError:
                return False
            job = self._forget(number)
        if job is not None:
            self._cancel(job)
        return True

    def _forget(self, number: int) -> Optional[int]:
        """Ends the account of a call. Returns its job if that has no other call left."""
        self._futures.pop(number, None)
        self._changed.notify_all()
        job = self._job_of.pop(number, None)
        if job is None:
            return None
        self._left[job] -= 1
        if self._left[job] > 0:
            return None
        del self._left[job]
        return job

    def _cancel(self, job: int) -> None:
        """Cancels a job of which nothing is wanted any more."""
        try:
            self._client.cancel(job)
        except WindlassError:
            # It has ended; or its tasks find no calls, and end at once.
            pass

    # The thread that submits.

    def _start_threads(self) -> None:
        """Both threads end when the executor is shut down and all calls have ended."""
        if not self._threads:
            for target in (self._send_all, self._watch_all):
                self._threads.append(threading.Thread(target=target, name="windlass", daemon=True))
                self._threads[-1].start()

    def _send_all(self) -> None:
        try:
            while True:
                batch = self._next_batch()
                if batch is None:
                    break
                self._watch.listening.wait()
                self._send(batch)
        finally:
            self._watch.stop()
            self._threads[1].join()
            self._clean()

    def _next_batch(self) -> Optional[List[int]]:
        """The calls of the next job; None if there will be no more."""
        with self._lock:
            while True:
                batch: List[int] = []
                while self._unsent and len(batch) < BATCH_MAX:
                    number = self._unsent.popleft()
                    if number in self._futures:
                        batch.append(number)
                self._changed.notify_all()
                if batch:
                    return batch
                if self._is_shut and not self._futures:
                    return None
                self._changed.wait()

    def _send(self, batch: List[int]) -> None:
        """Submits a job with these calls."""
        outage = Outage()
        # One key for all tries, so that they make one job.
        options: TaskOptions = {**self._options, "key": fresh_key()}
        try:
            while True:
                try:
                    if self._broken is not None:
                        raise self._broken
                    job = self._client.submit(self._command, values=batch, **options).job
                    break
                except WindlassError as error:
                    time.sleep(outage.pause_s(error))
        except WindlassError as error:
            self._fail(batch, error)
            return
        with self._lock:
            self._jobs[job] = batch
            wanted = [number for number in batch if number in self._futures]
            self._job_of.update((number, job) for number in wanted)
            if wanted:
                self._left[job] = len(wanted)
        if not wanted:
            self._cancel(job)
        try:
            # Ends before the job was known here were not taken.
            self._watch.read(job, self._take)
        except WindlassError:
            self._watch.read_again()

    # The thread that listens.

    def _watch_all(self) -> None:
        try:
            self._watch.run(self._take)
        except WindlassError as error:
            with self._lock:
                self._broken = error
                numbers = list(self._futures)
            self._fail(numbers, error)
        except Exception as error:
            # A defect here must not leave callers waiting.
            self._broken = WindlassError(f"the executor's thread failed: {error!r}")
            self._fail(list(self._futures), self._broken)
            raise
        finally:
            self._watch.listening.set()

    def _take(self, event: TaskEvent) -> None:
        """Takes a change of a task."""
        with self._lock:
            numbers = self._jobs.get(event.job)
            number = numbers[event.index] if numbers is not None and event.index < len(numbers) else None
            future = self._futures.get(number) if number is not None else None
        if future is None or number is None:
            return
        if event.state == "running" and not future.running() and not future.done():
            with self._lock:
                # A future that was cancelled meanwhile is not among them any more.
                if number in self._futures:
                    future.set_running_or_notify_cancel()
        if event.has_ended:
            self._settle(number, future, event)

    def _settle(self, number: int, future: WindlassFuture, event: TaskEvent) -> None:
        """Gives the future its result."""
        with self._lock:
            # Two threads may hear of one end.
            if number in self._settling or number not in self._futures:
                return
            self._settling.add(number)
        error: Optional[BaseException] = None
        value: Any = None
        try:
            value = self._result(number, event)
        except BaseException as raised:
            error = raised
        for kind in ("running", "results", "calls"):
            self._path(kind, number).unlink(missing_ok=True)
        with self._lock:
            self._settling.discard(number)
            if number not in self._futures:
                # It was cancelled meanwhile.
                return
            if not future.running():
                future.set_running_or_notify_cancel()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
        with self._lock:
            self._forget(number)

    def _result(self, number: int, event: TaskEvent) -> Any:
        """What the call returned; raises what it raised."""
        path, late_s = self._path("results", number), time.monotonic() + RESULT_VISIBLE_S
        while True:
            try:
                result = pickle.loads(path.read_bytes())
                break
            except FileNotFoundError:
                if event.state != "succeeded" or time.monotonic() > late_s:
                    raise self._failure(event) from None
                time.sleep(LOOK_EVERY_S)
                # A network file system asks its server again after this.
                os.listdir(path.parent)
        if result[0] == "value":
            return pickle.loads(result[1])
        _, data, said, text = result
        if data is None:
            raise RemoteError(said, traceback=text)
        error = pickle.loads(data)
        error.__cause__ = RemoteTraceback(text)
        raise error

    def _failure(self, event: TaskEvent) -> WindlassError:
        """The error for a task that ended without a result."""
        try:
            task = self._client.task(event.id)
            stderr = end_of(self._client.log(task, "stderr", offset=-STDERR_BYTES)) if task.last.attempt else ""
        except WindlassError as error:
            return TaskFailed(f"task {event.id} is {event.state}, and its details cannot be read: {error}")
        if event.state == "succeeded":
            hint = "give the executor a directory that all workers see under the same path"
            return TaskFailed(f"task {task.id} left no result in {self.directory}", hint, task, stderr)
        said = f"task {task.id} {task.describe_end()}"
        return TaskFailed(f"{said}:\n{stderr}" if stderr else said, f"'windlass why {task.id}' says more", task, stderr)

    def _fail(self, numbers: List[int], error: WindlassError) -> None:
        """Gives these futures an error."""
        for number in numbers:
            with self._lock:
                future = self._futures.get(number)
                self._forget(number)
            if future is not None and (future.running() or future.set_running_or_notify_cancel()):
                future.set_exception(error)

    # Files.

    def _path(self, kind: str, number: int) -> Path:
        return self.directory / kind / str(number)

    def _clean(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        _open_executors.discard(self)


class RemoteTraceback(Exception):
    """The traceback of a call, as the cause of its exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class _Watch:
    """Listens to the events of the executor's jobs, until it is stopped."""

    def __init__(self, client: Client, jobs: Dict[int, List[int]]) -> None:
        self._client = client
        self._jobs = jobs
        self._lock = threading.Lock()
        self._stream: Optional[EventStream] = None
        self._is_stopped = False
        self.listening = threading.Event()
        """Set once events are heard: a job that is submitted then is watched."""

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._stream is not None:
                self._stream.interrupt()

    def read_again(self) -> None:
        """Makes the listener read the state of all jobs."""
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def run(self, take: Callable[[TaskEvent], None]) -> None:
        """Passes on the changes of tasks. After a gap the state of all jobs is read."""
        outage = Outage()
        while not self._is_stopped:
            try:
                with EventStream(self._client, parser=EventParser(self._jobs)) as stream:
                    with self._lock:
                        self._stream = stream
                    self.listening.set()
                    self._read_all(take)
                    outage.calm()
                    while not self._is_stopped:
                        self._pass_on(next(stream), take)
            except WindlassError as error:
                if not self._is_stopped:
                    self._client._pause(outage, error)

    def _pass_on(self, event: object, take: Callable[[TaskEvent], None]) -> None:
        if isinstance(event, Lagged):
            self._read_all(take)
        elif isinstance(event, TasksEvent):
            for task in event.tasks:
                take(task)
        elif isinstance(event, JobEvent) and event.state in JOB_ENDS:
            # Tasks that were skipped or cancelled before they started may not be told one by one.
            if event.job in self._jobs:
                self.read(event.job, take)

    def _read_all(self, take: Callable[[TaskEvent], None]) -> None:
        for job in list(self._jobs):
            self.read(job, take)

    def read(self, job: int, take: Callable[[TaskEvent], None]) -> None:
        """Reads the state of a job, and forgets the job if it has ended."""
        known = self._client.job(job)
        if known.counts.ended:
            for task in self._client.tasks(job, state="succeeded,failed,canceled,skipped"):
                take(TaskEvent.of_task(task))
        if known.has_ended:
            self._jobs.pop(job, None)


def _new_directory(directory: Optional[str]) -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    base = Path(directory) if directory else caches.expanduser() / "windlass"
    try:
        base.mkdir(parents=True, exist_ok=True)
        # It is for this user alone: who can write there can run code as this user.
        path = Path(tempfile.mkdtemp(prefix="executor-", dir=base.absolute()))
        for kind in ("calls", "running", "results"):
            (path / kind).mkdir()
    except OSError as error:
        raise ConfigError(
            f"cannot make a directory in {base}: {error.strerror}", "give the executor a directory that all workers see"
        ) from error
    return path


def _write_setup(directory: Path) -> None:
    """Leaves what a task needs to find the functions of this process."""
    shutil.copyfile(Path(__file__).with_name("run_call.py"), directory / "run_call.py")
    main = sys.modules["__main__"]
    # Classes of the main program come back under this name.
    sys.modules.setdefault("__mp_main__", main)
    spec = getattr(main, "__spec__", None)
    name = spec.name if spec is not None and not spec.name.endswith("__main__") else None
    path = getattr(main, "__file__", None) if spec is None else None
    setup = {
        "sys_path": [os.path.abspath(entry) for entry in sys.path],
        "main_module": name,
        "main_path": os.path.abspath(path) if path else None,
    }
    (directory / "setup.json").write_text(json.dumps(setup))


_open_executors: weakref.WeakSet[WindlassExecutor] = weakref.WeakSet()


@atexit.register
def _shut_all() -> None:
    """At the end of the program the calls that were made are waited for, as with the executors of Python."""
    for executor in list(_open_executors):
        executor.shutdown()
