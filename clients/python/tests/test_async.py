"""The client for asyncio with a real server."""

import asyncio
import unittest
from typing import Any, Coroutine

import windlass
from tests.servers import HUNG_S, WithDirectory
from windlass.models import JobEvent


class Async(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.server = self.start_server()

    def client(self) -> windlass.AsyncClient:
        return windlass.AsyncClient(self.server.address)

    def run_bounded(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(work, HUNG_S))

    def test_it_does_what_the_other_client_does(self) -> None:
        async def work() -> None:
            async with self.client() as client:
                self.assertEqual((await client.run(["echo", "hello"])).text, "hello")
                self.assertEqual([one.text for one in await client.map(["echo"], ["b", "a"])], ["b", "a"])
                with self.assertRaisesRegex(windlass.JobFailed, "exit code 3"):
                    await client.run(["sh", "-c", "exit 3"])
                job = await client.wait(await client.submit(["seq", "300000"]))
                self.assertEqual(len((await client.log(f"{job.id}.0")).split()), 300000)
                self.assertEqual((await client.why(f"{job.id}.0")).reason, "ended")
                self.assertEqual(len([one async for one in client.jobs()]), 4)
                with self.assertRaisesRegex(windlass.NotFound, "cannot show job 99"):
                    await client.job(99)
                with self.assertRaises(windlass.Conflict):
                    await client.cancel(job)

        self.run_bounded(work())

    def test_many_jobs_are_waited_for_at_a_time(self) -> None:
        async def work() -> None:
            async with self.client() as client:
                done = await asyncio.gather(*(client.run(["echo", str(number)]) for number in range(20)))
                self.assertEqual([one.text for one in done], [str(number) for number in range(20)])

        self.run_bounded(work())

    def test_output_events_and_ends_come_as_they_happen(self) -> None:
        gate = self.gate()

        async def work() -> None:
            async with self.client() as client, client.events() as events:
                job = (await client.submit(["sh", "-c", f"echo one; read line <{gate.path}; echo two"])).job
                parts = client.follow_log(f"{job}.0")
                self.assertEqual(await parts.__anext__(), b"one\n")
                ends = client.as_completed(job)
                end = asyncio.ensure_future(ends.__anext__())
                await asyncio.get_running_loop().run_in_executor(None, gate.open)
                self.assertEqual([part async for part in parts], [b"two\n"])
                self.assertEqual((await end).state, "succeeded")
                self.assertEqual([one async for one in ends], [])
                async for event in events:
                    if isinstance(event, JobEvent) and event.state == "succeeded":
                        break

        self.run_bounded(work())

    def test_a_cancelled_run_cancels_its_job(self) -> None:
        start, gate = self.gate("start"), self.gate()

        async def work() -> None:
            async with self.client() as client:
                command = ["sh", "-c", f"read line <{start.path}; read line <{gate.path}"]
                run = asyncio.ensure_future(client.run(command))
                await asyncio.get_running_loop().run_in_executor(None, start.open)
                run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await run
                (job,) = [one async for one in client.jobs()]
                self.assertEqual((await client.wait(job)).state, "canceled")

        self.run_bounded(work())

    def test_a_wait_has_a_bound_and_outlives_a_restart(self) -> None:
        gate = self.gate()

        async def work() -> None:
            async with self.client() as client:
                job = await client.submit(gate.command())
                with self.assertRaises(windlass.WaitTimeout):
                    await client.wait(job, timeout_s=0.05)
                waiting = asyncio.ensure_future(client.wait(job))
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self.server.kill)
                await loop.run_in_executor(None, self.server.start)
                await loop.run_in_executor(None, gate.open)
                self.assertTrue((await waiting).has_succeeded)

        self.run_bounded(work())


if __name__ == "__main__":
    unittest.main()
