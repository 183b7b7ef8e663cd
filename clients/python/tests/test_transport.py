"""Answers of HTTP are read, however they are cut, and connections are used again."""

import random
import socket
import unittest
from typing import Any, List, Optional

from windlass import calls
from windlass.address import parse_address
from windlass.answer import lost
from windlass.blocking import BlockingIo, each, run
from windlass.credentials import Credentials
from windlass.errors import ConnectionLost, Garbled, LookedAway, NotFound, Silent
from windlass.servers import Server
from windlass.transport import Transport
from windlass.wire import Wire

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\nA\r\n, farmers!\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nhello, farmers!"
CLOSED = b"HTTP/1.1 200 OK\r\n\r\nhello, farmers!"
REFUSED = b'HTTP/1.1 404 Not Found\r\nContent-Length: 45\r\n\r\n{"error":{"code":"not_found","message":"no"}}'


class CutWire(Wire):
    """Answers each request with the next answer, in pieces of up to `piece` bytes."""

    def __init__(self, answers: List[bytes], seed: int) -> None:
        self._answers = answers
        self._random = random.Random(seed)
        self._coming = b""
        self.is_closed = False

    async def send(self, data: bytes, bound_s: Optional[float]) -> None:
        self._coming = self._answers.pop(0)

    async def receive(self, bytes_max: int, bound_s: Optional[float]) -> bytes:
        size = min(bytes_max, self._random.randint(1, 40))
        part, self._coming = self._coming[:size], self._coming[size:]
        return part

    def is_quiet(self) -> bool:
        return not self._coming

    def close(self) -> None:
        self.is_closed = True


class WiredIo(BlockingIo):
    """Gives out these wires, one after the other."""

    def __init__(self, *wires: Wire) -> None:
        self.wires = list(wires)

    async def connect(self, server: Server, connect_s: float) -> Wire:
        return self.wires.pop(0)


class Answers(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server(parse_address("127.0.0.1:1"), Credentials())

    def ask(self, transport: Transport) -> bytes:
        return run(run(transport.open(self.server, calls.version(), None)).read())

    def test_an_answer_may_be_cut_anywhere(self) -> None:
        for seed in range(50):
            wire = CutWire([CHUNKED, SIZED, CHUNKED, CLOSED], seed)
            io = WiredIo(wire, CutWire([SIZED], seed))
            transport = Transport(io, is_one=True)
            for _ in range(4):
                self.assertEqual(self.ask(transport), b"hello, farmers!", f"seed {seed}")
            self.assertEqual((wire.is_closed, len(io.wires)), (True, 1), "one connection took all four")
            self.assertEqual(self.ask(transport), b"hello, farmers!")

    def test_parts_come_before_the_end(self) -> None:
        transport = Transport(WiredIo(CutWire([CHUNKED], 1)), is_one=True)
        response = run(transport.open(self.server, calls.version(), None))
        self.assertEqual(b"".join(each(response.parts())), b"hello, farmers!")

    def test_a_connection_that_the_server_closed_meanwhile_is_not_an_error(self) -> None:
        transport = Transport(WiredIo(CutWire([SIZED, b""], 1), CutWire([SIZED], 1)), is_one=True)
        self.assertEqual([self.ask(transport) for _ in range(2)], [b"hello, farmers!"] * 2)

    def test_a_refusal_leaves_the_connection_for_others(self) -> None:
        transport = Transport(WiredIo(CutWire([REFUSED, SIZED], 1)), is_one=True)
        with self.assertRaises(NotFound):
            self.ask(transport)
        self.assertEqual(self.ask(transport), b"hello, farmers!")

    def test_what_breaks_off_or_is_not_http_is_an_error(self) -> None:
        cases: List[Any] = [
            (CHUNKED[:-9], ConnectionLost),
            (SIZED[:-1], ConnectionLost),
            (SIZED[:20], ConnectionLost),
            (b"\x15\x03\x03\x00\x02\x02\x46", Garbled),
            (SIZED[:17] + b"a: b\r\n" * 1000, Garbled),
            (SIZED[:17] + b"a" * 100_000, Garbled),
        ]
        for answer, kind in cases:
            wire = CutWire([answer], 1)
            with self.assertRaises(kind):
                self.ask(Transport(WiredIo(wire), is_one=True))
            self.assertTrue(wire.is_closed)

    def test_a_silence_is_told_from_a_line_that_is_down(self) -> None:
        self.assertIs(type(lost(socket.timeout("timed out"), "a", 3.0)), Silent)
        self.assertIs(type(lost(socket.timeout("timed out"), "a", 3.0, LookedAway)), LookedAway)
        self.assertIs(type(lost(TimeoutError(110, "Connection timed out"), "a", None)), ConnectionLost)


if __name__ == "__main__":
    unittest.main()
