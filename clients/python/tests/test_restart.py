"""Servers that end, crash and start again, and the user's own server, which starts by itself."""

import os
import signal
import threading
import unittest
from typing import List

import windlass
from tests.servers import HUNG_S, WithDirectory


class Restarts(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.server = self.start_server()
        self.client = windlass.Client(self.server.address)
        self.addCleanup(self.client.close)

    def test_a_wait_outlives_a_crash_of_the_server(self) -> None:
        gate = self.gate()
        job = self.run_until_gate(self.client, gate)
        ended: List[windlass.Job] = []
        waiter = threading.Thread(target=lambda: ended.append(self.client.wait(job, HUNG_S)))
        waiter.start()
        self.server.kill()
        self.server.start()
        gate.open()
        waiter.join(HUNG_S)
        self.assertEqual([job.state for job in ended], ["succeeded"])

    def test_an_output_that_is_followed_goes_on_at_its_byte(self) -> None:
        gate = self.gate()
        job = self.client.submit(["sh", "-c", f"echo one; read line <{gate.path}; echo two"]).job
        parts = self.client.follow_log(f"{job}.0")
        self.assertEqual(next(parts), b"one\n")
        self.server.stop()
        self.server.start()
        gate.open()
        self.assertEqual(b"".join(parts), b"two\n")

    def test_ends_that_happen_between_two_servers_are_told(self) -> None:
        gates = [self.gate(f"gate{number}") for number in (0, 1)]
        job = self.client.submit(["sh", "-c", f"read line <{self.dir}/gate{{}}"], values=[0, 1]).job
        ends = self.client.as_completed(job)
        gates[0].open()
        self.assertEqual(next(ends).index, 0)
        self.server.kill()
        gates[1].open()
        self.server.start()
        self.assertEqual([end.index for end in ends], [1])

    def test_an_executor_outlives_a_crash_of_the_server(self) -> None:
        gate = self.gate()
        with windlass.WindlassExecutor(self.client, directory=str(self.dir)) as executor:
            future = executor.submit(gate.path.read_text)
            self.assertEqual(executor.submit(abs, -1).result(HUNG_S), 1)
            self.server.kill()
            self.server.start()
            gate.open()
            self.assertEqual(future.result(HUNG_S), "go\n")


class OwnServer(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.client = windlass.Client()
        self.addCleanup(self.end)
        self.addCleanup(self.client.close)

    def end(self) -> None:
        self.program("server", "stop")

    def test_it_starts_when_a_request_needs_it(self) -> None:
        with self.subTest("at first"):
            self.assertEqual(self.client.run(["echo", "hello"]).text, "hello")
            self.assertEqual(self.client.address, f"unix:{self.dir}/state/run/server.sock")
        with self.subTest("after it ended"):
            os.kill(self.client.version().pid, signal.SIGKILL)
            self.assertEqual(self.client.run(["echo", "again"]).text, "again")

    def test_without_the_program_the_error_says_what_to_do(self) -> None:
        os.environ.update(WINDLASS="", PATH="/nowhere", WINDLASS_STATE=str(self.dir / "other"))
        with self.assertRaisesRegex(windlass.Unreachable, "^cannot reach the server: .*not in PATH; install it"):
            windlass.Client().version()
        os.environ["WINDLASS"] = "/nowhere/windlass"
        with self.assertRaisesRegex(windlass.Unreachable, "cannot run /nowhere/windlass"):
            windlass.Client().version()
        self.client.version()


if __name__ == "__main__":
    unittest.main()
