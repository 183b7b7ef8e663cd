"""Runs calls of an executor. The executor copies this file into its directory, so that a worker needs nothing but
Python and that directory. Usage: run_call.py NUMBER..."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import sys
import traceback
import types
from typing import Any, Dict, List, Tuple


def main(numbers: List[str]) -> int:
    """Runs the calls; returns the exit code of the task: 1 if one of them raised an exception."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.pop(0)
    with open(os.path.join(folder, "setup.json")) as file:
        setup = json.load(file)
    sys.path[:] = setup["sys_path"]
    return max(run(folder, number, setup) for number in numbers)


def run(folder: str, number: str, setup: Dict[str, Any]) -> int:
    """Runs one call, and leaves its result in a file."""
    result_path = os.path.join(folder, "results", number)
    claimed = os.path.join(folder, "running", number)
    try:
        # The first to rename the file has the call: this process, or the client that cancels it.
        os.rename(os.path.join(folder, "calls", number), claimed)
    except FileNotFoundError:
        # It was cancelled; or this is another attempt. What has succeeded, in a chunk that failed, is not run again.
        if not os.path.exists(claimed) or has_succeeded(result_path):
            return 0
    try:
        with open(claimed, "rb") as file:
            call = file.read()
        if b"__main__" in call:
            load_main(setup)
        function, args, kwargs = pickle.loads(call)
        result: Tuple[Any, ...] = ("value", pickle.dumps(function(*args, **kwargs), pickle.HIGHEST_PROTOCOL))
        code = 0
    except BaseException as error:
        result, code = raised(error), 1
    write(result_path, result)
    sys.stdout.flush()
    return code


def raised(error: BaseException) -> Tuple[Any, ...]:
    """The exception, as far as it can be sent."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data: Any = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
        pickle.loads(data)
    except Exception:
        data = None
    print(text, end="", file=sys.stderr, flush=True)
    return ("error", data, "".join(traceback.format_exception_only(type(error), error)).strip(), text)


def has_succeeded(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return bool(pickle.load(file)[0] == "value")
    except OSError:
        return False


def write(path: str, result: Tuple[Any, ...]) -> None:
    """Writes the file in one piece: a reader sees all of it or none."""
    fresh = "%s.%d.new" % (path, os.getpid())
    with open(fresh, "wb") as file:
        pickle.dump(result, file, pickle.HIGHEST_PROTOCOL)
    os.replace(fresh, path)


def load_main(setup: Dict[str, Any]) -> None:
    """Loads the main program of the client under another name, as multiprocessing does, so that its functions and
    classes are found and its `if __name__ == "__main__"` does not run."""
    if "__mp_main__" in sys.modules:
        return
    module = types.ModuleType("__mp_main__")
    if setup["main_module"]:
        content = runpy.run_module(setup["main_module"], run_name="__mp_main__", alter_sys=True)
    elif setup["main_path"]:
        content = runpy.run_path(setup["main_path"], run_name="__mp_main__")
    else:
        return
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
