"""Real servers for tests, each with a state directory of its own. The program is what `WINDLASS` names."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Deque, Dict, Iterator, List, Optional

import windlass

PROGRAM = os.environ.get("WINDLASS") or shutil.which("windlass") or ""
HUNG_S = 60.0
"""A bound that only a hung test reaches."""
LINES_MAX = 10_000
"""Most lines of a server's log that are kept."""


def clean_env(state: Path) -> Dict[str, str]:
    """The environment without what names servers, and with a state directory of the test's own.

    It has no ``CI`` either: programs of others ask more of a machine, such as a newer make, where that is set.
    """
    own = ("WINDLASS_", "XDG_")
    env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith(own)}
    return {**env, "WINDLASS": PROGRAM, "WINDLASS_STATE": str(state), "HOME": str(state.parent)}


class ServerProcess:
    """A server that a test started."""

    def __init__(self, state: Path, args: List[str], env: Dict[str, str]) -> None:
        self.state = state
        self._args = args
        self._env = env
        self.address = ""
        self._process: Optional[subprocess.Popen[str]] = None
        self.start()

    @property
    def admin_socket(self) -> str:
        """The socket for administrators of a server over TCP."""
        return f"unix:{self.state}/admin.sock"

    def start(self) -> None:
        """Starts it, and returns when it listens."""
        cpus = [] if "--cpus" in self._args else ["--cpus", "2"]
        command = [PROGRAM, "server", "start", "--state", str(self.state), *cpus, *self._args]
        self._process = subprocess.Popen(
            command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said: Deque[str] = collections.deque(maxlen=LINES_MAX)
        for line in self._process.stdout:
            said.append(line)
            found = re.search(r"windlass server listens on (\S+),", line)
            if found:
                self.address = found[1]
                break
        else:
            raise AssertionError("the server did not start: " + "".join(said))
        # Its log must not fill the pipe.
        self._reader = threading.Thread(target=said.extend, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kills it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops it in good order."""
        self._end(signal.SIGTERM)

    def _end(self, with_signal: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(with_signal)
            process.wait(HUNG_S)
            self._reader.join(HUNG_S)
            assert process.stdout is not None
            process.stdout.close()

    def clean_up(self) -> None:
        """Ends its tasks, too: they outlive a server on purpose."""
        if self._process is None:
            return
        is_own = (self.state / "run/server.sock").exists()
        address = f"unix:{self.state}/run/server.sock" if is_own else self.admin_socket
        with windlass.Client(address) as client:
            for job in list(client.jobs(state="pending,running,held")):
                with contextlib.suppress(windlass.Conflict):
                    client.cancel(job)
                    client.wait(job, HUNG_S)


class WithDirectory(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self) -> None:
        if not PROGRAM:
            self.skipTest("the program windlass is missing: name it in WINDLASS")
        self.dir = Path(tempfile.mkdtemp(prefix="windlass-python-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self._environ = dict(os.environ)
        self.addCleanup(self._restore)
        env = clean_env(self.dir / "state")
        os.environ.clear()
        os.environ.update(env)

    def _restore(self) -> None:
        os.environ.clear()
        os.environ.update(self._environ)

    def start_server(self, *args: str, name: str = "state") -> ServerProcess:
        """A server, which is ended with the test."""
        server = ServerProcess(self.dir / name, list(args), clean_env(self.dir / name))
        # The last cleanup comes first.
        self.addCleanup(server.stop)
        self.addCleanup(server.clean_up)
        return server

    def program(self, *args: str, server: str = "") -> str:
        """What the program prints."""
        env = {**clean_env(self.dir / "state"), "WINDLASS_SERVER": server}
        done = subprocess.run([PROGRAM, *args], env=env, capture_output=True, text=True, timeout=HUNG_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def gate(self, name: str = "gate") -> Gate:
        """A place where tasks wait until the test lets them go on."""
        return Gate(self.dir / name)

    def run_until_gate(self, client: windlass.Client, gate: Gate) -> int:
        """A job that runs, and waits at the gate."""
        start = self.gate("start")
        job = client.submit(["sh", "-c", f"read line <{start.path}; read line <{gate.path}"]).job
        start.open()
        return job


class Gate:
    """A named pipe: a task that reads it waits until the test opens it. No test sleeps.

    A task reads it once: a second time it may find the pipe still open for the first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def command(self) -> List[str]:
        """A command that waits at the gate."""
        return ["sh", "-c", f"read line <{self.path}"]

    def open(self) -> None:
        """Lets one task go on; returns when it has come to the gate."""
        opener = threading.Thread(target=self.path.write_text, args=("go\n",), daemon=True)
        opener.start()
        opener.join(HUNG_S)
        if opener.is_alive():
            raise AssertionError(f"no task came to {self.path}")


@contextlib.contextmanager
def variables(**values: str) -> Iterator[None]:
    """The environment with these variables."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
