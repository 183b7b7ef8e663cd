"""The jobserver of a task, used by ninja, by make 4.4 and by the clients of the crate `jobserver`."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Tuple

from tests.servers import PROGRAM, WithDirectory, clean_env

HERE = Path(__file__).resolve().parent
NINJA = Path(sys.executable).with_name("ninja")
NINJA_SOURCE = os.environ.get("NINJA_SOURCE", "")
"""A directory with ninja's own tests in `misc`; empty where they cannot be had."""
NEW_MAKE = os.environ.get("NEW_MAKE", "")
"""GNU make 4.4 or later; empty where it cannot be had."""
ENVIRON = dict(os.environ)
"""The environment that cargo needs: the home of the tests has no cargo."""

CRATE = "0.1.35"
"""The release of the crate whose tests are run."""

HUNG_S = 300.0
"""A bound that only a hung test reaches."""

STEP = """#!/bin/sh
# Notes when it begins and when it ends. The first ones wait until three have begun.
echo + >>"$NOTES"
while [ "$(grep -c + "$NOTES")" -lt 3 ]; do :; done
touch "$1"
echo - >>"$NOTES"
"""

MANIFEST = f"""[package]
name = "clients"
version = "0.1.0"
edition = "2021"
[dependencies]
jobserver = "={CRATE}"
tempfile = "3"
[[test]]
name = "client"
harness = false
[workspace]
"""

MAKE = """#!/bin/sh
# make; where it is told how many processes to run, in a task with a jobserver of so many, in the style that it is told.
jobs= form=auto style=
for word; do
    shift
    case $word in
    -j*) jobs=${word#-j} ;;
    --jobserver-style=fifo) form=fifo style=$word ;;
    --jobserver-style=pipe) form=pipes style=$word ;;
    *) set -- "$@" "$word" ;;
    esac
done
[ -n "$jobs" ] || exec make $style "$@"
exec "$WINDLASS" run --quiet "--jobserver=$form" --cpus "0.1-$jobs" -- make "$@"
"""

RUN = """import sys
import unittest
from pathlib import Path
import jobserver_test

def most_at_an_instant(build_dir, count):
    # ninja's own counts all spans that meet a span, also one before and one after it.
    edges = []
    for n in range(count):
        begin, end = map(int, (Path(build_dir) / f"out{n:02}").read_text().split())
        edges += [(begin, 1), (end, -1)]
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most

jobserver_test.compute_max_overlapped_spans = most_at_an_instant
unittest.main(module=jobserver_test)
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@functools.lru_cache(maxsize=None)
def client_of_crate() -> str:
    """The program of the crate's own tests of clients, built once."""
    if not all(shutil.which(program) for program in ["cargo", "make"]):
        raise unittest.SkipTest("cargo or make is missing")
    crate = Path(tempfile.mkdtemp(prefix="windlass-clients-"))
    unittest.addModuleCleanup(shutil.rmtree, crate, ignore_errors=True)
    env = {**ENVIRON, "CARGO_TARGET_DIR": str(crate / "target")}

    def cargo(*words: str) -> str:
        done = subprocess.run(["cargo", *words], env=env, cwd=crate, capture_output=True, text=True, check=False)
        if done.returncode != 0 and words[0] == "metadata":
            raise unittest.SkipTest(f"cargo cannot fetch the crate: {done.stderr.strip().splitlines()[-1]}")
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout

    for directory in ["src", "tests"]:
        (crate / directory).mkdir()
    (crate / "src/lib.rs").write_text("")
    (crate / "Cargo.toml").write_text(MANIFEST)
    (crate / "tests/client.rs").write_text("")
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    source = next(Path(each["manifest_path"]).parent for each in packages if each["name"] == "jobserver")
    shutil.copy(source / "tests/client.rs", crate / "tests/client.rs")
    built = cargo("test", "--no-run", "--test", "client", "--message-format", "json")
    programs = [json.loads(line).get("executable") for line in built.splitlines()]
    return str(next(program for program in programs if program))


class WithServer(WithDirectory):
    """A test with a server, whose worker and whose tasks find programs on the same path."""

    def setUp(self) -> None:
        super().setUp()
        os.environ["PATH"] = self.path()
        # Of the clients of the crate some wait until they have all that they may have, and all run at a time.
        server = self.start_server("--cpus", "24")
        # What runs this may have told its own children how many processes to run: that is left out.
        self.env = {**clean_env(self.dir / "state"), "WINDLASS_SERVER": server.address}

    def path(self) -> str:
        return ENVIRON.get("PATH", os.defpath)

    def ok(self, *command: str, **more: str) -> str:
        env = {**self.env, **more}
        done = subprocess.run(
            command, env=env, cwd=self.dir, capture_output=True, text=True, timeout=HUNG_S, check=False
        )
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, f"{command}: {said}")
        return said

    def steps(self, form: str, *command: str) -> Tuple[int, int]:
        """How many steps a build of three processes began, and how many ran at a time at most."""
        notes = self.dir / "notes"
        notes.unlink(missing_ok=True)
        run = [PROGRAM, "run", form, "--cpus", "0.1-3", "--time-limit", "2m", "--"]
        self.ok(*run, *command, NOTES=str(notes))
        now = most = 0
        for line in notes.read_text().splitlines():
            now += 1 if line == "+" else -1
            most = max(most, now)
        return notes.read_text().count("+"), most

    def check_clients_of_crate(self, styles: int) -> None:
        """All clients of the crate's own tests get their tokens from make, which has them from a task."""
        said = self.ok(client_of_crate(), MAKE=str(script(self.dir / "make-in-task", MAKE)))
        self.assertIn("test result: ok", said)
        self.assertEqual(said.count(" ... ok"), 7 * styles, said)


class JobserverTest(WithServer):
    def test_ninja_runs_as_many_processes_as_its_task_has(self) -> None:
        step = script(self.dir / "step", STEP)
        edges = "".join(f"build o{n}: step\n" for n in range(12))
        (self.dir / "build.ninja").write_text(f"rule step\n  command = {step} $out\n{edges}")
        self.assertEqual(self.steps("--jobserver", str(NINJA), "-C", str(self.dir)), (12, 3))

    def test_the_tests_of_ninja_pass_with_windlass_as_their_pool(self) -> None:
        if not NINJA_SOURCE:
            self.skipTest("ninja's own tests are missing: GitHub is not reached, and NINJA_SOURCE names no checkout")
        misc = self.dir / "misc"
        misc.mkdir()
        tests = (Path(NINJA_SOURCE) / "misc/jobserver_test.py").read_text()
        # Its processes last for 50 ms, and on a busy machine the first one ends before the last one has begun.
        self.assertIn("--duration-ms=50 ", tests)
        (misc / "jobserver_test.py").write_text(tests.replace("--duration-ms=50 ", "--duration-ms=500 "))
        (misc / "run.py").write_text(RUN)
        shutil.copy(Path(NINJA_SOURCE) / "misc/jobserver_test_helper.py", misc)
        shutil.copy(HERE / "pool.py", misc / "jobserver_pool.py")
        (self.dir / "ninja").symlink_to(NINJA)
        names = ["test_jobserver_client_with_posix_fifo", "test_client_passes_MAKEFLAGS"]
        if "jobserver-pipe" not in self.ok(str(NINJA), "--version"):
            # Builds of ninja that take pipes do not refuse them.
            names.append("test_jobserver_client_with_posix_pipe")
        self.ok(sys.executable, str(misc / "run.py"), *(f"JobserverTest.{name}" for name in names))

    def test_the_clients_of_the_crate_get_their_tokens(self) -> None:
        knows_styles = subprocess.run(["make", "--jobserver-style=fifo", "--version"], capture_output=True, check=False)
        self.check_clients_of_crate(styles=1 if knows_styles.returncode else 2)
        # A client without make, in both forms.
        for name, processes in [("acquire", 2), ("acquire3", 3), ("acquire blocks", 2), ("acquire_raw", 2)]:
            for form in ["fifo", "pipes"]:
                flags = [f"--jobserver={form}", "--cpus", f"0.1-{processes}", "--time-limit", "1m"]
                self.ok(PROGRAM, "run", *flags, "--", client_of_crate(), TEST_TO_RUN=name)


class NewMakeTest(WithServer):
    """The same with make 4.4 or later as the worker's make, whatever the machine has."""

    def setUp(self) -> None:
        if not NEW_MAKE:
            self.skipTest("GNU make 4.4 is missing")
        super().setUp()

    def path(self) -> str:
        programs = self.dir / "programs"
        programs.mkdir()
        (programs / "make").symlink_to(NEW_MAKE)
        return f"{programs}:{super().path()}"

    def test_make_gets_a_named_pipe_by_itself(self) -> None:
        rules = "all: " + " ".join(f"o{n}" for n in range(12)) + "\no%:\n\t@./step $@\n"
        (self.dir / "Makefile").write_text(f'{rules}flags:\n\t+@echo "$$MAKEFLAGS"\n')
        script(self.dir / "step", STEP)
        until_s = time.monotonic() + HUNG_S
        while "--jobserver-auth=fifo:/" not in (said := self.ok(PROGRAM, "run", "--jobserver", "--", "make", "flags")):
            # The worker has just begun to ask its make for its release.
            self.assertLess(time.monotonic(), until_s, said)
        for form in ["--jobserver", "--jobserver=pipes"]:
            self.assertEqual(self.steps(form, "make"), (12, 3), form)
            for made in self.dir.glob("o[0-9]*"):
                made.unlink()

    def test_the_clients_of_the_crate_get_their_tokens_in_both_styles(self) -> None:
        self.check_clients_of_crate(styles=2)


if __name__ == "__main__":
    loaded = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(stream=sys.stdout).run(loaded)
    failed = len(result.failures) + len(result.errors)
    passed = 0 if failed else result.testsRun - len(result.skipped)
    # In the form of cargo's, which the project's own script counts.
    ended, skipped = "FAILED" if failed else "ok", len(result.skipped)
    print(f"test result: {ended}. {passed} passed; {failed} failed; {skipped} ignored")
    for test, reason in result.skipped:
        print(f"SKIP {test.id().rsplit('.', 1)[-1]}: {reason}")
    sys.exit(1 if failed else 0)
