"""Files of tasks: trees by their content, archives that may be anything, and both with a real server."""

import hashlib
import io
import os
import tarfile
import tempfile
import unittest
from pathlib import Path
from typing import Optional

import windlass
from tests.test_client import WithServer
from windlass.files import BATCH_BYTES_MAX, BATCHED_BYTES_MAX, Tree, directory_of, tree_of, unpack, uploads
from windlass.spec import job_spec


def archive(*members: "tuple[str, Optional[str], bytes]") -> io.BytesIO:
    """An archive of names, each with its content, or with the letter of its kind."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as made:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o644
            data = (content or "").encode()
            if kind == tarfile.SYMTYPE:
                info.linkname, data = content or "", b""
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    whole.seek(0)
    return whole


def plain(name: str, content: str) -> "tuple[str, Optional[str], bytes]":
    return name, content, tarfile.REGTYPE


class Trees(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.dir = Path(made.name).resolve()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.dir)

    def test_a_tree_is_named_by_its_canonical_message(self) -> None:
        Path("a").write_text("alpha")
        os.chmod("a", 0o755)
        content = hashlib.sha256(b"alpha").hexdigest()
        # A field's length comes before it: that of the file, of its digest, and of the hash.
        body = b"\n\x01a\x12\x44\n\x40" + content.encode() + b"\x10\x05\x20\x01"
        message = b"\n" + bytes([len(body)]) + body
        tree = tree_of("a")
        self.assertEqual(tree.root, f"{hashlib.sha256(message).hexdigest()}/{len(message)}")
        self.assertEqual(tree.blobs[tree.root], message)
        self.assertEqual(tree.blobs[f"{content}/5"], str(self.dir / "a"))

    def test_names_are_those_below_the_current_directory_or_the_last_part(self) -> None:
        Path("src/deep").mkdir(parents=True)
        Path("src/deep/b").write_text("beta")
        Path("src/.git").mkdir()
        Path("src/.git/config").write_text("not taken")
        os.symlink("deep/b", "src/l")
        self.assertEqual(tree_of(["src"]).root, tree_of("src/").root)
        os.chdir("src/deep")
        self.assertEqual(tree_of(self.dir / "src").root, tree_of({self.dir / "src": "src"}).root)
        self.assertEqual(tree_of("../../src").root, tree_of({"..": "src"}).root)
        self.assertNotEqual(tree_of({"..": "other"}).root, tree_of({"..": "src"}).root)
        self.assertNotEqual(tree_of({"..": "."}).root, tree_of({"..": "src"}).root)
        for bad in ({"b": "../x"}, {"b": "/x"}, {"b": "."}, {"b": "x", "..": "x"}, ["none"]):
            with self.assertRaises((ValueError, OSError), msg=str(bad)):
                tree_of(bad)

    def test_small_blobs_go_together_and_large_ones_alone(self) -> None:
        large = str(self.dir / "large")
        Path(large).write_bytes(b"x" * (BATCHED_BYTES_MAX + 1))
        half = b"y" * (BATCHED_BYTES_MAX - 1)
        blobs = {f"{number}/{len(half)}": half for number in range(BATCH_BYTES_MAX // len(half) + 1)}
        tree = Tree("", {f"{'a' * 64}/{BATCHED_BYTES_MAX + 1}": large, **blobs})
        calls = list(uploads(tree, tree.blobs))
        self.assertEqual([call.method for call in calls], ["PUT", "POST", "POST"])
        self.assertEqual((calls[0].file, calls[0].body_bytes()), (large, BATCHED_BYTES_MAX + 1))
        assert calls[2].body is not None
        self.assertEqual(calls[2].body.split(b"\n")[0], f"4 {len(half)}".encode())


class Archives(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.top = Path(made.name)
        self.into = self.top / "in"

    def put(self, *members: "tuple[str, Optional[str], bytes]", force: bool = False) -> "list[str]":
        return unpack(archive(*members), str(self.into), force)

    def test_what_is_there_stays_as_it_is(self) -> None:
        members = (("d/", None, tarfile.DIRTYPE), plain("d/f", "new"), ("d/l", "../g", tarfile.SYMTYPE), plain("g", ""))
        self.assertEqual(self.put(*members), [])
        before = (self.into / "d/f").stat().st_mtime_ns
        self.assertEqual(self.put(*members), [])
        self.assertEqual((self.into / "d/f").stat().st_mtime_ns, before)
        (self.into / "d/f").write_text("mine")
        self.assertEqual(self.put(*members), [str(self.into / "d/f")])
        self.assertEqual((self.into / "d/f").read_text(), "mine")
        self.assertEqual(self.put(*members, force=True), [])
        self.assertEqual((self.into / "d/f").read_text(), "new")
        self.assertEqual(sorted(os.listdir(self.into)), ["d", "g"])

    def test_nothing_is_written_outside(self) -> None:
        for member in (
            plain("../x", "x"),
            plain("/x", "x"),
            plain("a/../../x", "x"),
            ("l", "/x", tarfile.SYMTYPE),
            ("l", "../x", tarfile.SYMTYPE),
            ("p", None, tarfile.FIFOTYPE),
        ):
            with self.assertRaises(ValueError, msg=str(member)):
                self.put(member, force=True)
            self.assertEqual(os.listdir(self.top), ["in"])
            self.assertEqual(os.listdir(self.into), [])

    def test_no_name_leads_through_a_link(self) -> None:
        outside = self.top / "out"
        outside.mkdir()
        self.into.mkdir()
        (self.into / "sub").symlink_to(outside)
        (self.into / "f").symlink_to(outside / "f")
        kept = self.put(plain("sub/x", "x"), plain("f", "mine"), force=True)
        self.assertEqual(kept, [str(self.into / "sub")])
        self.assertEqual((os.listdir(outside), (self.into / "f").read_text()), ([], "mine"))
        self.assertFalse((self.into / "f").is_symlink())

    def test_a_directory_is_named_by_step_and_index(self) -> None:
        self.assertEqual((directory_of("render", 3), directory_of("../a b", 0)), ("render.3", "_._a b.0"))


class Steps(unittest.TestCase):
    def test_a_command_with_files_runs_in_a_directory_of_its_own(self) -> None:
        step = job_spec(["cc"], None, None, {"outputs": ["*.o"], "inputs": "src"}, "none")["steps"][0]
        self.assertEqual((step["cwd"], step["files"]), (".", {"outputs": ["*.o"]}))
        self.assertEqual(job_spec(["x"], None, None, {"inputs": "a", "cwd": "b"}, "none")["steps"][0]["cwd"], "b")
        self.assertNotIn("files", job_spec(["x"], None, None, {}, "none")["steps"][0])
        with self.assertRaisesRegex(ValueError, "inside it"):
            job_spec(["x"], None, None, {"inputs": "a", "cwd": "/b"}, "none")


class WithFiles(WithServer):
    def test_inputs_go_in_and_outputs_come_back(self) -> None:
        source = self.dir / "source"
        source.mkdir()
        (source / "a").write_text("alpha")
        (source / "large").write_bytes(b"x" * 3_000_000)
        command = ["sh", "-c", "wc -c < in/large; tr a-z A-Z < in/a > out.{}"]
        done = self.client.map(command, [1, 2], inputs={source: "in"}, outputs=["out.*"])
        self.assertEqual([one.text for one in done], ["3000000"] * 2)
        job = done[0].task.job
        kept = [(one.index, one.files, one.bytes) for one in self.client.outputs(job)]
        self.assertEqual(kept, [(0, 1, 5), (1, 1, 5)])
        self.assertEqual([one.index for one in self.client.fetch(job, self.dir / "got")], [0, 1])
        self.assertEqual((self.dir / "got/main.0/out.1").read_text(), "ALPHA")
        self.client.fetch(job, self.dir / "one", tasks=[1])
        self.client.fetch(job, self.dir / "one", flat=True)
        self.assertEqual(sorted(os.listdir(self.dir / "one")), ["out.1", "out.2"])
        (self.dir / "one/out.1").write_text("mine")
        with self.assertRaisesRegex(FileExistsError, "out.1"):
            self.client.fetch(job, self.dir / "one", flat=True)
        with self.assertRaises(windlass.NotFound):
            self.client.fetch(job + 1)


if __name__ == "__main__":
    unittest.main()
