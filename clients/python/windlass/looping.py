"""Surroundings of a loop of asyncio."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Awaitable, Callable, Optional, TypeVar

from .servers import Server
from .wire import Io, Wire

T = TypeVar("T")


async def _bounded(work: Awaitable[T], bound_s: Optional[float]) -> T:
    try:
        return await asyncio.wait_for(work, bound_s)
    except asyncio.TimeoutError as error:
        # Before Python 3.11 the two are not the same.
        raise socket.timeout("timed out") from error


class LoopWire(Wire):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes, bound_s: Optional[float]) -> None:
        self._writer.write(data)
        await _bounded(self._writer.drain(), bound_s)

    async def receive(self, bytes_max: int, bound_s: Optional[float]) -> bytes:
        return await _bounded(self._reader.read(bytes_max), bound_s)

    def is_quiet(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


class LoopIo(Io):
    async def connect(self, server: Server, connect_s: float) -> Wire:
        address = server.address
        if address.path is not None:
            return LoopWire(*await _bounded(asyncio.open_unix_connection(address.path), connect_s))
        host, port, _ = address.host_port_path()
        context = server.credentials.ssl_context() if address.is_https else None
        reader, writer = await _bounded(asyncio.open_connection(host, port, ssl=context), connect_s)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return LoopWire(reader, writer)

    async def sleep(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    def shield(self, work: Awaitable[T]) -> Awaitable[T]:
        return asyncio.shield(work)
