"""The manual's page and the README name what there is."""

import re
import unittest
from pathlib import Path
from typing import List

import windlass

ROOT = Path(__file__).resolve().parents[3]


class Manual(unittest.TestCase):
    def setUp(self) -> None:
        self.page = ROOT / "docs/src/python.md"
        if not self.page.exists():
            self.skipTest("the manual is not beside the package")
        self.text = self.page.read_text()

    def blocks(self) -> List[str]:
        return re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)

    def test_examples_are_python(self) -> None:
        self.assertGreater(len(self.blocks()), 5)
        for block in self.blocks():
            compile(block, str(self.page), "exec")

    def test_methods_options_and_errors_exist(self) -> None:
        called = {name for block in self.blocks() for name in re.findall(r"\bclient\.(\w+)\(", block)}
        called |= set(re.findall(r"`(\w+)\([^`]*\)`", self.text.split("## Functions as tasks")[0]))
        for name in called - {"Client", "True"}:
            for kind in (windlass.Client, windlass.AsyncClient):
                self.assertTrue(hasattr(kind, name), f"{kind.__name__}.{name}")
        table = self.text.split("| option | meaning |")[1].split("\n\n")[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        options = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        self.assertIn("chunks", options)
        self.assertLessEqual(options, set(windlass.TaskOptions.__annotations__))
        errors = re.findall(r"`([A-Z]\w+)`", self.text.split("## Errors")[1].split("## ")[0])
        for name in set(errors) - {"TimeoutError"}:
            self.assertTrue(hasattr(windlass, name), name)

    def test_every_error_is_explained(self) -> None:
        kinds = [name for name in windlass.__all__ if isinstance(getattr(windlass, name), type)]
        errors = {name for name in kinds if issubclass(getattr(windlass, name), windlass.WindlassError)}
        unexplained = {name for name in errors if f"`{name}`" not in self.text}
        self.assertEqual(unexplained, set())


if __name__ == "__main__":
    unittest.main()
