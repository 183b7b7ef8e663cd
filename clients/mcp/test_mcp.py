"""`windlass mcp`, spoken to by clients that the protocol's own project publishes: that of Python, and the inspector."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import unittest
from typing import Any

import jsonschema
from mcp import Client, StdioServerParameters
from tests.servers import HUNG_S, PROGRAM, WithDirectory, clean_env

INSPECTOR = os.environ.get("INSPECTOR", "")
"""The program of the inspector, which node runs; empty where it cannot be had."""

NAMES = ["submit", "preview", "wait", "why", "logs", "cancel", "list", "tasks", "show", "workers"]
"""The tools in the order in which they are listed."""

ANSWER_BYTES_MAX = 32 << 10
"""Bytes of an answer."""


def calls_of(job: str, endless: str) -> list[tuple[str, dict[str, Any]]]:
    """A call of each tool, about a job that fails, and about one that goes on until it is cancelled."""
    return [
        ("submit", {"command": ["true"], "cwd": "/", "env": {"A": "b"}, "cpus": "1", "retries": 1}),
        ("preview", {"script": "exit 0", "cwd": "/"}),
        ("wait", {"job": job, "seconds": 60}),
        ("why", {"id": job}),
        ("logs", {"id": job, "stream": "stderr", "lines": 5}),
        ("cancel", {"job": endless}),
        ("list", {"limit": 5}),
        ("tasks", {"job": job, "state": ["failed"]}),
        ("show", {"job": job}),
        ("workers", {}),
    ]


class McpTest(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.server = self.start_server()
        self.env = {**clean_env(self.dir / "state"), "WINDLASS_SERVER": self.server.address}

    def parameters(self) -> StdioServerParameters:
        return StdioServerParameters(command=PROGRAM, args=["mcp"], env=self.env)

    def submit(self, script: str) -> str:
        return self.program("submit", "-o", "name", "--", "sh", "-c", script, server=self.server.address).strip()

    def jobs(self) -> tuple[str, str]:
        """A job that fails, and one that does not end by itself."""
        return self.submit("echo dark >&2; exit 3"), self.submit("exec sleep 3600")

    def test_the_client_of_python_calls_every_tool(self) -> None:
        for mode, version in [("legacy", "2025-11-25"), ("auto", "2026-07-28")]:
            with self.subTest(mode):
                asyncio.run(asyncio.wait_for(self.call_every_tool(mode, version), HUNG_S))

    async def call_every_tool(self, mode: str, version: str) -> None:
        job, endless = self.jobs()
        async with Client(self.parameters(), mode=mode) as client:
            self.assertEqual(client.protocol_version, version)
            tools = (await client.list_tools()).tools
            self.assertEqual([tool.name for tool in tools], NAMES)
            for tool in tools:
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                assert tool.output_schema is not None and tool.annotations is not None
                jsonschema.Draft202012Validator.check_schema(tool.output_schema)
                self.assertEqual(tool.annotations.read_only_hint, tool.name not in ("submit", "cancel"))
            schemas = {tool.name: tool.input_schema for tool in tools}
            for name, arguments in calls_of(job, endless):
                jsonschema.validate(arguments, schemas[name])
                # The client holds the structured content against the schema of the tool.
                result = await client.call_tool(name, arguments)
                self.assertFalse(result.is_error, f"{name}: {result.content}")
                self.assertLessEqual(len(result.model_dump_json(by_alias=True)), ANSWER_BYTES_MAX)
            waited = (await client.call_tool("wait", {"job": job})).structured_content
            assert waited is not None
            self.assertEqual((waited["state"], waited["exit_code"]), ("failed", 3))
            refused = await client.call_tool("submit", {"command": "make"})
            self.assertTrue(refused.is_error)

    def test_a_wait_is_followed_and_given_up(self) -> None:
        asyncio.run(asyncio.wait_for(self.give_up_a_wait(), HUNG_S))

    async def give_up_a_wait(self) -> None:
        gate = self.gate()
        async with Client(self.parameters()) as client:
            submitted = await client.call_tool("submit", {"command": gate.command(), "cwd": "/"})
            assert submitted.structured_content is not None
            job = str(submitted.structured_content["job"])
            was_told = asyncio.Event()

            async def told(progress: float, total: float | None, message: str | None) -> None:
                self.assertEqual(total, 600)
                self.assertIn(f"job {job} is", message or "")
                was_told.set()

            waiting = asyncio.create_task(
                client.call_tool("wait", {"job": job, "seconds": 600}, progress_callback=told)
            )
            await was_told.wait()
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            self.assertFalse((await client.call_tool("list", {})).is_error, "the connection goes on")
            await client.call_tool("cancel", {"job": job})
            ended = (await client.call_tool("wait", {"job": job})).structured_content
            assert ended is not None
            self.assertEqual(ended["state"], "canceled")

    def inspect(self, *args: str) -> Any:
        env = [part for name in ("WINDLASS_SERVER", "WINDLASS_STATE") for part in ("-e", f"{name}={self.env[name]}")]
        command = ["node", INSPECTOR, "--cli", *env, PROGRAM, "mcp", *args]
        # It looks for a file of its own from the current directory.
        here = os.path.dirname(INSPECTOR)
        done = subprocess.run(
            command, env=self.env, cwd=here, capture_output=True, text=True, timeout=HUNG_S, check=False
        )
        self.assertEqual(done.returncode, 0, f"{args}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def test_the_inspector_lists_and_calls_every_tool(self) -> None:
        if not INSPECTOR:
            self.skipTest("the inspector is missing")
        self.assertEqual([tool["name"] for tool in self.inspect("--method", "tools/list")["tools"]], NAMES)
        for name, arguments in calls_of(*self.jobs()):
            texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
            flags = ["--tool-arg", *(f"{key}={text}" for key, text in texts.items())] if texts else []
            result = self.inspect("--method", "tools/call", "--tool-name", name, *flags)
            self.assertFalse(result["isError"], f"{name}: {result}")
            self.assertIn("structuredContent", result)


if __name__ == "__main__":
    result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.defaultTestLoader.loadTestsFromTestCase(McpTest))
    failed = len(result.failures) + len(result.errors)
    passed = 0 if failed else result.testsRun - len(result.skipped)
    # In the form of cargo's, which the project's own script counts.
    ended, skipped = "FAILED" if failed else "ok", len(result.skipped)
    print(f"test result: {ended}. {passed} passed; {failed} failed; {skipped} ignored")
    sys.exit(1 if failed else 0)
