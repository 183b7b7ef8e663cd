"""The types of this package have the fields that the description of the HTTP interface has."""

import dataclasses
import json
import unittest
from pathlib import Path
from typing import Any, Dict, Set

from windlass import models, spec

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/src/openapi.json"
IN_RAW = {
    # Details of a decision, which are for people, and change with the scheduler.
    "Why": {"backs_off_until_ms", "decided_ms", "judged", "policy", "ruled_out", "turn"},
    "Version": {"name", "store", "worker"},
}
"""Fields of answers that have no name here."""
SENT: Dict[str, Any] = {
    "SubmitRequest": spec.JobSpec,
    "StepRequest": spec.StepSpec,
    "ChunksRequest": spec.Chunks,
    "Depends": spec.Depends,
    "OnEnd": spec.OnEnd,
    "Param": spec.Param,
    "Range": spec.Range,
    "Resources": spec.Resources,
    "StepFiles": spec.StepFiles,
}
TOLD = (
    *("Attempt", "Counts", "DryRun", "DryRunStep", "FailedTask", "Failure", "FailureGroup", "Failures", "Job"),
    *("JobEvent", "JobReason", "StartsOn", "Step", "Submitted", "Task", "TaskEvent", "TasksEvent", "Version", "Why"),
    *("JobFiles", "MissingBlobs", "StepFilesOf", "TaskOutputs", "WorkerEvent"),
)


class Interface(unittest.TestCase):
    def setUp(self) -> None:
        if not DOCUMENT.exists():
            self.skipTest("the description of the HTTP interface is not beside the package")
        self.schemas: Dict[str, Any] = json.loads(DOCUMENT.read_text())["components"]["schemas"]

    def properties(self, schema: Dict[str, Any]) -> Set[str]:
        """The fields of a schema, in whatever way it is put together."""
        names = set(schema.get("properties", {}))
        if "$ref" in schema:
            names |= self.properties(self.schemas[schema["$ref"].rpartition("/")[2]])
        for part in [*schema.get("allOf", []), *schema.get("oneOf", [])]:
            names |= self.properties(part)
        return names

    def read_by(self, model: Any) -> Set[str]:
        """The fields that a model reads."""
        names: Set[str] = set()
        for field in dataclasses.fields(model):
            name = field.metadata.get("name", field.name)
            # What stands beside the fields is read from the whole.
            nested = {"Attempt": models.Attempt, "Failure": models.Failure}.get(str(field.type))
            names |= {name} if name else self.read_by(nested) if nested else set()
        return names

    def test_what_is_sent_has_all_fields(self) -> None:
        for name, kind in SENT.items():
            self.assertEqual(set(kind.__annotations__), self.properties(self.schemas[name]), name)

    def test_answers_have_a_field_for_each_that_a_server_tells(self) -> None:
        for name in TOLD:
            model = getattr(models, name)
            told = self.properties(self.schemas[name]) - IN_RAW.get(name, set())
            # The job of a task's event is told once for all tasks.
            told |= {"job"} if name == "TaskEvent" else set()
            self.assertEqual(self.read_by(model), told, name)


if __name__ == "__main__":
    unittest.main()
