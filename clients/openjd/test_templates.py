"""Windlass and the programs of Open Job Description, asked about the same templates."""

import contextlib
import io
import json
import subprocess
import sys
import unittest
from pathlib import Path

import yaml
from openjd.cli import main as openjd
from openjd.model import (
    StepParameterSpaceIterator,
    create_job,
    decode_job_template,
    preprocess_job_parameters,
)
from templates import Case, all_cases, chunked
from tests.servers import HUNG_S, PROGRAM, WithDirectory, clean_env

Counts = list[tuple[str, int]]
"""The tasks of each step; those of one in chunks of a fixed size are its processes."""

EXTENSIONS = ["TASK_CHUNKING"]
"""The extensions that Windlass has."""

SHOWN_MAX = 2_000
"""Characters of a template that a failure shows."""

CANNOT_BE_PLACED = 6
"""What the program exits with where it takes a submission that no worker can run."""

TAKEN = "the library takes the number for its text"
DIFFERENCES = {
    "list INT 7": "4.5 is not a whole number, which openjd finds out in chunks alone",
    "list STRING 9": TAKEN,
    "list STRING 10": TAKEN,
    "list PATH 9": TAKEN,
    "list PATH 10": TAKEN,
    "a number as an argument": TAKEN,
    "a number as a variable": TAKEN,
    "an empty description": "it harms nothing",
    "a whole float as the default of an INT": "it is a whole number",
    "an underscore as the default of an INT": "only Python reads it as a number",
    "two files of one name": "the second would replace the first",
    "a file named ..": "it is a directory",
}
"""The templates on which the two differ on purpose, with the reason."""


class TemplatesTest(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.server = self.start_server().address

    def write(self, case: Case) -> Path:
        path = self.dir / "job.yaml"
        path.write_text(yaml.safe_dump(case.template, allow_unicode=True), encoding="utf-8")
        return path

    def windlass(self, *args: str) -> "subprocess.CompletedProcess[str]":
        env = {**clean_env(self.dir / "state"), "WINDLASS_SERVER": self.server}
        command = [PROGRAM, *args]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HUNG_S, check=False)

    def of_windlass(self, case: Case, path: Path) -> tuple[Counts | None, str]:
        """What a dry run counts, and what it says; no counts of a template that is refused."""
        given = [arg for name, value in case.values.items() for arg in ("-p", f"{name}={value}")]
        done = self.windlass("submit", "--dry-run", "-o", "json", "-f", str(path), *given)
        if done.returncode not in (0, CANNOT_BE_PLACED):
            return None, done.stderr
        steps = [step["step"] for step in json.loads(done.stdout)["steps"]]
        return [(step["name"], step.get("processes", step["tasks"])) for step in steps], ""

    def of_openjd(self, case: Case, path: Path) -> tuple[Counts | None, str]:
        """The same of `openjd check` and `openjd summary`."""
        given = [arg for name, value in case.values.items() for arg in ("-p", f"{name}={value}")]
        extensions = ["--extensions", ",".join(EXTENSIONS)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                openjd(["check", str(path), *extensions])
                said.seek(0)
                said.truncate()
                openjd(["summary", str(path), "--output", "json", *extensions, *given])
            except SystemExit as ended:
                if ended.code:
                    return None, said.getvalue()
        tasks = {step["name"]: step["total_tasks"] for step in json.loads(said.getvalue())["steps"]}
        template = decode_job_template(template=case.template, supported_extensions=EXTENSIONS)
        values = preprocess_job_parameters(
            job_template=template,
            job_parameter_values=case.values,
            job_template_dir=self.dir,
            current_working_dir=self.dir,
        )
        for step in create_job(job_template=template, job_parameter_values=values).steps:
            # The summary counts values, and a step without a target has as many processes as chunks.
            if step.parameterSpace is not None:
                chunks = StepParameterSpaceIterator(space=step.parameterSpace)
                with contextlib.suppress(ValueError):
                    tasks[step.name] = len(chunks)
        return list(tasks.items()), ""

    def test_both_take_the_same_templates_and_count_the_same_tasks(self) -> None:
        for case in all_cases():
            with self.subTest(case.name):
                path = self.write(case)
                (theirs, they_say), (ours, we_say) = self.of_openjd(case, path), self.of_windlass(case, path)
                if case.name in DIFFERENCES:
                    self.assertNotEqual(theirs, ours, "it is no difference any more")
                else:
                    shown = json.dumps(case.template)[:SHOWN_MAX]
                    self.assertEqual(theirs, ours, f"{shown}\nopenjd: {they_say}\nwindlass: {we_say}")

    def test_processes_get_the_same_chunks(self) -> None:
        for numbers, size, constraint in [
            ("1,10-12,18-50", 10, "CONTIGUOUS"),
            ("7,12-14,95", 10, "CONTIGUOUS"),
            ("1-12", 5, "CONTIGUOUS"),
            ([3, 4, "5", 1], 2, "CONTIGUOUS"),
            ("1-8", 3, "NONCONTIGUOUS"),
            ("1,3,4,7,8,10-20:2", 6, "NONCONTIGUOUS"),
        ]:
            case = Case(f"{numbers} in chunks of {size}", chunked(numbers, size, constraint))
            with self.subTest(case.name):
                path = self.write(case)
                command = [str(Path(sys.executable).parent / "openjd"), "run", str(path)]
                theirs = subprocess.run(
                    command, capture_output=True, text=True, timeout=HUNG_S, check=True
                ).stdout
                ours = self.windlass("run", "-f", str(path))
                self.assertEqual(ours.returncode, 0, ours.stderr)
                # Each line of openjd begins with a time and a tabulator.
                chunks = [line.rsplit("\t", 1)[-1] for line in theirs.splitlines()]
                self.assertEqual(
                    sorted(chunk for chunk in chunks if chunk.startswith("CHUNK:")),
                    sorted(ours.stdout.splitlines()),
                )


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(TemplatesTest)
    )
    failed = len(result.failures) + len(result.errors)
    # In the form of cargo's, which the project's own script counts.
    print(
        f"test result: {'FAILED' if failed else 'ok'}. {result.testsRun if not failed else 0} passed; {failed} failed;"
    )
    sys.exit(1 if failed else 0)
