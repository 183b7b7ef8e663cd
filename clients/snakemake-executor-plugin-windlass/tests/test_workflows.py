"""The test suite that Snakemake has for executors, with a real server. The program is what `WINDLASS` names."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import snakemake.common.tests  # noqa: E402
import windlass  # noqa: E402
from snakemake_executor_plugin_windlass import SNAKEMAKE_BYTES, ExecutorSettings  # noqa: E402
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase  # noqa: E402
from tests.servers import HUNG_S, Gate, ServerProcess, clean_env  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def server(tmp_path_factory):
    """A server for all tests."""
    state = tmp_path_factory.mktemp("windlass") / "state"
    started = ServerProcess(state, [], clean_env(state))
    os.environ["WINDLASS_SERVER"] = started.address
    yield started
    started.clean_up()
    started.stop()


class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "windlass"

    def get_executor_settings(self) -> Optional[ExecutorSettingsBase]:
        return ExecutorSettings()


@pytest.fixture
def failed(server, tmp_path):
    """A workflow whose rule fails, as the command line runs it."""
    shutil.copy(Path(__file__).with_name("fail.smk"), tmp_path / "Snakefile")
    command = [sys.executable, "-m", "snakemake", "--executor", "windlass", "--jobs", "2"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HUNG_S, check=False)


def test_a_failure_is_told_with_its_reason(failed):
    assert failed.returncode == 1
    assert "ended with exit code" in failed.stderr
    assert "the reason" in failed.stderr


def test_resources_of_a_rule_are_requested(failed):
    with windlass.Client() as client:
        job = next(client.jobs(queue="films"))
        step = job.raw["steps"][0]
    assert (step["resources"]["memory"], step["time_limit_ms"]) == (200_000_000 + SNAKEMAKE_BYTES, 300_000)


def test_a_workflow_that_is_interrupted_cancels_its_jobs(server, tmp_path):
    gate = Gate(tmp_path / "gate")
    rule = f"rule made:\n    output: 'made'\n    shell: 'read line <{gate.path}; read line <{gate.path}.never'\n"
    os.mkfifo(f"{gate.path}.never")
    (tmp_path / "Snakefile").write_text(rule)
    command = [sys.executable, "-m", "snakemake", "--executor", "windlass", "--jobs", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    gate.open()
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=HUNG_S)
    with windlass.Client() as client:
        newest = next(client.jobs())
        assert client.wait(newest, HUNG_S).state == "canceled", said
