"""Surroundings that block their thread: whatever is awaited in them is done at once."""

from __future__ import annotations

import select
import socket
import time
from typing import Any, AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Optional, TypeVar, cast

from .servers import Server
from .wire import Io, Wire

T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    """The result of work that awaits nothing but these surroundings."""
    try:
        next(work.__await__())
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a blocking client waits for a loop")


def each(items: AsyncIterator[T]) -> Iterator[T]:
    """The items of such work, as they come."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(cast("AsyncGenerator[T, None]", items).aclose())


class BlockingWire(Wire):
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    async def send(self, data: bytes, bound_s: Optional[float]) -> None:
        self._socket.settimeout(bound_s)
        self._socket.sendall(data)

    async def receive(self, bytes_max: int, bound_s: Optional[float]) -> bytes:
        self._socket.settimeout(bound_s)
        return self._socket.recv(bytes_max)

    def is_quiet(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()

    def interrupt(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is closed already.
            pass


class BlockingIo(Io):
    async def connect(self, server: Server, connect_s: float) -> Wire:
        address = server.address
        if address.path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            host, port, _ = address.host_port_path()
            sock = socket.create_connection((host, port), connect_s)
        try:
            sock.settimeout(connect_s)
            if address.path is not None:
                sock.connect(address.path)
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if address.is_https:
                sock = server.credentials.ssl_context().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return BlockingWire(sock)

    async def sleep(self, pause_s: float) -> None:
        time.sleep(pause_s)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    def shield(self, work: Awaitable[T]) -> Awaitable[T]:
        return work
