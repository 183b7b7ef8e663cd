"""What the answers of servers mean, whichever way they came."""

from __future__ import annotations

import json
import re
import socket
import ssl
from typing import Any, Container, Iterator, List, Optional, Type

from .errors import REFUSALS, ConnectionLost, Garbled, NoAnswer, Silent, Unreachable, Untrusted, WindlassError
from .models import Event, event_from_json

ANSWER_BYTES_MAX = 256 << 20
"""Most bytes of an answer that is read as a whole."""
EVENT_BYTES_MAX = 64 << 20
"""Most bytes of one event: one tells of as many tasks as became durable together."""
EVENTS_SILENT_S = 45.0
"""How long a stream of events may be silent: three times as long as a server that lives is."""


def refusal(status: int, body: bytes, address: str) -> WindlassError:
    """The error for an answer that is not a success."""
    try:
        detail = json.loads(body)["error"]
        code, message = detail["code"], detail["message"]
    except (ValueError, KeyError, TypeError):
        message = f"the server at {address} answers {status}, not as a Windlass server would"
        return Garbled(message, address=address)
    error = REFUSALS[code if code in REFUSALS else _code_of(status)]
    return error(message, detail.get("hint"), status)


def _code_of(status: int) -> str:
    """The nearest kind of error, for a code of a newer server."""
    words = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 503: "unavailable"}
    return words.get(status, "internal" if status >= 500 else "bad_request")


def parse(body: bytes, address: str) -> Any:
    """The JSON of an answer."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise Garbled(f"the answer of the server at {address} cannot be read: {error}", address=address) from error


def not_connected(error: Exception, address: str) -> Unreachable:
    """The error for a connection that was not made."""
    why = describe(error)
    if isinstance(error, ssl.SSLError):
        return Untrusted(f"the server at {address} is not trusted: {why}", address=address)
    return Unreachable(f"no server answers at {address}: {why}", address=address)


def lost(error: Exception, address: str, bound_s: Optional[float], silent: Type[Silent] = Silent) -> NoAnswer:
    """The error for a connection that was silent for longer than its bound or broke, or on which something else than
    HTTP came."""
    if isinstance(error, NotHttp):
        # So a server with TLS answers plain HTTP.
        hint = "if this port speaks TLS, write https://HOST:PORT"
        return Garbled(f"the server at {address} does not answer as one of HTTP would", hint, address)
    if isinstance(error, socket.timeout) and bound_s is not None:
        return silent(f"the server at {address} said nothing for {bound_s:.0f} s", address=address)
    return ConnectionLost(f"the connection to the server at {address} broke: {describe(error)}", address=address)


class NotHttp(ValueError):
    """Something else than an answer of HTTP."""


def describe(error: Exception) -> str:
    """The cause in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, socket.timeout):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class EventParser:
    """Reads server-sent events from the bytes of a stream, however they are cut."""

    def __init__(self, job_ids: Optional[Container[int]] = None) -> None:
        self.last_event_id: Optional[str] = None
        """The id of the last event; None if the server gives none."""
        self._job_ids = job_ids
        self._rest = b""
        self._data: List[bytes] = []
        self._id: Optional[str] = None

    def feed(self, part: bytes) -> Iterator[Event]:
        """The events that are whole with this part."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > EVENT_BYTES_MAX:
            raise Garbled(f"an event of the server is longer than {EVENT_BYTES_MAX} bytes")
        for line in lines:
            event = self._line(line.rstrip(b"\r"))
            if event is not None:
                yield event

    def _line(self, line: bytes) -> Optional[Event]:
        if line:
            name, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if name == b"data":
                self._data.append(value)
            elif name == b"id":
                self._id = value.decode(errors="replace")
            return None
        data, self._data = b"\n".join(self._data), []
        if self._id is not None:
            self.last_event_id, self._id = self._id, None
        if not data or not self._is_wanted(data):
            return None
        try:
            return event_from_json(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Garbled(f"an event of the server cannot be read: {error}") from error

    def _is_wanted(self, data: bytes) -> bool:
        """False of an event of another job, which need not be parsed: a busy farm has many."""
        if self._job_ids is None:
            return True
        found = _JOB_OF_EVENT.match(data)
        return found is None or int(found[1]) in self._job_ids


_JOB_OF_EVENT = re.compile(rb'\{"(?:tasks|job)":\{"job":(\d+)[,}]')


class Place:
    """The place of the next byte of an output that is followed, for when a connection breaks."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def begin(self, header: Optional[str]) -> None:
        """Takes the place of the first byte, which a server tells of an output that was asked for from its end."""
        if header is not None and header.isdigit():
            self.offset = int(header)

    def add(self, part: bytes) -> bytes:
        if self.offset >= 0:
            self.offset += len(part)
        return part


def end_of(data: bytes, lines_max: int = 20, bytes_max: int = 4096) -> str:
    """The last lines of an output, for an error."""
    return "\n".join(data[-bytes_max:].decode(errors="replace").rstrip().splitlines()[-lines_max:])
