"""Requests over TCP, TLS or a unix socket: as much of HTTP/1.1 as the server speaks."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import AsyncIterator, Dict, List, Optional, Tuple

from .address import Address
from .answer import ANSWER_BYTES_MAX, NotHttp, lost, not_connected, refusal
from .calls import Call
from .errors import Garbled, LookedAway, Silent, WindlassError
from .servers import Server, request_headers
from .wire import Io, Wire

CONNECT_S = 5.0
"""How long making a connection may take."""
CONNECT_AMONG_S = 3.0
"""The same where there is another address to go to."""
IDLE_S = 10.0
"""How long an idle connection is kept: shorter than the server keeps it."""
IDLE_MAX = 8
"""Most idle connections to one server."""
PART_BYTES = 256 << 10
"""Bytes that are read at a time of an answer that comes in parts."""
LINE_BYTES_MAX = 64 << 10
"""Most bytes of a line of the head of an answer."""
HEADERS_MAX = 100
"""Most headers of an answer."""


class Connection:
    """A connection to a server, with the bytes that were received and not yet read."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self.server = server
        self.wire = wire
        self.idle_since_s = 0.0
        self._bytes = b""
        self._at = 0

    def is_good(self) -> bool:
        """True if it can take another request."""
        is_fresh = time.monotonic() - self.idle_since_s < IDLE_S
        return is_fresh and self._at == len(self._bytes) and self.wire.is_quiet()

    async def ask(self, call: Call, bound_s: Optional[float]) -> Tuple[int, Dict[str, str]]:
        """Sends a request; returns the status and the headers of the answer."""
        until_s = None if bound_s is None else time.monotonic() + bound_s
        host, port, prefix = self.server.address.host_port_path()
        host = f"[{host}]" if ":" in host else host
        headers = {"Host": f"{host}:{port}", **request_headers(self.server, call)}
        if call.body is not None or call.method != "GET":
            headers["Content-Length"] = str(call.body_bytes())
        head = [f"{call.method} {prefix}{call.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        await self.wire.send("\r\n".join([*head, "", ""]).encode("latin-1") + (call.body or b""), bound_s)
        if call.file is not None:
            await self._send_file(call.file, until_s)
        await self._fill(until_s)
        if not b"HTTP/1.".startswith(self._bytes[:7]):
            raise NotHttp
        version, _, status = (await self.line(until_s)).partition(" ")
        # Before HTTP/1.1 a connection is kept only if the server says so.
        answer = {"connection": "close"} if version == "HTTP/1.0" else {}
        for _ in range(HEADERS_MAX):
            line = await self.line(until_s)
            if not line:
                return int(status[:3]), answer
            name, _, value = line.partition(":")
            answer[name.strip().lower()] = value.strip()
        raise NotHttp

    async def _send_file(self, path: str, until_s: Optional[float]) -> None:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(PART_BYTES), b""):
                left_s = None if until_s is None else max(0.001, until_s - time.monotonic())
                await self.wire.send(piece, left_s)

    async def line(self, until_s: Optional[float]) -> str:
        """The next line, without its end."""
        while True:
            end = self._bytes.find(b"\n", self._at)
            if end >= 0:
                line, self._at = self._bytes[self._at : end], end + 1
                return line.rstrip(b"\r").decode("latin-1")
            if len(self._bytes) - self._at > LINE_BYTES_MAX:
                raise NotHttp
            await self._fill(until_s)

    async def _fill(self, until_s: Optional[float]) -> None:
        """Adds what comes next to the bytes that are not yet read."""
        left_s = None if until_s is None else until_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise socket.timeout("timed out")
        received = await self.wire.receive(PART_BYTES, left_s)
        if not received:
            raise ConnectionResetError("the server closed the connection")
        self._bytes, self._at = self._bytes[self._at :] + received, 0

    async def part(self, bytes_max: int, silent_s: Optional[float]) -> bytes:
        """The next bytes of a body; none if the server has closed the connection."""
        if self._at == len(self._bytes):
            return await self.wire.receive(bytes_max, silent_s)
        part = self._bytes[self._at : self._at + bytes_max]
        self._at += len(part)
        return part


class Response:
    """An answer that is a success, and is read as it comes."""

    def __init__(self, transport: Transport, connection: Connection, headers: Dict[str, str]) -> None:
        self._transport = transport
        self._connection: Optional[Connection] = connection
        self._headers = headers
        self._silent_s: Optional[float] = None
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        length = headers.get("content-length")
        # Bytes that are left of the chunk, or of the whole; None if the end of the connection ends the answer.
        self._left: Optional[int] = 0 if self._is_chunked else None if length is None else int(length)
        self.address = str(connection.server.address)

    def header(self, name: str) -> Optional[str]:
        return self._headers.get(name.lower())

    def set_silence(self, silent_s: Optional[float]) -> None:
        """After such a silence the answer ends with an error."""
        self._silent_s = silent_s

    async def read(self) -> bytes:
        """The whole answer."""
        parts: List[bytes] = []
        size = 0
        async with self:
            async for part in self.parts():
                parts.append(part)
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    message = f"an answer is longer than {ANSWER_BYTES_MAX} bytes"
                    raise Garbled(message, "ask for a part of it", self.address)
        return b"".join(parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        while self._connection is not None:
            try:
                part = await self._part(self._connection)
            except (OSError, ValueError) as error:
                raise lost(error, self.address, self._silent_s) from error
            if not part:
                break
            yield part
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.put_back(connection, self._left is None or self.header("connection") == "close")

    async def _part(self, connection: Connection) -> bytes:
        """The next bytes; none at the end."""
        until_s = None if self._silent_s is None else time.monotonic() + self._silent_s
        if self._is_chunked and self._left == 0:
            self._left = int((await connection.line(until_s)).partition(";")[0], 16)
            if self._left == 0:
                # No server of Windlass sends trailers, so an empty line ends the answer.
                await connection.line(until_s)
        if self._left == 0:
            return b""
        part = await connection.part(min(self._left or PART_BYTES, PART_BYTES), self._silent_s)
        if self._left is not None:
            if not part:
                raise ConnectionResetError("the answer broke off")
            self._left -= len(part)
            if self._is_chunked and self._left == 0:
                await connection.line(until_s)
        return part

    def close(self) -> None:
        """Closes the connection, if the answer was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.wire.close()

    def interrupt(self) -> None:
        """Ends the answer for another thread that reads it."""
        connection = self._connection
        if connection is not None:
            connection.wire.interrupt()

    async def __aenter__(self) -> Response:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Transport:
    """Sends requests, and keeps connections for the next ones. Threads may share it if their surroundings block."""

    def __init__(self, io: Io, is_one: bool) -> None:
        self._io = io
        self._connect_s = CONNECT_S if is_one else CONNECT_AMONG_S
        self._idle: Dict[Address, List[Connection]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    async def open(self, server: Server, call: Call, bound_s: Optional[float]) -> Response:
        """Sends the request. An answer that is not a success is an error."""
        # A connection that was idle may be closed by the server at the same moment. A request that is made once gets a
        # fresh one, and others are made again.
        connection = self._take(server) if call.is_repeatable else None
        if connection is not None:
            try:
                return await self._ask(connection, call, bound_s)
            except WindlassError as error:
                if not isinstance(error.__cause__, ConnectionError):
                    raise
        try:
            wire = await self._io.connect(server, self._connect_s)
        except OSError as error:
            raise not_connected(error, str(server.address)) from error
        return await self._ask(Connection(server, wire), call, bound_s)

    async def _ask(self, connection: Connection, call: Call, bound_s: Optional[float]) -> Response:
        """Sends the request over the connection."""
        address = str(connection.server.address)
        try:
            status, headers = await connection.ask(call, bound_s)
            opened = Response(self, connection, headers)
        except (OSError, ValueError) as error:
            connection.wire.close()
            raise lost(error, address, bound_s, LookedAway if call.look_s is not None else Silent) from error
        except BaseException:
            # Such as Ctrl-C: the answer would be taken for that of the next request.
            connection.wire.close()
            raise
        opened.set_silence(bound_s)
        if 200 <= status < 300:
            return opened
        raise refusal(status, await opened.read(), address)

    def _take(self, server: Server) -> Optional[Connection]:
        """An idle connection that is still good."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked process must not write to the connections of the one that it came from.
                self._idle, self._pid = {}, os.getpid()
            idle = self._idle.get(server.address, [])
            while idle:
                connection = idle.pop()
                if connection.is_good():
                    return connection
                connection.wire.close()
        return None

    def put_back(self, connection: Connection, is_last: bool) -> None:
        """Keeps the connection for the next request."""
        connection.idle_since_s = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(connection.server.address, [])
            if not is_last and self._pid == os.getpid() and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.wire.close()

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            for idle in self._idle.values():
                for connection in idle:
                    connection.wire.close()
            self._idle.clear()
