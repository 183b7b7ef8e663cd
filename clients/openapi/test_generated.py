"""A client that is generated from the description of the HTTP interface, with real servers."""

import sys
import unittest
from typing import Any, TypeVar

import httpx
from tests.servers import WithDirectory
from windlass_generated import AuthenticatedClient, Client
from windlass_generated.api.events import get_events
from windlass_generated.api.jobs import get_jobs, get_jobs_id, get_jobs_id_wait, post_jobs
from windlass_generated.api.server import get_healthz, get_metrics, get_version
from windlass_generated.api.tasks import get_jobs_id_tasks, get_tasks_id_log
from windlass_generated.api.tokens import post_tokens
from windlass_generated.models import (
    CreatedToken,
    CreateToken,
    ErrorBody,
    ErrorCode,
    Job,
    JobState,
    PageJob,
    PageTask,
    Range,
    Role,
    StepRequest,
    SubmitRequest,
    Submitted,
    TaskState,
)
from windlass_generated.models.param_type_0 import ParamType0
from windlass_generated.types import File

T = TypeVar("T")


class GeneratedClientTest(WithDirectory):
    def parsed(self, kind: type[T], answer: Any) -> T:
        """The answer, which is of that type."""
        self.assertIsInstance(answer, kind)
        return answer

    def over_socket(self, address: str) -> Client:
        """A client of a server's socket, where no token is needed."""
        transport = httpx.HTTPTransport(uds=address.removeprefix("unix:"))
        return Client("http://localhost", httpx_args={"transport": transport})

    def test_a_job_is_submitted_awaited_and_read(self) -> None:
        client = self.over_socket(self.start_server().address)
        param = ParamType0(range_=Range(start=1, end=3))
        step = StepRequest(command=["echo", "frame", "{}"], cwd="/", param=param)
        submitted = self.parsed(
            Submitted, post_jobs.sync(client=client, body=SubmitRequest(name="film", steps=[step]))
        )
        job = self.parsed(Job, get_jobs_id_wait.sync(submitted.job, client=client))
        self.assertEqual((job.name, job.state, job.counts.succeeded), ("film", JobState.SUCCEEDED, 3))
        page = self.parsed(PageTask, get_jobs_id_tasks.sync(submitted.job, client=client, limit=2))
        self.assertEqual([task.state for task in page.items], [TaskState.SUCCEEDED] * 2)
        rest = self.parsed(
            PageTask, get_jobs_id_tasks.sync(submitted.job, client=client, cursor=int(str(page.next_)))
        )
        self.assertEqual([task.id for task in rest.items], [f"{submitted.job}.2"])
        output = self.parsed(File, get_tasks_id_log.sync(f"{submitted.job}.2", client=client))
        self.assertEqual(output.payload.read(), b"frame 3\n")
        jobs = self.parsed(PageJob, get_jobs.sync(client=client, state="succeeded"))
        self.assertEqual([job.id for job in jobs.items], [submitted.job])
        self.assertIn("windlass_", self.parsed(str, get_metrics.sync(client=client)))

    def test_errors_are_of_their_type(self) -> None:
        client = self.over_socket(self.start_server().address)
        cases = [
            (get_jobs_id.sync_detailed(9, client=client), 404, ErrorCode.NOT_FOUND),
            (get_jobs.sync_detailed(client=client, limit=0), 400, ErrorCode.BAD_REQUEST),
            (get_events.sync_detailed(client=client, job=-1), 400, ErrorCode.BAD_REQUEST),
        ]
        for answer, status, code in cases:
            error = self.parsed(ErrorBody, answer.parsed).error
            self.assertEqual((answer.status_code, error.code), (status, code))
            self.assertTrue(error.message)

    def test_a_token_is_shown_where_one_is_asked_for(self) -> None:
        server = self.start_server("--listen", "127.0.0.1:0", "--no-worker")
        made = post_tokens.sync(
            client=self.over_socket(server.admin_socket), body=CreateToken(role=Role.VIEWER)
        )
        address = f"http://{server.address}"
        viewer = AuthenticatedClient(address, token=self.parsed(CreatedToken, made).bearer)
        self.parsed(PageJob, get_jobs.sync(client=viewer))
        refused = post_jobs.sync(client=viewer, body=SubmitRequest(steps=[StepRequest(command=["true"])]))
        self.assertEqual(self.parsed(ErrorBody, refused).error.code, ErrorCode.FORBIDDEN)
        stranger = AuthenticatedClient(address, token="wl_no_such")
        unknown = get_version.sync(client=stranger)
        self.assertEqual(self.parsed(ErrorBody, unknown).error.code, ErrorCode.UNAUTHORIZED)
        self.assertEqual(get_healthz.sync(client=Client(address)), "ok\n")


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(GeneratedClientTest)
    )
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    # In the form of cargo's, which the project's own script counts.
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    sys.exit(1 if failed else 0)
