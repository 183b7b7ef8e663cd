"""Requests over TCP, TLS or a unix socket, with blocking calls."""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
import time
from typing import Dict, Iterator, List, Optional, Tuple

from .address import Address
from .answer import ANSWER_BYTES_MAX, lost, not_connected, refusal
from .calls import Call
from .errors import Garbled, LookedAway, Silent, WindlassError
from .servers import Server, request_headers

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


class Connection(http.client.HTTPConnection):
    """A connection to a server. The host of a unix socket is a name that stands for it."""

    def __init__(self, server: Server, connect_s: float) -> None:
        self.server = server
        self.idle_since_s = 0.0
        host, port, self.prefix = server.address.host_port_path()
        super().__init__(host, port, timeout=connect_s)

    def connect(self) -> None:
        address = self.server.address
        if address.path is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(self.timeout)
            try:
                sock.connect(address.path)
            except BaseException:
                sock.close()
                raise
            self.sock = sock
            return
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if address.is_https:
            context = self.server.credentials.ssl_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)

    def is_quiet(self) -> bool:
        """True if the server has not closed it."""
        return self.sock is not None and not select.select([self.sock], [], [], 0)[0]


class Response:
    """An answer that is a success, and is read as it comes."""

    def __init__(
        self,
        transport: Transport,
        connection: Connection,
        sock: socket.socket,
        response: http.client.HTTPResponse,
    ) -> None:
        self._transport = transport
        self._connection: Optional[Connection] = connection
        # A response after which the server closes takes the socket from its connection.
        self._sock = sock
        self._response = response
        self.address = str(connection.server.address)

    def header(self, name: str) -> Optional[str]:
        return self._response.getheader(name)

    def set_silence(self, silent_s: Optional[float]) -> None:
        """After such a silence the answer ends with an error."""
        self._sock.settimeout(silent_s)

    def read(self) -> bytes:
        """The whole answer."""
        try:
            body = self._whole()
        except socket.timeout as error:
            raise Silent(f"the server at {self.address} stopped in its answer", address=self.address) from error
        except (OSError, http.client.HTTPException) as error:
            raise lost(error, self.address) from error
        if len(body) > ANSWER_BYTES_MAX:
            raise Garbled(f"an answer is longer than {ANSWER_BYTES_MAX} bytes", "ask for a part of it", self.address)
        self._keep()
        return body

    def _whole(self) -> bytes:
        """The body, or a part of it that is too long already."""
        length = self._response.length
        if length is not None and length <= ANSWER_BYTES_MAX:
            return self._response.read()
        # Python 3.9 makes room for all bytes that are asked for, so the bound is not asked for at once.
        parts, size = [], 0
        while size <= ANSWER_BYTES_MAX:
            part = self._response.read1(PART_BYTES)
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def read_and_close(self) -> bytes:
        """The whole answer. If reading is interrupted, the connection is closed."""
        with self:
            return self.read()

    def parts(self) -> Iterator[bytes]:
        """The answer as it comes."""
        while True:
            try:
                part = self._response.read1(PART_BYTES)
            except socket.timeout as error:
                raise Silent(f"the server at {self.address} said nothing for too long", address=self.address) from error
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise lost(error, self.address) from error
            if not part:
                self._keep()
                return
            yield part

    def _keep(self) -> None:
        """Gives the connection back: the answer was read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.put_back(connection, self._response)

    def close(self) -> None:
        """Closes the connection, if the answer was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._response.close()
            connection.close()

    def interrupt(self) -> None:
        """Ends the answer for another thread that reads it."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is closed already.
            pass

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport:
    """Sends requests, and keeps connections for the next ones. Threads may share it."""

    def __init__(self, is_one: bool) -> None:
        self._connect_s = CONNECT_S if is_one else CONNECT_AMONG_S
        self._idle: Dict[Address, List[Connection]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def open(self, server: Server, call: Call, bound_s: Optional[float]) -> Response:
        """Sends the request. An answer that is not a success is an error."""
        address = str(server.address)
        # A connection that was idle may be closed by the server at the same moment. A request that is made once gets a
        # fresh one, and others are made again.
        connection = self._take(server) if call.is_repeatable else None
        if connection is not None:
            try:
                return self._ask(connection, call, bound_s, address)
            except Silent:
                raise
            except WindlassError as error:
                if not isinstance(error.__cause__, (ConnectionError, http.client.BadStatusLine)):
                    raise
        connection = Connection(server, self._connect_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise not_connected(error, address) from error
        return self._ask(connection, call, bound_s, address)

    def _ask(self, connection: Connection, call: Call, bound_s: Optional[float], address: str) -> Response:
        """Sends the request over the connection."""
        sock = connection.sock
        sock.settimeout(bound_s)
        try:
            headers = request_headers(connection.server, call)
            connection.request(call.method, connection.prefix + call.path, call.body, headers)
            response = connection.getresponse()
        except socket.timeout as error:
            connection.close()
            silent = Silent if call.look_s is None else LookedAway
            raise silent(f"the server at {address} said nothing for {bound_s:.0f} s", address=address) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise lost(error, address) from error
        except BaseException:
            # Such as Ctrl-C: the answer would be taken for that of the next request.
            connection.close()
            raise
        opened = Response(self, connection, sock, response)
        if 200 <= response.status < 300:
            return opened
        with opened:
            raise refusal(response.status, opened.read(), address)

    def _take(self, server: Server) -> Optional[Connection]:
        """An idle connection that is still good."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked process must not write to the connections of the one that it came from.
                self._idle, self._pid = {}, os.getpid()
            idle = self._idle.get(server.address, [])
            while idle:
                connection = idle.pop()
                if time.monotonic() - connection.idle_since_s < IDLE_S and connection.is_quiet():
                    return connection
                connection.close()
        return None

    def put_back(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        """Keeps the connection for the next request."""
        if connection.sock is None or response.will_close:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(connection.server.address, [])
            if self._pid == os.getpid() and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            for idle in self._idle.values():
                for connection in idle:
                    connection.close()
            self._idle.clear()
