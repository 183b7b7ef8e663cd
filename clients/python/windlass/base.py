"""What a client knows before it sends anything, and what it keeps of a job that it follows."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, cast

from . import calls
from .address import Address, parse_addresses
from .answer import end_of
from .calls import Call
from .credentials import Credentials, read_credentials, token_for
from .errors import (
    ConfigError,
    ConnectionLost,
    Garbled,
    JobFailed,
    NoAnswer,
    Silent,
    Unreachable,
    Verdict,
    WindlassError,
)
from .models import JOB_ENDS, Event, Job, JobEvent, Lagged, Task, TaskEvent, TasksEvent
from .own import local_token, paths_for_user
from .servers import Server, Servers
from .spec import JobSpec, TaskOptions, environment, job_spec
from .transport import Transport
from .wire import Io

WAIT_LOOK_S = 120.0
"""How long a client waits for the end of a job without a look whether the server still lives."""
STDERR_BYTES = 4096
"""Bytes of a failed task's standard error that an error shows."""


class ClientBase:
    """Which servers a client asks, and what it shows them."""

    _io: Io
    """The surroundings in which it asks them."""

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
        """A client of the servers of one farm; nothing is sent yet.

        `server` is an address, or several separated by commas. What is not given is taken from the environment, as the
        program does: `WINDLASS_SERVER`, `WINDLASS_TOKEN`, `WINDLASS_TOKEN_FILE`, `WINDLASS_CA`, `WINDLASS_CERT` and
        `WINDLASS_KEY`. Without an address it is the user's own server, which is started when a request needs it.
        """
        self._env: Dict[str, str] = dict(os.environ)
        given = read_credentials(self._env, ca, token, token_file, cert, key)
        named = server or self._env.get("WINDLASS_SERVER")
        self._is_own = not named
        addresses = parse_addresses(named) if named else [self._own_address()]
        self._servers = Servers([self._server(address, given) for address in addresses])
        self._transport = Transport(self._io, is_one=not self._servers.are_several)
        self._user: Optional[str] = None

    def _own_address(self) -> Address:
        if not hasattr(os, "getuid"):
            raise ConfigError("this system cannot run a server", "set WINDLASS_SERVER to the address of one")
        return Address(path=str(paths_for_user(self._env).socket))

    def _server(self, address: Address, given: Credentials) -> Server:
        return Server(address, given, token_for(address, given, self._env))

    def _check_own(self) -> None:
        """Refuses the socket of another user."""
        if self._is_own:
            paths_for_user(self._env).check()

    def _may_start(self, error: WindlassError, call: Call) -> bool:
        """True if the user's own server does not run, and the program can start it. A request that it got before it
        ended may be made again only if that does no harm."""
        is_lost = isinstance(error, ConnectionLost) and not isinstance(error, Silent)
        return self._is_own and (isinstance(error, Unreachable) or (is_lost and call.is_repeatable))

    def _submits_again(self, error: WindlassError, tries: int) -> bool:
        """True if a submission that failed is made again with its key. A named server that never answered is not waited
        for; several may be changing places."""
        if not error.is_temporary or isinstance(error, Garbled):
            return False
        if self._servers.are_several:
            return True
        was_sent = error.verdict is not Verdict.NOT_SENT
        return isinstance(error, NoAnswer) and (tries > 1 or was_sent or self._is_own)

    @property
    def address(self) -> str:
        """The address of the server that answered last; at first that of the first one."""
        return str(self._servers.current().address)

    def _inherit(self) -> str:
        """Which variables tasks get by default, by the rule of the program: servers that take over from each other are
        of a farm, where the values mean nothing."""
        server = self._servers.current()
        if self._servers.are_several:
            return "none"
        if server.address.base is None:
            return "all"
        return "but_home" if local_token(server.address, self._env) is not None else "none"

    def default_env(self) -> Dict[str, str]:
        """The environment that tasks get where the option `env` is not given."""
        return environment(None, self._inherit(), os.environ)

    def parent_task(self) -> Optional[str]:
        """The task in which this process runs, if it is a task of the same server: it lends its cpus while it waits."""
        server, task = self._env.get("WINDLASS_SERVER"), self._env.get("WINDLASS_TASK")
        if not server or not task:
            return None
        try:
            calls.task_id(task)
            own = parse_addresses(server)
        except (ConfigError, ValueError):
            return None
        return task if self._servers.current().address in own else None

    def _spec(self, command: Sequence[str], values: Any, array: Any, options: Mapping[str, Any]) -> JobSpec:
        return job_spec(command, values, array, cast(TaskOptions, options), self._inherit())


def list_call(path: str, doing: str, cursor: Optional[str], query: Mapping[str, Any]) -> Call:
    """The request for a page of a list."""
    words = {
        name: ",".join(value) if isinstance(value, (list, tuple, set, frozenset)) else value
        for name, value in query.items()
    }
    return calls.get(path, doing, {"limit": calls.PAGE, "cursor": cursor, **words})


def log_query(stream: str, attempt: Optional[int], offset: Optional[int], follow: bool = False) -> calls.Query:
    if stream not in ("stdout", "stderr"):
        raise ValueError(f"the stream is 'stdout' or 'stderr', not {stream!r}")
    return {"stream": stream, "attempt": attempt, "offset": offset, "follow": follow}


def written_bytes(task: Task, attempt: int, stream: str) -> Optional[int]:
    """Bytes that an attempt wrote in all; None while it may write more."""
    if not task.has_ended and task.last.attempt <= attempt:
        return None
    for one in (task.last, *task.history):
        if one.attempt == attempt:
            return one.out_bytes if stream == "stdout" else one.err_bytes
    return 0


def failure(job: Job, task: Optional[Task], stderr: bytes) -> JobFailed:
    """The error for a job that did not succeed."""
    if job.state == "canceled":
        return JobFailed(f"job {job.id} was cancelled", job=job)
    counts = job.counts
    said = f"{counts.failed} of {counts.total} tasks failed" if counts.failed else job.stopped or "it did not succeed"
    if task is None:
        return JobFailed(f"job {job.id} ({job.name}): {said}", job=job)
    end = end_of(stderr)
    message = f"job {job.id} ({job.name}): {said}; task {task.id} {task.describe_end()}"
    hint = f"'windlass logs {task.id}' shows its output"
    return JobFailed(f"{message}:\n{end}" if end else message, hint, job, task, end)


class Story:
    """The ends of a job's tasks, each told once, wherever the streams were cut."""

    def __init__(self, job: int) -> None:
        self.job = job
        self._ended: Set[int] = set()

    def ends_in(self, event: Event) -> List[TaskEvent]:
        """The ends in an event that were not told yet."""
        if not isinstance(event, TasksEvent) or event.job != self.job:
            return []
        return self.new(event.tasks)

    def new(self, tasks: Iterable[TaskEvent]) -> List[TaskEvent]:
        """Those of the tasks that have ended, and were not told yet."""
        news = [task for task in tasks if task.has_ended and task.index not in self._ended]
        self._ended.update(task.index for task in news)
        return news

    def misses_some(self, job: Job) -> bool:
        """True if more tasks have ended than were told."""
        return job.counts.ended > len(self._ended)

    def must_read(self, event: Event) -> bool:
        """True if the state has to be read after the event: the job ended, or events were missed."""
        if isinstance(event, Lagged):
            return True
        return isinstance(event, JobEvent) and event.job == self.job and event.state in JOB_ENDS

