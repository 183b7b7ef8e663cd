"""Which of several servers is asked, and what is asked twice. The servers here are small ones that answer as told."""

import asyncio
import http.server
import json
import signal
import socket
import threading
import unittest
from typing import Any, Callable, Dict, List, Optional, Tuple
from unittest import mock

import windlass
from tests.servers import HUNG_S
from windlass.models import Lagged

JOB: Dict[str, Any] = {
    "id": 5,
    "name": "film",
    "state": "succeeded",
    "queue": "ann",
    "user": "ann",
    "priority": 0,
    "counts": {"total": 1, "succeeded": 1},
    "created_ms": 1,
}
VERSION = {"version": "1", "pid": 1, "user": "ann"}
UNAVAILABLE = (503, {"error": {"code": "unavailable", "message": "no owner now"}})

Answer = Optional[Tuple[int, Any]]
"""A status and a body; None breaks the connection."""


class FakeServer(http.server.ThreadingHTTPServer):
    """Answers each request as `answer` says, and notes what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.answer = answer
        self.asked: List[Tuple[str, Any]] = []
        self.headers: List[Dict[str, str]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes a stream does no harm to the server."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class FakeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((f"{self.command} {self.path}", json.loads(body) if body else None))
        self.server.headers.append(dict(self.headers))
        answer = self.server.answer(self.path)
        if answer is None:
            self.close_connection = True
            return
        status, data = answer
        text = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = handle_one

    def log_message(self, format: str, *args: Any) -> None:
        pass


def closed_port() -> str:
    """An address where no program listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


class Several(unittest.TestCase):
    def fake(self, answer: Callable[[str], Answer]) -> FakeServer:
        server = FakeServer(answer)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def client(self, *addresses: str) -> windlass.Client:
        client = windlass.Client(",".join(addresses), token="wl_a_b")
        self.addCleanup(client.close)
        return client

    def test_the_next_one_is_asked_where_none_listens(self) -> None:
        live = self.fake(lambda _: (200, JOB))
        client = self.client(closed_port(), live.address)
        self.assertEqual(client.job(5).name, "film")
        self.assertEqual(client.address, f"http://{live.address}", "it is asked first from then on")
        self.assertEqual(live.headers[0]["Authorization"], "Bearer wl_a_b")

    def test_a_submission_whose_answer_is_lost_is_made_again_with_the_same_key(self) -> None:
        lost = self.fake(lambda path: None if path.endswith("jobs") else (200, VERSION))
        live = self.fake(lambda _: (201, {"job": 5, "existing": False}))
        submitted = self.client(lost.address, live.address).submit(["true"])
        self.assertEqual(submitted.job, 5)
        (_, first), (_, second) = lost.asked[-1], live.asked[-1]
        self.assertTrue(first["key"])
        self.assertEqual(first, second)
        self.assertEqual(first["user"], "ann", "the user is that of the token")

    def test_a_retry_is_made_once(self) -> None:
        lost = self.fake(lambda _: None)
        live = self.fake(lambda _: (200, JOB))
        with self.assertRaisesRegex(windlass.Unsure, "whether it was done is not known"):
            self.client(lost.address, live.address).retry(5)
        self.assertEqual(live.asked, [])

    def test_a_retry_goes_on_where_it_was_not_sent(self) -> None:
        live = self.fake(lambda _: (200, JOB))
        self.assertEqual(self.client(closed_port(), live.address).retry(5).id, 5)

    def test_a_server_that_is_unavailable_leaves_the_answer_to_others(self) -> None:
        busy = self.fake(lambda _: UNAVAILABLE)
        live = self.fake(lambda _: (200, JOB))
        self.assertEqual(self.client(busy.address, live.address).cancel(5).id, 5)
        with self.assertRaisesRegex(windlass.Unavailable, "no owner now"):
            self.client(busy.address, live.address).retry(5)

    def test_any_other_answer_is_the_answer(self) -> None:
        refusing = self.fake(lambda _: (404, {"error": {"code": "not_found", "message": "there is no job 5"}}))
        live = self.fake(lambda _: (200, JOB))
        with self.assertRaises(windlass.NotFound):
            self.client(refusing.address, live.address).job(5)
        self.assertEqual(live.asked, [])

    def test_another_program_is_told_of_and_passed_over(self) -> None:
        other = self.fake(lambda _: (200, b"<html>"))
        live = self.fake(lambda _: (200, JOB))
        client = self.client(other.address, live.address)
        with self.assertLogs("windlass", "WARNING") as logged:
            self.assertEqual(client.job(5).id, 5)
        self.assertIn("cannot be used", logged.output[0])

    def test_if_none_answers_each_is_named(self) -> None:
        busy, none = self.fake(lambda _: UNAVAILABLE), closed_port()
        with self.assertRaises(windlass.NoServerAnswers) as caught:
            self.client(none, busy.address).job(5)
        error = caught.exception
        self.assertIn(none, str(error))
        self.assertIn("no owner now", str(error))
        self.assertTrue(error.is_temporary)
        self.assertEqual(len(error.failures), 2)

    def test_a_wait_leaves_a_server_that_says_nothing(self) -> None:
        quiet = threading.Event()
        self.addCleanup(quiet.set)

        def hang(_: str) -> Answer:
            quiet.wait()
            return None

        stuck, live = self.fake(hang), self.fake(lambda path: (200, JOB if "jobs" in path else VERSION))
        client = self.client(stuck.address, live.address)
        with mock.patch("windlass.aio.WAIT_LOOK_S", 0.05), mock.patch("windlass.calls.GREETING_S", 0.05):
            self.assertEqual(client.wait(5).state, "succeeded")
        self.assertEqual(client.address, f"http://{live.address}")

    def submissions(self, *, answers: bool = True) -> Tuple[FakeServer, threading.Event]:
        """A server that keeps back the answer of the first submission, and the event of its arrival. Where it has no
        `answers`, it keeps back those of all."""
        asked, never = threading.Event(), threading.Event()
        self.addCleanup(never.set)

        def serve(path: str) -> Answer:
            if not path.endswith("/jobs"):
                return 200, JOB if "jobs" in path else VERSION
            if not asked.is_set() or not answers:
                asked.set()
                never.wait()
                return None
            return 200, {"job": 5, "existing": True}

        return self.fake(serve), asked

    def check_cancelled(self, server: FakeServer) -> None:
        """The submission was made again with its key, and its job was cancelled."""
        keys = [body["key"] for path, body in server.asked if path == "POST /api/v1/jobs"]
        self.assertEqual((len(keys), len(set(keys))), (2, 1), server.asked)
        self.assertEqual(server.asked[-1][0], "POST /api/v1/jobs/5/cancel")

    def test_a_run_that_is_cancelled_while_it_submits_cancels_its_job(self) -> None:
        server, asked = self.submissions()

        async def work() -> None:
            async with windlass.AsyncClient(server.address, token="wl_a_b") as client:
                run = asyncio.ensure_future(client.run(["true"]))
                await asyncio.get_running_loop().run_in_executor(None, asked.wait, HUNG_S)
                run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await asyncio.wait_for(run, HUNG_S)

        asyncio.run(work())
        self.check_cancelled(server)

    def interrupted_run(self, server: FakeServer, asked: threading.Event) -> None:
        """A run that is interrupted when its submission has arrived."""

        def interrupt() -> None:
            asked.wait(HUNG_S)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            self.client(server.address).run(["true"])
        thread.join(HUNG_S)

    def test_a_run_that_is_interrupted_while_it_submits_cancels_its_job(self) -> None:
        server, asked = self.submissions()
        self.interrupted_run(server, asked)
        self.check_cancelled(server)

    def test_an_interrupted_run_ends_although_the_server_answers_nothing(self) -> None:
        server, asked = self.submissions(answers=False)
        with mock.patch("windlass.aio.CANCEL_S", 0.05):
            self.interrupted_run(server, asked)
        self.assertNotIn("cancel", server.asked[-1][0])

    def test_a_submission_that_is_refused_is_not_made_again(self) -> None:
        refusal = (403, {"error": {"code": "forbidden", "message": "no"}})
        server = self.fake(lambda path: refusal if path.endswith("/jobs") else (200, VERSION))
        with self.assertRaises(windlass.Forbidden):
            self.client(server.address).run(["true"])
        self.assertEqual(len([path for path, _ in server.asked if path.endswith("/jobs")]), 1)

    def test_a_stream_of_events_resumes_by_the_last_id_or_says_that_events_were_missed(self) -> None:
        event = b'data: {"worker":{"worker":"box1","what":"up"}}\n\n'
        for prefix, between in ((b"", [Lagged()]), (b"id: 41\n", [])):
            server = self.fake(lambda _, prefix=prefix: (200, prefix + event))  # type: ignore[misc]
            events = self.client(server.address).events()
            seen = [next(events) for _ in range(2 + len(between))]
            self.assertEqual(seen[1:-1], between)
            self.assertEqual(server.headers[1].get("Last-Event-ID"), "41" if prefix else None)
            events.close()


if __name__ == "__main__":
    unittest.main()
