"""What a client needs of its surroundings: connections, pauses and work beside it. There are two: one blocks its
thread, and one is of a loop of asyncio."""

from __future__ import annotations

import abc
from typing import Any, Awaitable, Callable, Optional, TypeVar

from .servers import Server

T = TypeVar("T")


class Wire(abc.ABC):
    """The bytes of a connection. What takes longer than `bound_s` is a `socket.timeout`; None is no bound."""

    @abc.abstractmethod
    async def send(self, data: bytes, bound_s: Optional[float]) -> None: ...

    @abc.abstractmethod
    async def receive(self, bytes_max: int, bound_s: Optional[float]) -> bytes:
        """The next bytes; none if the server has closed the connection."""

    @abc.abstractmethod
    def is_quiet(self) -> bool:
        """True if the server has sent nothing, and has not closed the connection."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def interrupt(self) -> None:
        """Ends the connection for another thread that reads it."""
        self.close()


class Io(abc.ABC):
    """The surroundings of a client."""

    @abc.abstractmethod
    async def connect(self, server: Server, connect_s: float) -> Wire: ...

    @abc.abstractmethod
    async def sleep(self, pause_s: float) -> None: ...

    @abc.abstractmethod
    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """What a function returns that blocks its thread."""

    @abc.abstractmethod
    def shield(self, work: Awaitable[T]) -> Awaitable[T]:
        """Work that goes on if the one who waits for it is cancelled."""
