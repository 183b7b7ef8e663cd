"""The servers that a client knows, and the order in which it asks them.

A request goes to the server that answered last, and after a failure to the next in the list, once around. Which
failures let it go on depends on the request: after one that was never sent every request does, and after one whose
answer was lost only a request that may be made twice.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .address import Address
from .calls import Call
from .credentials import Credentials
from .errors import (
    Garbled,
    LookedAway,
    NoAnswer,
    NoServerAnswers,
    Refused,
    Unsure,
    Untrusted,
    Verdict,
    WindlassError,
)

logger = logging.getLogger("windlass")

OUTAGE_S = 60.0
"""How long no server may answer a client that follows something."""
PAUSE_MIN_S = 0.1
"""The first pause before a retry."""
PAUSE_MAX_S = 2.0
"""The longest pause before a retry."""


@dataclass
class Server:
    """A server of the farm, and what it is shown."""

    address: Address
    credentials: Credentials
    token: Optional[str] = None
    was_told: bool = False
    """True once a person was told what is wrong there."""


class Servers:
    """All servers that a client knows: at least one."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.all: List[Server] = list(servers)
        self.first = 0
        """The place of the one that is asked first."""

    @property
    def are_several(self) -> bool:
        return len(self.all) > 1

    def current(self) -> Server:
        return self.all[self.first]

    def pass_over(self, error: WindlassError) -> None:
        """Asks the next one first from now on, if the one that failed so is still asked first. For a stream that broke:
        requests go on by themselves."""
        if isinstance(error, NoAnswer) and error.address == str(self.current().address):
            self.first = (self.first + 1) % len(self.all)


class Circle:
    """One request on its way around the servers."""

    def __init__(self, servers: Servers, call: Call) -> None:
        self._servers = servers
        self._call = call
        self._place = servers.first
        self._failures: List[Tuple[str, WindlassError]] = []

    def __iter__(self) -> Iterator[Server]:
        start, count = self._servers.first, len(self._servers.all)
        for tried in range(count):
            self._place = (start + tried) % count
            yield self._servers.all[self._place]

    def bound_s(self) -> Optional[float]:
        """How long the answer may take. A client of one server waits for as long as the connection lasts."""
        if self._call.look_s is not None:
            return self._call.look_s
        return self._call.bound_s() if self._servers.are_several else None

    def answered(self) -> None:
        self._servers.first = self._place

    def failed(self, error: WindlassError) -> None:
        """Takes the failure of the last server. Raises an error if no other one is asked."""
        error.doing = self._call.doing
        if not self._servers.are_several or isinstance(error, LookedAway):
            raise error
        server = self._servers.all[self._place]
        if error.verdict is Verdict.ANSWERED:
            self.answered()
            raise error
        if error.verdict is Verdict.UNKNOWN and not self._call.is_repeatable:
            # A server that answers with a refusal has done nothing.
            raise error if isinstance(error, Refused) else self._unsure(server, error)
        if isinstance(error, (Untrusted, Garbled)) and not server.was_told:
            server.was_told = True
            logger.warning(
                "the server at %s cannot be used: %s; the next address is tried", server.address, error.message
            )
        self._failures.append((str(server.address), error))

    def _unsure(self, server: Server, error: WindlassError) -> Unsure:
        unsure = Unsure(
            f"whether it was done is not known, because the answer of the server at {server.address} was lost: "
            f"{error.message}",
            address=str(server.address),
        )
        unsure.doing = self._call.doing
        unsure.__cause__ = error
        return unsure

    def none(self) -> NoServerAnswers:
        """The failures of all servers."""
        error = NoServerAnswers.of(self._failures)
        error.doing = self._call.doing
        return error


class Outage:
    """The time for which no server answers a client that follows something."""

    def __init__(self) -> None:
        self._since_s: Optional[float] = None
        self._pause_s = PAUSE_MIN_S

    def calm(self) -> None:
        """A server answers."""
        self._since_s, self._pause_s = None, PAUSE_MIN_S

    def pause_s(self, error: WindlassError) -> float:
        """How long to wait before the request is made again. Raises the error if waiting cannot help, or has not helped
        for too long."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        if not error.is_temporary or now_s - self._since_s > OUTAGE_S:
            raise error
        pause_s = self._pause_s
        self._pause_s = min(pause_s * 2, PAUSE_MAX_S)
        return pause_s


def request_headers(server: Server, call: Call) -> Dict[str, str]:
    """The headers of a request, besides those that its way of sending adds."""
    headers = {"Accept": "application/json, */*", "User-Agent": "windlass-python"}
    if server.token is not None:
        headers["Authorization"] = f"Bearer {server.token}"
    if call.body is not None or call.file is not None:
        headers["Content-Type"] = call.content_type
    if call.last_event_id is not None:
        headers["Last-Event-ID"] = call.last_event_id
    return headers
