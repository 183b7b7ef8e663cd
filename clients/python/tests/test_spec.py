"""Submissions are made from a command, and what cannot be sent is refused at once."""

import hashlib
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict

from windlass.address import parse_address
from windlass.errors import ConfigError
from windlass.own import local_token, paths_for_user
from windlass.spec import TaskOptions, environment, job_spec, parse_size


def step(*command: str, **options: Any) -> Dict[str, Any]:
    values, array = options.pop("values", None), options.pop("array", None)
    return dict(job_spec(list(command), values, array, options, "none")["steps"][0])  # type: ignore[arg-type]


class Spec(unittest.TestCase):
    def test_a_command_is_all_that_is_needed(self) -> None:
        one = step("true")
        self.assertEqual((one["command"], one["cwd"], one["resources"]), (["true"], os.getcwd(), {"cpus": 1}))
        self.assertNotIn("param", one)

    def test_the_umask_is_that_of_this_process_unless_one_is_given(self) -> None:
        before = os.umask(0o027)
        try:
            self.assertEqual((step("true")["umask"], step("true", umask="077")["umask"]), ("0027", "077"))
        finally:
            os.umask(before)

    def test_values_are_appended_where_the_command_has_no_place_for_them(self) -> None:
        self.assertEqual(step("echo", values=[1, "b"])["command"], ["echo", "{}"])
        self.assertEqual(step("echo", "{/.}", values=["a"])["command"], ["echo", "{/.}"])
        self.assertEqual(step("echo", array="1-3")["command"], ["echo"])
        self.assertEqual(step("echo", values=[1, "b"])["param"], {"values": ["1", "b"]})

    def test_ranges_are_those_of_the_program_and_of_python(self) -> None:
        cases: Dict[Any, Any] = {"1-9:2": (1, 9, 2), "-5--1": (-5, -1, 1), "7": (7, 7, 1), range(1, 10, 4): (1, 9, 4)}
        for array, (start, end, by) in cases.items():
            self.assertEqual(step("x", array=array)["param"], {"range": {"start": start, "end": end, "step": by}})
        for bad in ("a-b", "", range(0)):
            with self.assertRaises(ValueError):
                step("x", array=bad)

    def test_an_array_of_several_ranges_or_with_leading_zeros_is_a_list(self) -> None:
        cases = {"1,3,7-9:2": "1 3 7 9", "08-10": "08 09 10", "-01,2": "-01 2", "3-1:-1,5": "3 2 1 5"}
        for array, values in cases.items():
            self.assertEqual(step("x", array=array)["param"], {"values": values.split()}, array)
        self.assertEqual(step("x", array="1,2")["command"], ["x"])
        for bad in ("1,", "2-1", "1-2:0", "1-10000001,1"):
            with self.assertRaises(ValueError):
                step("x", array=bad)

    def test_jobs_come_after_others_in_each_way(self) -> None:
        options: TaskOptions = {"after": [1], "after_any": ["2"], "after_not_ok": (3,), "after_each": 4}
        job = job_spec(["x"], None, None, options, "none")
        self.assertEqual((job["after"], job["after_any"], job["after_not_ok"], job["after_tasks"]), ([1], [2], [3], 4))

    def test_failures_stop_the_job_as_the_program_says_it(self) -> None:
        cases: Dict[Any, Any] = {"kill": ("kill", None), 3: ("finish", "3"), "5%": ("finish", "5%")}
        cases["kill:2"] = ("kill", "2")
        for given, (how, limit) in cases.items():
            job = job_spec(["x"], None, None, {"fail_fast": given}, "none")
            self.assertEqual((job["fail_fast"], job.get("fail_limit")), (how, limit))
        for bad in ("die", "kill:", "kill:x", "die:3", ":finish"):
            with self.assertRaisesRegex(ValueError, "fail_fast"):
                job_spec(["x"], None, None, {"fail_fast": bad}, "none")

    def test_addresses_are_told_of_ends_or_of_failures(self) -> None:
        job = job_spec(["x"], None, None, {"on_end": ["https://a/b"], "on_failure": ["mailto:c@d"]}, "none")
        self.assertEqual(job["on_end"], [{"url": "https://a/b"}, {"url": "mailto:c@d", "only_failures": True}])

    def test_cpus_are_a_number_a_range_or_learned(self) -> None:
        auto, between = step("x", cpus="auto"), step("x", cpus="2-16")
        self.assertEqual((auto["resources"], auto["cpus_auto"]), ({"cpus": 1}, True))
        self.assertEqual((between["resources"], between["cpus_max"]), ({"cpus": 2}, 16))
        with self.assertRaisesRegex(ValueError, "cpus"):
            step("x", cpus="many")

    def test_a_build_books_little_and_has_a_jobserver(self) -> None:
        build, pipes = step("make", jobserver=True), step("make", jobserver="pipes", cpus="2-16")
        self.assertEqual((build["jobserver"], build["resources"]), ("auto", {"cpus": 0.1}))
        self.assertEqual((pipes["jobserver"], pipes["resources"], pipes["cpus_max"]), ("pipes", {"cpus": 2}, 16))
        without = step("make", jobserver=False)
        self.assertEqual((without["jobserver"], without["resources"]), ("none", {"cpus": 1}))
        self.assertNotIn("jobserver", step("make"))

    def test_hints_are_fields_of_the_step(self) -> None:
        one = step("x", caches={"a": "1k", "b": None}, kind="evaluation", fetches=True, max_wait_s=1.5)
        self.assertEqual((one["caches"], one["kind"], one["fetches"]), ({"a": 1024, "b": None}, "evaluation", True))
        self.assertEqual(one["deadline_ms"], 1500)

    def test_units_are_those_of_the_interface(self) -> None:
        one = step("x", memory="1.5g", time_limit_s=0.25, gpus=1, chunks=True, limits=["maya"])
        self.assertEqual(one["resources"], {"cpus": 1, "memory": 3 << 29, "gpus": 1})
        self.assertEqual((one["time_limit_ms"], one["chunks"], one["limits"]), (250, {}, ["maya"]))
        self.assertEqual([parse_size(size) for size in (5, "5", "2KiB", "500M")], [5, 5, 2048, 500 << 20])
        with self.assertRaisesRegex(ValueError, "invalid size 'big'"):
            parse_size("big")

    def test_mistakes_are_told_before_anything_is_sent(self) -> None:
        with self.assertRaisesRegex(TypeError, "sh"):
            job_spec("echo hello", None, None, {}, "none")
        with self.assertRaisesRegex(TypeError, "there is no option 'cpu'"):
            step("true", cpu=2)
        with self.assertRaisesRegex(TypeError, "not both"):
            step("true", values=[1], array="1-2")

    def test_the_environment_has_no_token_and_no_task(self) -> None:
        own = {"A": "1", "HOME": "/h", "WINDLASS_TOKEN": "t", "WINDLASS_TASK": "1.0", "BAD": "\udcff"}
        self.assertEqual(environment(None, "all", own), {"A": "1", "HOME": "/h"})
        self.assertEqual(environment(None, "but_home", own), {"A": "1"})
        self.assertEqual(environment("all", "but_home", own), {"A": "1", "HOME": "/h"})
        self.assertEqual(environment(None, "none", own), {})
        self.assertEqual(environment({"B": "2"}, "all", own), {"B": "2"})


class OwnServer(unittest.TestCase):
    def test_paths_follow_the_variables(self) -> None:
        home = {"HOME": "/h", "XDG_RUNTIME_DIR": "/run/user/1"}
        self.assertEqual(str(paths_for_user(home).state), "/h/.local/state/windlass")
        self.assertEqual(str(paths_for_user(home).socket), "/run/user/1/windlass/server.sock")
        self.assertEqual(str(paths_for_user({"HOME": "/h"}).socket), f"/tmp/windlass-{os.getuid()}/server.sock")
        own = paths_for_user({**home, "WINDLASS_STATE": "/s", "XDG_STATE_HOME": "/x"})
        self.assertEqual((str(own.state), str(own.socket)), ("/s", "/s/run/server.sock"))

    def test_a_long_path_has_a_short_socket_of_a_name_that_stays(self) -> None:
        long = "/" + "x" * 107
        short = hashlib.sha256(long.encode()).hexdigest()[:16]
        self.assertEqual(short, "aa9494bcbcc32a53")
        socket = paths_for_user({"HOME": "/h", "WINDLASS_RUNTIME": long}).socket
        self.assertEqual(str(socket), f"/tmp/windlass-{os.getuid()}-{short}/server.sock")

    def test_a_directory_that_others_may_write_to_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            os.chmod(name, 0o777)
            with self.assertRaisesRegex(ConfigError, "only you may write to"):
                paths_for_user({"HOME": "/h", "WINDLASS_RUNTIME": name}).check()

    def test_only_the_server_that_wrote_it_is_shown_the_local_token(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "local.token").write_text("https://127.0.0.1:7117\nwl_a_b\n")
            env = {"WINDLASS_STATE": name}
            for at in ("127.0.0.1:7117", "localhost:7117", "https://localhost:7117", "http://[::1]:7117"):
                self.assertEqual(local_token(parse_address(at), env), "wl_a_b", at)
            for at in ("127.0.0.1:7118", "farm.example:7117", "unix:/run/x", "localhost"):
                self.assertIsNone(local_token(parse_address(at), env), at)


if __name__ == "__main__":
    unittest.main()
