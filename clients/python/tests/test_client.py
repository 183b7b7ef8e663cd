"""The client with a real server on a unix socket."""

import itertools
import json
import os
import signal
import sys
import threading
import unittest
import unittest.mock
from typing import List

import windlass
from tests.servers import HUNG_S, Gate, WithDirectory, variables
from windlass.models import JobEvent, TasksEvent


class WithServer(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.server = self.start_server()
        os.environ["WINDLASS_SERVER"] = self.server.address
        self.client = windlass.Client()
        self.addCleanup(self.client.close)


class Submissions(WithServer):
    def test_a_command_runs_and_its_output_comes_back(self) -> None:
        done = self.client.run(["sh", "-c", "echo out; echo err >&2; pwd"], cwd=str(self.dir))
        self.assertEqual(done.text, f"out\n{self.dir}")
        self.assertEqual(done.stderr, b"err\n")
        self.assertEqual((done.task.state, done.task.exit_code, done.task.last.end), ("succeeded", 0, "exited"))

    def test_values_are_mapped_in_their_order(self) -> None:
        done = self.client.map(["echo", "got {}"], ["b", "a", 3])
        self.assertEqual([one.text for one in done], ["got b", "got a", "got 3"])
        self.assertEqual([one.task.value for one in done], ["b", "a", "3"])
        self.assertEqual(self.client.map(["false"], []), [])

    def test_a_failure_says_which_task_and_why(self) -> None:
        with self.assertRaises(windlass.JobFailed) as caught:
            self.client.map(["sh", "-c", "echo no film >&2; test {} != 2"], [1, 2, 3])
        error = caught.exception
        assert error.task is not None and error.job is not None
        self.assertEqual((error.task.index, error.job.counts.failed, error.stderr), (1, 1, "no film"))
        self.assertIn("exit code 1", str(error))

    def test_an_array_has_a_task_for_each_number(self) -> None:
        job = self.client.wait(self.client.submit(["true"], array=range(10, 0, -3), name="film", priority=4))
        self.assertEqual((job.name, job.priority, job.counts.succeeded, job.has_succeeded), ("film", 4, 4, True))
        self.assertEqual([task.value for task in self.client.tasks(job)], ["10", "7", "4", "1"])

    def test_a_whole_job_is_submitted_as_the_interface_takes_it(self) -> None:
        spec: windlass.JobSpec = {
            "name": "film",
            "steps": [
                {"name": "render", "command": ["echo", "{}"], "param": {"range": {"start": 1, "end": 2}}},
                {"name": "join", "command": ["true"], "depends": [{"on": "render"}], "env": {"A": "1"}},
            ],
        }
        job = self.client.wait(self.client.submit_spec(spec))
        self.assertEqual((job.state, job.counts.total), ("succeeded", 3))
        self.assertEqual([task.step for task in self.client.tasks(job)], ["render", "render", "join"])

    def test_a_key_makes_one_job_of_two_submissions(self) -> None:
        first = self.client.submit(["true"], key="once")
        second = self.client.submit(["true"], key="once")
        self.assertEqual((first.job, first.existing, second.existing), (second.job, False, True))

    def test_a_job_that_no_worker_can_run_is_refused_or_told(self) -> None:
        with self.assertRaises(windlass.CannotBePlaced):
            self.client.submit(["true"], cpus=64, placeable_only=True)
        self.assertEqual(len(self.client.submit(["true"], cpus=64).unplaceable), 1)

    def test_jobs_wait_for_jobs(self) -> None:
        gate = self.gate()
        first = self.client.submit(gate.command())
        second = self.client.submit(["true"], after=[first.job])
        self.assertEqual(self.client.why(f"{second.job}.0").reason, "after_jobs")
        gate.open()
        self.assertTrue(self.client.wait(second).has_succeeded)

    def test_jobs_wait_for_failures_ends_and_tasks(self) -> None:
        failed = self.client.submit(["sh", "-c", "exit {}"], array="0-1", fail_fast="kill:2").job
        clean_up = self.client.submit(
            ["true"], after_not_ok=[failed], max_running=1, limits=["maya"], limit_unset_ok=True
        )
        then = self.client.submit(["true"], array="0-1", after_each=failed, on_failure=["https://hooks.example/a"])
        last = self.client.submit(["true"], after_any=[then.job], max_wait_s=60)
        self.assertTrue(self.client.wait(last).has_succeeded)
        self.client.wait(clean_up)
        job = self.client.job(clean_up)
        self.assertEqual((job.state, job.after_not_ok, job.max_running), ("succeeded", (failed,), 1))
        self.assertEqual((job.steps[0].limits, job.steps[0].command), (("maya",), ("true",)))
        self.assertEqual(self.client.job(last).steps[0].deadline_ms, 60_000)
        job = self.client.job(then)
        self.assertEqual((job.after_tasks, job.counts.succeeded, job.counts.skipped), (failed, 1, 1))
        self.assertEqual(job.on_end, ({"url": "https://hooks.example/a", "only_failures": True},))

    def test_a_dry_run_says_what_would_start_and_what_would_wait(self) -> None:
        would = self.client.dry_run(["true"], array="1-5", name="film", queue="night")
        (step,) = would.steps
        self.assertEqual((would.name, would.queue_created, step.step.tasks), ("film", True, 5))
        self.assertEqual((sum(one.tasks for one in step.starts), step.waiting), (2, 3))
        assert step.why is not None
        self.assertEqual(step.why.reason, "full")
        self.assertEqual(list(self.client.jobs()), [])

    def test_a_time_limit_ends_a_task(self) -> None:
        with self.assertRaisesRegex(windlass.JobFailed, "exceeded its time limit"):
            self.client.run(self.gate().command(), time_limit_s=0.2)


class Verbs(WithServer):
    def running(self, gate: Gate) -> int:
        """A job that runs and waits at the gate."""
        return self.run_until_gate(self.client, gate)

    def test_a_running_job_is_cancelled(self) -> None:
        job = self.running(self.gate())
        self.client.cancel(job)
        self.assertEqual(self.client.wait(job, HUNG_S).state, "canceled")
        self.assertEqual(self.client.task(f"{job}.0").state, "canceled")
        with self.assertRaises(windlass.Conflict):
            self.client.cancel(job)
        with self.assertRaisesRegex(windlass.JobFailed, "was cancelled"):
            self.client.check(self.client.job(job))

    def test_a_wait_that_takes_too_long_leaves_the_job_running(self) -> None:
        gate = self.gate()
        job = self.running(gate)
        with self.assertRaises(TimeoutError) as caught:
            self.client.wait(job, timeout_s=0.05)
        self.assertIsInstance(caught.exception, windlass.WaitTimeout)
        gate.open()
        self.assertTrue(self.client.wait(job).has_succeeded)

    def test_a_run_that_takes_too_long_is_cancelled(self) -> None:
        with self.assertRaises(windlass.WaitTimeout):
            self.client.run(self.gate().command(), timeout_s=0.05)
        (job,) = self.client.jobs()
        self.assertEqual(self.client.wait(job, HUNG_S).state, "canceled")

    def test_an_interrupted_run_cancels_its_job(self) -> None:
        start, gate = self.gate("start"), self.gate()

        def interrupt() -> None:
            start.open()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            self.client.run(["sh", "-c", f"read line <{start.path}; read line <{gate.path}"])
        thread.join(HUNG_S)
        (job,) = self.client.jobs()
        self.assertEqual(self.client.wait(job, HUNG_S).state, "canceled")

    def test_failed_tasks_run_again_on_request(self) -> None:
        mark = self.dir / "mark"
        job = self.client.submit(["test", "-e", str(mark)]).job
        self.assertEqual(self.client.wait(job).state, "failed")
        mark.touch()
        self.client.retry(job)
        self.assertEqual(self.client.wait(job).state, "succeeded")
        self.assertEqual(self.client.task(f"{job}.0").last.attempt, 2)
        with self.assertRaises(windlass.Conflict):
            self.client.retry(job)

    def test_single_tasks_are_cancelled_and_run_again(self) -> None:
        mark = self.dir / "mark"
        job = self.client.submit(["test", "-e", str(mark)], array="0-3").job
        self.assertEqual(self.client.wait(job).counts.failed, 4)
        mark.touch()
        self.client.retry(job, "0,2-3")
        self.assertEqual(self.client.wait(job).counts.succeeded, 3)
        blocking = self.run_until_gate(self.client, self.gate())
        waiting = self.client.submit(["true"], array="0-3", after=[blocking]).job
        self.assertEqual(self.client.cancel(waiting, "1-2").counts.canceled, 2)
        self.client.cancel(waiting)
        self.client.cancel(blocking)

    def test_why_tasks_failed_is_told_by_cause(self) -> None:
        job = self.client.submit(["sh", "-c", "echo no film >&2; exit $(({} % 2 + 3))"], array="1-5")
        self.client.wait(job)
        failures = self.client.failures(job)
        self.assertEqual((failures.failed, [group.tasks for group in failures.groups]), (5, [3, 2]))
        first = failures.groups[0].first
        self.assertEqual((first.task, first.failure.summary), (f"{job.job}.0", "exit code 4"))
        self.assertEqual(first.failure.stderr, ("no film",))
        (listed,) = self.client.jobs(reasons=True)
        assert listed.reason is not None
        self.assertEqual(listed.reason.word, "exit_code")
        task = self.client.task(f"{job.job}.0")
        assert task.failure is not None
        self.assertEqual(task.failure.cause, "exit_code")
        self.assertEqual(self.client.why(task).failure, first)

    def test_a_held_job_waits_for_its_release(self) -> None:
        first, gate = self.gate("first"), self.gate("second")
        blocking = self.client.submit(first.command(), cpus=2)
        job = self.client.submit(gate.command()).job
        self.assertEqual(self.client.hold(job).state, "held")
        self.assertEqual(self.client.why(f"{job}.0").reason, "held")
        self.assertEqual(self.client.set_priority(job, 3).priority, 3)
        first.open()
        self.client.wait(blocking)
        self.client.release(job)
        gate.open()
        self.assertTrue(self.client.wait(job).has_succeeded)

    def test_why_says_what_would_start_a_task(self) -> None:
        gate = self.gate()
        job = self.client.submit(gate.command(), cpus=2)
        waiting = self.client.submit(["true"])
        why = self.client.why(f"{waiting.job}.0")
        self.assertEqual((why.state, why.reason), ("ready", "full"), why)
        self.assertTrue(why.changes)
        gate.open()
        self.client.wait(job)
        self.client.wait(waiting)
        self.assertEqual(self.client.why(f"{waiting.job}.0").reason, "ended")

    def test_lists_are_filtered_and_read_page_by_page(self) -> None:
        jobs = [self.client.submit(["true"], name=f"film-{number}").job for number in range(3)]
        for job in jobs:
            self.client.wait(job)
        self.assertEqual([job.id for job in self.client.jobs(name="film", state="succeeded")], jobs[::-1])
        self.assertEqual(list(self.client.jobs(state="held")), [])
        with self.subTest("pages"), unittest.mock.patch("windlass.calls.PAGE", 1):
            self.assertEqual([job.id for job in self.client.jobs(name="film")], jobs[::-1])
        self.assertEqual(len(list(self.client.workers())), 1)
        self.assertEqual(len(list(self.client.queues())), 1)
        self.assertEqual(list(self.client.limits()), [])

    def test_errors_say_what_failed_why_and_what_to_do(self) -> None:
        with self.assertRaises(windlass.NotFound) as caught:
            self.client.job(99)
        self.assertEqual(caught.exception.status, 404)
        self.assertRegex(str(caught.exception), "^cannot show job 99: there is no job 99; ")
        with self.assertRaisesRegex(ValueError, "write '12.3'"):
            self.client.task("12")
        with self.assertRaises(windlass.BadRequest):
            self.client.submit_spec({"steps": []})

    def test_numbers_of_the_program_and_of_this_client_are_the_same(self) -> None:
        job = self.client.wait(self.client.submit(["true"], array="1-2"))
        shown = json.loads(self.program("job", "show", str(job.id), "-o", "json", server=self.server.address))
        self.assertEqual(job.raw["counts"], shown["counts"])


class Outputs(WithServer):
    def test_output_is_followed_while_the_task_runs(self) -> None:
        gate = self.gate()
        job = self.client.submit(["sh", "-c", f"echo one; read line <{gate.path}; echo two"]).job
        parts = self.client.follow_log(f"{job}.0")
        self.assertEqual(next(parts), b"one\n")
        gate.open()
        self.assertEqual(b"".join(parts), b"two\n")

    def test_output_is_read_from_a_place_and_from_its_end(self) -> None:
        task = self.client.run(["sh", "-c", "printf 0123456789"]).task
        self.assertEqual(self.client.log(task, offset=7), b"789")
        self.assertEqual(self.client.log(task, offset=-2), b"89")
        self.assertEqual(b"".join(self.client.follow_log(task, offset=-4)), b"6789")
        self.assertEqual(self.client.log_text(task, "stderr"), "")
        with self.assertRaises(ValueError):
            self.client.log(task, "stdin")

    def test_a_long_output_is_whole(self) -> None:
        task = self.client.run(["sh", "-c", "seq 1 300000"]).task
        lines = self.client.log(task).split()
        self.assertEqual((len(lines), lines[-1]), (300000, b"300000"))

    def test_events_tell_of_a_job_from_its_submission_to_its_end(self) -> None:
        events = self.client.events()
        self.addCleanup(events.close)
        blocked = self.gate()
        first = self.client.submit(blocked.command()).job
        seen = [next(events)]
        blocked.open()
        while not (isinstance(seen[-1], JobEvent) and seen[-1].state == "succeeded"):
            seen.append(next(events))
        tasks = [task for event in seen if isinstance(event, TasksEvent) for task in event.tasks]
        self.assertEqual({task.job for task in tasks}, {first})
        self.assertEqual(tasks[-1].state, "succeeded")
        self.assertNotIn("WorkerEvent", [type(event).__name__ for event in seen])

    def test_ends_come_as_they_happen_and_each_once(self) -> None:
        gates = [self.gate(f"gate{number}") for number in (0, 1)]
        job = self.client.submit(["sh", "-c", f"read line <{self.dir}/gate{{}}"], values=[0, 1]).job
        ends = self.client.as_completed(job)
        order: List[int] = []
        for number in (1, 0):
            gates[number].open()
            order.append(next(ends).index)
        self.assertEqual((order, list(ends)), ([1, 0], []))
        self.assertEqual(len(list(self.client.as_completed(job))), 2, "of a job that has ended, too")

    def test_skipped_tasks_end_too(self) -> None:
        spec: windlass.JobSpec = {
            "steps": [
                {"name": "a", "command": ["false"]},
                {"name": "b", "command": ["true"], "depends": [{"on": "a"}]},
            ]
        }
        ends = list(self.client.as_completed(self.client.submit_spec(spec)))
        self.assertEqual(sorted((end.index, end.state) for end in ends), [(0, "failed"), (1, "skipped")])


class Nested(WithServer):
    def test_a_run_inside_a_task_lends_the_cpus_of_its_task(self) -> None:
        inner = "import windlass; print(windlass.Client().run(['echo', 'inner'], cpus=2).text)"
        path = os.path.dirname(os.path.dirname(os.path.abspath(windlass.__file__)))
        with variables(PYTHONPATH=path):
            done = self.client.run([sys.executable, "-c", inner], cpus=2)
        self.assertEqual(done.text, "inner")
        newest, outer = itertools.islice(self.client.jobs(), 2)
        self.assertEqual(newest.raw["parent"], f"{outer.id}.0")


if __name__ == "__main__":
    unittest.main()
