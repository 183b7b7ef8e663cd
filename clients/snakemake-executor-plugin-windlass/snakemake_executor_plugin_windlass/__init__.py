"""Runs the jobs of Snakemake on Windlass: each is submitted as a job of one task."""

# Snakemake reads the types of the settings when it runs, so their evaluation is not put off here.
import shlex
import uuid
from dataclasses import dataclass, field
from typing import Any, AsyncGenerator, Dict, List, Optional, Set

import windlass
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

CHECK_EVERY_S = 1
"""Pause between two looks at the jobs, where the user chose none. A look is one request for 1,000 active jobs."""
SNAKEMAKE_CHECK_EVERY_S = 10
"""What Snakemake takes where the user chose none."""
NAME_CHARS_MAX = 60
"""Most characters of a job's name. A server takes 255 bytes, and a character may have four."""
MB = 1_000_000
"""Bytes of Snakemake's `mem_mb`."""
SNAKEMAKE_BYTES = 256 << 20
"""Memory for the Snakemake inside each job, which a rule does not count: a job that holds more than it requests is
ended. A small workflow takes 82 MB."""


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Settings. On the command line each has the prefix `--windlass-`."""

    server: Optional[str] = field(
        default=None,
        metadata={
            "help": "Address of the server, or several separated by commas. The default is WINDLASS_SERVER, else your "
            "own server, which starts by itself.",
        },
    )
    queue: Optional[str] = field(
        default=None,
        metadata={"help": "Queue of the jobs. The default is your own. A rule's resource windlass_queue goes first."},
    )
    priority: int = field(default=0, metadata={"help": "Priority of the jobs inside the queue; higher goes first."})


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # Variables may be secrets. They go into the job's environment, which the server tells no caller.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):
    """The executor, as Snakemake calls it."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings or ExecutorSettings()
        self._settings = settings
        try:
            self._client = windlass.Client(settings.server)
        except windlass.WindlassError as error:
            raise WorkflowError(f"windlass: {error}") from error
        # The jobs of this run have its mark in their names, so that one list has the states of all.
        self._mark = f"snakemake-{uuid.uuid4().hex[:12]}"
        chosen_s = self.workflow.remote_execution_settings.seconds_between_status_checks
        if chosen_s == SNAKEMAKE_CHECK_EVERY_S:
            self.next_seconds_between_status_checks = CHECK_EVERY_S

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submits a job."""
        info = SubmittedJobInfo(job)
        # The shell is the one that Snakemake uses for its job scripts.
        command = ["bash", "-c", self.format_job_exec(job)]
        try:
            submitted = self._client.submit(command, **self._options(job))
        except (windlass.WindlassError, ValueError) as error:
            self.report_job_error(info, msg=f"windlass: {error}\n")
            return
        info.external_jobid = str(submitted.job)
        self.logger.info(f"Job {job.jobid} is job {submitted.job} of Windlass.")
        for step in submitted.unplaceable:
            reasons = "; ".join(reason["message"] for reason in step["reasons"])
            self.logger.warning(f"No worker that the farm has now could run job {submitted.job}: {reasons}")
        self.report_job_submission(info)

    def _options(self, job: JobExecutorInterface) -> Dict[str, Any]:
        """What the job requests of the farm."""
        resources = job.resources
        options: Dict[str, Any] = {
            "name": f"{self._mark}-{job.name}"[:NAME_CHARS_MAX],
            "cpus": _number(resources.get("_cores")) or job.threads,
            "priority": self._settings.priority,
            "queue": resources.get("windlass_queue") or self._settings.queue,
            "tags": str(resources.get("windlass_tags", "")).split(),
            "limits": str(resources.get("windlass_limits", "")).split(),
        }
        # The client's rule for the environment holds, and variables that the workflow declares come on top.
        options["env"] = {**self._client.default_env(), **self.envvars()}
        # Inside the job Snakemake runs locally, whatever the profile says.
        options["env"].pop("SNAKEMAKE_PROFILE", None)
        # Snakemake computes this from `mem` and `mem_mib`, too.
        memory_mb = _number(resources.get("mem_mb"))
        if memory_mb:
            options["memory"] = int(memory_mb) * MB + SNAKEMAKE_BYTES
        minutes = _number(resources.get("runtime"))
        if minutes:
            options["time_limit_s"] = minutes * 60
        gpus = _number(resources.get("gpu"))
        if gpus:
            options["gpus"] = int(gpus)
        return options

    async def check_active_jobs(
        self, active_jobs: List[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Reports the jobs that have ended, and yields the others."""
        if not active_jobs:
            return
        async with self.status_rate_limiter:
            going_on = self._going_on()
        for info in active_jobs:
            if going_on is None or int(info.external_jobid) in going_on:
                yield info
                continue
            try:
                ended = self._client.job(info.external_jobid)
                message = None if ended.has_succeeded else self._why_failed(ended)
            except windlass.NotFound as error:
                message = f"windlass: {error}\n"
            except windlass.WindlassError as error:
                self.logger.warning(f"windlass: {error}")
                yield info
                continue
            if message is None:
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=message)

    def _going_on(self) -> Optional[Set[int]]:
        """The jobs of this run that have not ended; None if no server answers now."""
        try:
            return {job.id for job in self._client.jobs(state="pending,running,held", name=self._mark)}
        except windlass.WindlassError as error:
            if not error.is_temporary:
                raise WorkflowError(f"windlass: {error}") from error
            self.logger.warning(f"windlass: {error}")
            return None

    def _why_failed(self, job: windlass.Job) -> str:
        """The reason and the end of the output, for people."""
        try:
            self._client.check(job)
        except windlass.JobFailed as failed:
            return f"windlass: {failed}\n"
        return f"windlass: job {job.id} is {job.state}\n"

    def cancel_jobs(self, active_jobs: List[SubmittedJobInfo]) -> None:
        """Cancels jobs when the workflow is."""
        for info in active_jobs:
            try:
                self._client.cancel(info.external_jobid)
            except windlass.Conflict:
                # It has ended meanwhile.
                pass
            except windlass.WindlassError as error:
                self.logger.warning(f"windlass: {error}")

    def get_job_exec_prefix(self, job: JobExecutorInterface) -> str:
        """Jobs run where the workflow was called, if the workers see that directory."""
        if self.workflow.storage_settings.assume_common_workdir:
            return f"cd {shlex.quote(self.workflow.workdir_init)}"
        return ""


def _number(value: Any) -> Optional[float]:
    """A resource as a number; None if the rule does not say it, or leaves it to be determined."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value
