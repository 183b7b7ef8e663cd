"""A task of Windlass with a jobserver, in the place of ninja's `misc/jobserver_pool.py`."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--pipe", action="store_true")
parser.add_argument("--jobs", type=int, default=2)
parser.add_argument("command", nargs=argparse.REMAINDER)
args = parser.parse_args()
form = "pipes" if args.pipe else "fifo"
program = os.environ["WINDLASS"]
flags = ["--quiet", "--cwd", "/", f"--jobserver={form}", "--cpus", f"0.1-{args.jobs}"]
os.execv(program, [program, "run", *flags, "--", *args.command])
