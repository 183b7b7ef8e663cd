"""The client with blocking calls. Threads may share one."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine, Dict, Iterator, Optional, TypeVar, Union

from .aio import AsyncClient, AsyncEvents, AsyncEventStream
from .answer import EventParser
from .blocking import BlockingIo, each, run
from .calls import JobRef
from .models import Event
from .wire import Io

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    Awaited = Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]
    Listed = Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]


class _BlockingClient(AsyncClient):
    """The client for asyncio in surroundings that block their thread."""

    _io: Io = BlockingIo()


def _blocking(method: Awaited[P, T]) -> Callable[Concatenate[Client, P], T]:
    """The same method with a blocking call."""

    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._client, *args, **kwargs))

    return _named(call, method)


def _listing(method: Listed[P, T]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """The same method with a blocking iterator."""

    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each(method(self._client, *args, **kwargs))

    return _named(call, method)


def _named(call: Callable[P, T], method: Callable[..., Any]) -> Callable[P, T]:
    """Lets it have the name, the documentation and the signature of the method."""
    functools.update_wrapper(call, method, ("__name__", "__doc__"))
    signature = inspect.signature(method)
    returned = str(signature.return_annotation).replace("AsyncIterator", "Iterator")
    call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


class Client:
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
        self._client = _BlockingClient(server, token=token, token_file=token_file, ca=ca, cert=cert, key=key)

    close = _blocking(AsyncClient.aclose)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of the server that answered last; at first that of the first one."""
        return self._client.address

    def default_env(self) -> Dict[str, str]:
        """The environment that tasks get where the option `env` is not given."""
        return self._client.default_env()

    def parent_task(self) -> Optional[str]:
        """The task in which this process runs, if it is a task of the same server: it lends its cpus while it waits."""
        return self._client.parent_task()

    _pause = _blocking(AsyncClient._pause)

    version = _blocking(AsyncClient.version)
    submit = _blocking(AsyncClient.submit)
    submit_spec = _blocking(AsyncClient.submit_spec)
    dry_run = _blocking(AsyncClient.dry_run)
    dry_run_spec = _blocking(AsyncClient.dry_run_spec)
    run = _blocking(AsyncClient.run)
    map = _blocking(AsyncClient.map)
    result = _blocking(AsyncClient.result)
    wait = _blocking(AsyncClient.wait)
    check = _blocking(AsyncClient.check)
    as_completed = _listing(AsyncClient.as_completed)
    job = _blocking(AsyncClient.job)
    jobs = _listing(AsyncClient.jobs)
    tasks = _listing(AsyncClient.tasks)
    task = _blocking(AsyncClient.task)
    why = _blocking(AsyncClient.why)
    failures = _blocking(AsyncClient.failures)
    cancel = _blocking(AsyncClient.cancel)
    retry = _blocking(AsyncClient.retry)
    hold = _blocking(AsyncClient.hold)
    release = _blocking(AsyncClient.release)
    set_priority = _blocking(AsyncClient.set_priority)
    workers = _listing(AsyncClient.workers)
    limits = _listing(AsyncClient.limits)
    queues = _listing(AsyncClient.queues)
    outputs = _listing(AsyncClient.outputs)
    fetch = _blocking(AsyncClient.fetch)
    log = _blocking(AsyncClient.log)
    log_text = _blocking(AsyncClient.log_text)
    follow_log = _listing(AsyncClient.follow_log)

    def events(self, job: Optional[JobRef] = None, *, brief: bool = False) -> Events:
        """What happens from now on, of one job or of all. With `brief` single tasks are left out."""
        return Events(run(self._client.events(job, brief=brief).__aenter__()))


class Events(Iterator[Event]):
    """Events from the moment when this was made.

    After a connection that broke it goes on by itself. `Lagged` says that events were missed: read the state again. It
    ends with an error after 60 s without a server.
    """

    def __init__(self, events: Union[AsyncEvents, AsyncEventStream]) -> None:
        self._events = events

    def __next__(self) -> Event:
        return run(self._events.__anext__())

    def close(self) -> None:
        """Closes the connection."""
        self._events.close()

    def __enter__(self: E) -> E:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventStream(Events):
    """The events that one server tells, from the moment when this returns. The end of the stream is an error."""

    def __init__(self, client: Client, parser: EventParser) -> None:
        self._stream = run(AsyncEventStream.open(client._client, parser=parser))
        super().__init__(self._stream)

    def interrupt(self) -> None:
        """Ends the stream for another thread that reads it."""
        self._stream.interrupt()


E = TypeVar("E", bound=Events)
