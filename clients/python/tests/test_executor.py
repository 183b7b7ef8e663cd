"""The executor with a real server."""

import concurrent.futures
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any, Dict, List

import windlass
from tests.servers import HUNG_S, WithDirectory
from windlass.models import TasksEvent

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(windlass.__file__)))


class Unsendable(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, lock: Any) -> None:
        super().__init__("it holds a lock")
        self.lock = lock


def power(base: int, exponent: int = 2) -> int:
    return int(base**exponent)


def fail(message: str) -> None:
    raise ValueError(message)


def fail_unsendably() -> None:
    raise Unsendable(threading.Lock())


def fail_until(path: str) -> str:
    """Fails in its first attempt."""
    if os.path.exists(path):
        return "done"
    Path(path).touch()
    raise ValueError("not yet")


def wait_at(path: str) -> str:
    with open(path) as gate:
        return gate.read()


def die() -> None:
    print("no memory for it", file=sys.stderr, flush=True)
    os._exit(7)


def where() -> int:
    return os.getpid()


class Executor(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.client = windlass.Client(self.start_server().address)
        self.addCleanup(self.client.close)

    def executor(self, **options: Any) -> windlass.WindlassExecutor:
        executor = windlass.WindlassExecutor(self.client, directory=str(self.dir / "shared"), **options)
        self.addCleanup(executor.shutdown)
        return executor

    def test_functions_run_as_tasks_and_results_come_back(self) -> None:
        with self.executor(name="powers") as executor:
            self.assertEqual(executor.submit(power, 2, exponent=10).result(HUNG_S), 1024)
            self.assertEqual(list(executor.map(power, range(20), timeout=HUNG_S)), [n * n for n in range(20)])
            futures = [executor.submit(power, number) for number in range(5)]
            done, _ = concurrent.futures.wait(futures, HUNG_S)
            self.assertEqual(len(done), 5)
        self.assertEqual({job.name for job in self.client.jobs()}, {"powers"})
        self.assertEqual(os.listdir(self.dir / "shared"), [], "its directory is removed")

    def test_an_exception_comes_back_with_its_traceback(self) -> None:
        with self.executor() as executor:
            error = executor.submit(fail, "no film").exception(HUNG_S)
            self.assertIsInstance(error, ValueError)
            assert error is not None
            self.assertEqual(str(error), "no film")
            self.assertIn("in fail", str(error.__cause__))
            unsent = executor.submit(fail_unsendably).exception(HUNG_S)
            assert isinstance(unsent, windlass.RemoteError)
            self.assertIn("it holds a lock", str(unsent))
            self.assertIn("in fail_unsendably", unsent.traceback)
        self.assertEqual({job.state for job in self.client.jobs()}, {"failed"}, "the board shows the failure")

    def test_a_process_that_dies_is_an_error_that_says_how(self) -> None:
        with self.executor() as executor:
            error = executor.submit(die).exception(HUNG_S)
        assert isinstance(error, windlass.TaskFailed) and error.task is not None
        self.assertEqual((error.task.exit_code, error.stderr), (7, "no memory for it"))
        self.assertIn("ended with exit code 7", str(error))

    def test_a_function_that_cannot_be_pickled_is_refused_at_once(self) -> None:
        with self.executor() as executor, self.assertRaises(Exception):
            executor.submit(lambda: 1)

    def test_a_failed_call_is_run_again_where_retries_are_given(self) -> None:
        with self.executor(retries=1) as executor:
            self.assertEqual(executor.submit(fail_until, str(self.dir / "mark")).result(HUNG_S), "done")

    def test_a_time_limit_ends_a_call(self) -> None:
        gate = self.gate()
        with self.executor(time_limit_s=0.3) as executor:
            with self.assertRaisesRegex(windlass.TaskFailed, "exceeded its time limit"):
                executor.submit(wait_at, str(gate.path)).result(HUNG_S)

    def test_a_call_is_cancelled_until_a_worker_has_it(self) -> None:
        gate = self.gate()
        with self.executor(cpus=2) as executor:
            running = executor.submit(wait_at, str(gate.path))
            waiting = executor.submit(power, 3)
            with self.assertRaises(concurrent.futures.TimeoutError):
                running.result(timeout=0.01)
            self.assertTrue(waiting.cancel())
            self.assertTrue(waiting.cancelled())
            self.assertEqual(len(concurrent.futures.wait([waiting], HUNG_S).done), 1)
            gate.open()
            self.assertFalse(running.cancel(), "a worker has it")
            self.assertEqual(running.result(HUNG_S), "go\n")
            self.assertFalse(running.cancel())

    def test_a_job_of_which_nothing_is_wanted_is_cancelled(self) -> None:
        gate = self.gate()
        blocking = self.client.submit(gate.command(), cpus=2)
        executor = self.executor()
        futures = [executor.submit(power, number) for number in range(4)]
        executor.shutdown(cancel_futures=True)
        self.assertTrue(all(future.cancelled() for future in futures))
        gate.open()
        self.client.wait(blocking, HUNG_S)
        states = {self.client.wait(job, HUNG_S).state for job in self.client.jobs() if job.id != blocking.job}
        self.assertLessEqual(states, {"canceled", "succeeded"})

    def test_a_job_that_is_cancelled_elsewhere_fails_its_calls(self) -> None:
        gate = self.gate()
        with self.executor() as executor:
            future = executor.submit(wait_at, str(gate.path))
            gate.open()
            self.assertEqual(future.result(HUNG_S), "go\n")
            with self.client.events() as events:
                future = executor.submit(wait_at, str(gate.path))
                job = next(event.job for event in events if isinstance(event, TasksEvent))
            self.client.cancel(job)
            with self.assertRaisesRegex(windlass.TaskFailed, "was cancelled"):
                future.result(HUNG_S)

    def test_a_chunk_runs_several_calls_in_one_process(self) -> None:
        with self.executor(chunks=5) as executor:
            gate = self.gate()
            blocking = self.client.submit(gate.command(), cpus=2)
            futures = [executor.submit(where) for _ in range(10)]
            bad = executor.submit(fail, "one of many")
            gate.open()
            self.client.wait(blocking, HUNG_S)
            processes = {future.result(HUNG_S) for future in futures}
            self.assertLess(len(processes), 10)
            self.assertIsInstance(bad.exception(HUNG_S), ValueError)

    def test_after_shutdown_no_call_is_taken(self) -> None:
        executor = self.executor()
        executor.shutdown()
        with self.assertRaisesRegex(RuntimeError, "after shutdown"):
            executor.submit(power, 2)

    def test_a_server_that_refuses_fails_the_calls_and_not_the_executor(self) -> None:
        with self.executor(queue="x" * 300) as executor:
            self.assertIsInstance(executor.submit(power, 2).exception(HUNG_S), windlass.BadRequest)

    def test_functions_of_a_script_are_found_and_its_end_waits_for_calls(self) -> None:
        script = self.dir / "script.py"
        script.write_text(SCRIPT)
        env: Dict[str, str] = {**os.environ, "PYTHONPATH": PACKAGES, "WINDLASS_SERVER": self.client.address}
        command: List[str] = [sys.executable, str(script), str(self.dir / "shared")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HUNG_S, check=False)
        self.assertEqual((done.stdout, done.stderr), ("Point(x=3)\nlast 4\n", ""))


SCRIPT = """
import sys
from dataclasses import dataclass
from windlass import WindlassExecutor

@dataclass
class Point:
    x: int

def move(point, by):
    return Point(point.x + by)

if __name__ == "__main__":
    executor = WindlassExecutor(directory=sys.argv[1])
    print(executor.submit(move, Point(1), 2).result(60), flush=True)
    executor.submit(move, Point(1), 3).add_done_callback(lambda done: print("last", done.result().x, flush=True))
"""


if __name__ == "__main__":
    unittest.main()
