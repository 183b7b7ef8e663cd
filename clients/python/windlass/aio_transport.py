"""Requests over TCP, TLS or a unix socket, with asyncio: as much of HTTP/1.1 as the server speaks."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import AsyncIterator, Dict, List, Optional, Tuple

from .address import Address
from .answer import ANSWER_BYTES_MAX, lost, not_connected, refusal
from .calls import Call
from .errors import Garbled, LookedAway, Silent, WindlassError
from .servers import Server, request_headers
from .transport import CONNECT_AMONG_S, CONNECT_S, IDLE_MAX, IDLE_S, PART_BYTES

HEAD_BYTES_MAX = 64 << 10
"""Most bytes of the head of an answer."""


class AsyncConnection:
    """A connection to a server."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer
        self.idle_since_s = 0.0

    @classmethod
    async def open(cls, server: Server, connect_s: float) -> AsyncConnection:
        address = server.address
        try:
            if address.path is not None:
                opening = asyncio.open_unix_connection(address.path, limit=HEAD_BYTES_MAX)
            else:
                host, port, _ = address.host_port_path()
                context = server.credentials.ssl_context() if address.is_https else None
                opening = asyncio.open_connection(host, port, ssl=context, limit=HEAD_BYTES_MAX)
            reader, writer = await asyncio.wait_for(opening, connect_s)
        except asyncio.TimeoutError as error:
            raise not_connected(socket.timeout("timed out"), str(address)) from error
        except (OSError, ssl.CertificateError) as error:
            raise not_connected(error, str(address)) from error
        sock = writer.get_extra_info("socket")
        if address.base is not None and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return cls(server, reader, writer)

    def is_good(self) -> bool:
        is_fresh = time.monotonic() - self.idle_since_s < IDLE_S
        return is_fresh and not self.reader.at_eof() and not self.writer.is_closing()

    async def send(self, call: Call) -> Tuple[int, Dict[str, str]]:
        """Sends a request; returns the status and the headers of the answer."""
        host, port, prefix = self.server.address.host_port_path()
        host = f"[{host}]" if ":" in host else host
        headers = {"Host": f"{host}:{port}", **request_headers(self.server, call)}
        if call.body is not None or call.method != "GET":
            headers["Content-Length"] = str(len(call.body or b""))
        head = [f"{call.method} {prefix}{call.path} HTTP/1.1"] + [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + (call.body or b""))
        await self.writer.drain()
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("the answer is not one of HTTP")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    def close(self) -> None:
        self.writer.close()


class AsyncResponse:
    """An answer that is a success, and is read as it comes."""

    def __init__(self, transport: AsyncTransport, connection: AsyncConnection, headers: Dict[str, str]) -> None:
        self._transport = transport
        self._connection: Optional[AsyncConnection] = connection
        self._reader = connection.reader
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
        async for part in self.parts():
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                message = f"an answer is longer than {ANSWER_BYTES_MAX} bytes"
                raise Garbled(message, "ask for a part of it", self.address)
        return b"".join(parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        while True:
            try:
                part = await asyncio.wait_for(self._part(), self._silent_s)
            except asyncio.TimeoutError as error:
                message = f"the server at {self.address} said nothing for {self._silent_s:.0f} s"
                raise Silent(message, address=self.address) from error
            except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
                raise lost(error, self.address) from error
            if not part:
                break
            yield part
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.put_back(connection, self.header("connection") == "close")

    async def _part(self) -> bytes:
        """The next bytes; none at the end."""
        if self._is_chunked and self._left == 0:
            self._left = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if self._left == 0:
                # No server of Windlass sends trailers, so an empty line ends the answer.
                await self._reader.readuntil(b"\r\n")
        if self._left == 0:
            return b""
        part = await self._reader.read(PART_BYTES if self._left is None else min(self._left, PART_BYTES))
        if self._left is not None:
            if not part:
                raise EOFError("the answer broke off")
            self._left -= len(part)
            if self._is_chunked and self._left == 0:
                await self._reader.readexactly(2)
        return part

    def close(self) -> None:
        """Closes the connection, if the answer was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def __aenter__(self) -> AsyncResponse:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncTransport:
    """Sends requests, and keeps connections for the next ones. It belongs to one loop."""

    def __init__(self, is_one: bool) -> None:
        self._connect_s = CONNECT_S if is_one else CONNECT_AMONG_S
        self._idle: Dict[Address, List[AsyncConnection]] = {}

    async def open(self, server: Server, call: Call, bound_s: Optional[float]) -> AsyncResponse:
        """Sends the request. An answer that is not a success is an error."""
        # See the other transport: only a request that may be made twice goes over a connection that was idle.
        connection = self._take(server) if call.is_repeatable else None
        if connection is not None:
            try:
                return await self._ask(connection, call, bound_s)
            except Silent:
                raise
            except WindlassError as error:
                if not isinstance(error.__cause__, (ConnectionError, EOFError)):
                    raise
        return await self._ask(await AsyncConnection.open(server, self._connect_s), call, bound_s)

    async def _ask(self, connection: AsyncConnection, call: Call, bound_s: Optional[float]) -> AsyncResponse:
        address = str(connection.server.address)
        try:
            status, headers = await asyncio.wait_for(connection.send(call), bound_s)
        except asyncio.TimeoutError as error:
            connection.close()
            silent = Silent if call.look_s is None else LookedAway
            raise silent(f"the server at {address} said nothing for {bound_s:.0f} s", address=address) from error
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            connection.close()
            raise lost(error, address) from error
        except BaseException:
            # A cancelled request: its answer would be taken for that of the next one.
            connection.close()
            raise
        opened = AsyncResponse(self, connection, headers)
        if 200 <= status < 300:
            opened.set_silence(bound_s)
            return opened
        async with opened:
            raise refusal(status, await opened.read(), address)

    def _take(self, server: Server) -> Optional[AsyncConnection]:
        idle = self._idle.get(server.address, [])
        while idle:
            connection = idle.pop()
            if connection.is_good():
                return connection
            connection.close()
        return None

    def put_back(self, connection: AsyncConnection, is_last: bool) -> None:
        """Keeps the connection for the next request."""
        idle = self._idle.setdefault(connection.server.address, [])
        if is_last or len(idle) >= IDLE_MAX:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        idle.append(connection)

    def close(self) -> None:
        """Closes the idle connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
