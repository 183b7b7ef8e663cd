"""The remote cache, used by stock build tools: Bazel over gRPC and HTTP, ccache, and sccache over WebDAV."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request
from pathlib import Path
from typing import Dict, List, Tuple

from tests.servers import ServerProcess, WithDirectory

SCCACHE = Path(sys.executable).with_name("sccache")

HUNG_S = 300.0
"""A bound that only a hung test reaches."""

SOURCE = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'

# One output is a row of the store, and the other a file.
BUILD = """
genrule(name = "small", outs = ["small.txt"], cmd = "for i in 1 2 3; do echo $$i; done > $@")
genrule(
    name = "large",
    srcs = [":small"],
    outs = ["large.bin"],
    cmd = "head -c 3000000 /dev/zero > $@; cat $(location :small) >> $@",
)
"""


class StockClients(WithDirectory):
    """Each builds twice, with nothing of its own left in between. The second time it has all from the cache."""

    def setUp(self) -> None:
        super().setUp()
        if os.geteuid() == 0:
            # As root a server that others reach runs no tasks.
            self.server = self.start_server("--listen", "127.0.0.1:0", "--no-worker")
        else:
            self.server = self.start_server("--listen", "127.0.0.1:0")
        self.address = self.server.address
        self.writer = self.token("user", "write")
        self.reader = self.token("viewer", "read")

    def token(self, role: str, cache: str) -> str:
        """A token of that role with a right to the cache."""
        file = self.dir / f"{cache}.token"
        args = ["--role", role, "--user", cache, "--cache", cache, "--out", str(file)]
        self.program("token", "create", *args, server=self.server.admin_socket)
        return file.read_text(encoding="utf-8").strip()

    def source(self) -> Path:
        """A program in C."""
        file = self.dir / "hello.c"
        file.write_text(SOURCE, encoding="utf-8")
        return file

    def run_client(self, *command: object, **env: str) -> str:
        """What a client prints, its errors too."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=self.dir,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HUNG_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{words[0]}: {done.stdout}")
        return done.stdout

    def figures(self) -> Dict[str, float]:
        """The figures of the cache, by name and label."""
        url = f"http://{self.address}/metrics"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.writer}"})
        with urllib.request.urlopen(request, timeout=HUNG_S) as answer:
            text = answer.read().decode()
        lines = re.findall(r"^(windlass_cas_[^ ]+) ([0-9.e+]+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in lines}

    def hits_and_misses(self) -> Tuple[int, int]:
        """How many questions for results were answered from the cache, and how many could not be."""
        figures = self.figures()
        hits, misses = (figures.get(f'windlass_cas_results_total{{answer="{answer}"}}', 0) for answer in ("hit", "miss"))
        return int(hits), int(misses)

    def test_ccache(self) -> None:
        """An object that one machine compiled is another one's hit."""
        if not shutil.which("ccache"):
            self.skipTest("ccache is not installed")
        source, objects = self.source(), []
        for place in ("one", "two"):
            url = f"http://ci:{self.writer}@{self.address}/cache/kv/ccache"
            made = self.dir / f"{place}.o"
            env = {"CCACHE_DIR": str(self.dir / place), "CCACHE_REMOTE_STORAGE": url, "CCACHE_SECONDARY_STORAGE": url}
            self.run_client("ccache", "cc", "-c", source, "-o", made, **env)
            objects.append(made.read_bytes())
        self.assertEqual(objects[0], objects[1])
        hits, misses = self.hits_and_misses()
        self.assertGreaterEqual(hits, 1)
        self.assertGreaterEqual(misses, 1)

    def test_sccache(self) -> None:
        """The same over WebDAV, and a token that may only read adds nothing."""
        if not SCCACHE.exists():
            self.skipTest("sccache is not installed")
        source = self.source()
        # The reader comes first: what it compiles is not kept.
        for token, hits_of_all in ((self.reader, 0), (self.writer, 0), (self.writer, 1), (self.reader, 2)):
            env = {
                "SCCACHE_WEBDAV_ENDPOINT": f"http://{self.address}/cache/kv/sccache",
                "SCCACHE_WEBDAV_TOKEN": token,
                "SCCACHE_SERVER_UDS": str(self.dir / "sccache.sock"),
                "SCCACHE_DIR": str(self.dir / "unused"),
                "SCCACHE_CACHED_CONF": str(self.dir / "sccache.conf"),
            }
            made = self.dir / "made.o"
            try:
                self.run_client(SCCACHE, "cc", "-c", source, "-o", made, **env)
                stats = json.loads(self.run_client(SCCACHE, "--show-stats", "--stats-format", "json", **env))
            finally:
                self.run_client(SCCACHE, "--stop-server", **env)
            hit = sum(stats["stats"]["cache_hits"]["counts"].values())
            self.assertEqual(hit, int(hits_of_all > 0), stats)
            self.assertTrue(made.exists())
            made.unlink()

    def bazel(self, *args: object) -> str:
        """What Bazel says of a build in the workspace."""
        # Debian names in its own file where the parts of Bazel are.
        startup = ["bazel", f"--output_user_root={self.dir}/bazel"]
        return self.run_client("env", "-C", self.dir / "workspace", *startup, *args)

    def processes(self, *options: str) -> str:
        """How Bazel made what it built, after a `clean`."""
        self.bazel("clean")
        said = self.bazel("build", "//:large", *options)
        found = re.search(r"INFO: \d+ processes?: (.*)\.", said)
        self.assertIsNotNone(found, said)
        assert found is not None
        return found[1]

    def test_bazel(self) -> None:
        """Over gRPC, over gRPC with an instance, and over HTTP."""
        if not shutil.which("bazel"):
            self.skipTest("bazel is not installed")
        workspace = self.dir / "workspace"
        workspace.mkdir()
        (workspace / "WORKSPACE").write_text("", encoding="utf-8")
        (workspace / "BUILD").write_text(BUILD, encoding="utf-8")
        self.addCleanup(lambda: self.bazel("shutdown"))

        def header(token: str) -> str:
            return f"--remote_header=authorization=Bearer {token}"

        over_grpc = [f"--remote_cache=grpc://{self.address}", header(self.writer)]
        ways: List[List[str]] = [
            over_grpc,
            [*over_grpc, "--remote_instance_name=others"],
            [f"--remote_cache=http://ci:{self.writer}@{self.address}/cache/http"],
        ]
        for way in ways:
            self.assertNotIn("remote cache hit", self.processes(*way))
            self.assertIn("2 remote cache hit", self.processes(*way))
        # A token that may only read has hits, and leaves no results.
        reads = [f"--remote_cache=grpc://{self.address}", header(self.reader), "--remote_upload_local_results=false"]
        self.assertIn("2 remote cache hit", self.processes(*reads))
        for _ in range(2):
            said = self.processes(*reads, "--remote_instance_name=nobody")
            self.assertNotIn("remote cache hit", said)
        self.kill_and_start_again()
        self.assertIn("2 remote cache hit", self.processes(*ways[0][1:], f"--remote_cache=grpc://{self.address}"))

    def kill_and_start_again(self) -> None:
        """Kills the server, and starts another on the same state."""
        self.server.kill()
        self.server.start()
        self.address = self.server.address


if __name__ == "__main__":
    unittest.main(verbosity=0)
