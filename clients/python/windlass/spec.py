"""Submissions: the JSON of a job, and how it is made from a command."""

from __future__ import annotations

import getpass
import os
import re
import secrets
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, TypedDict, Union, cast


class Range(TypedDict, total=False):
    """Numbers from `start` to `end`, both included."""

    start: int
    end: int
    step: int


class Resources(TypedDict, total=False):
    """The amounts that each task holds while it runs. Memory is in bytes, and is the task's limit, too."""

    cpus: float
    memory: int
    gpus: int
    gpu_memory: int
    custom: Dict[str, int]


class Depends(TypedDict, total=False):
    """A dependency on another step: as a whole (`by` is `step`), or task by task (`task`)."""

    on: str
    by: str


# `with` is a word of Python, so a class cannot have such a field.
_With = TypedDict("_With", {"with": str}, total=False)


class StepSpec(_With, total=False):
    """A step: tasks with one command and one set of requirements."""

    name: str
    command: List[str]
    env: Dict[str, str]
    cwd: str
    param: Dict[str, Any]
    resources: Resources
    tags: List[str]
    workers: List[str]
    time_limit_ms: int
    max_running: int
    nodes: int
    chunks: Dict[str, Any]
    retries: int
    depends: List[Depends]
    session: Dict[str, Any]
    limits: List[str]
    kind: str
    network_bound: bool
    prefer_local: bool
    fetches: bool
    caches: Dict[str, Optional[int]]
    deadline_ms: int
    cpus_auto: bool
    cpus_max: float


class JobSpec(TypedDict, total=False):
    """A job, as the HTTP interface takes it. `steps` is all that it needs."""

    name: str
    queue: str
    user: str
    priority: int
    key: str
    parent: str
    after: List[int]
    fail_fast: str
    max_running: int
    placeable_only: bool
    steps: List[StepSpec]


class TaskOptions(TypedDict, total=False):
    """What may be said of the tasks of a command. The words are those of `windlass submit`."""

    name: str
    queue: str
    priority: int
    key: str
    """Idempotency key: a second submission with it returns the first job. By default a fresh one."""
    after: Iterable[Union[int, str]]
    """Jobs that must succeed first."""
    cpus: float
    cpus_max: float
    memory: Union[int, str]
    """Bytes, or a size such as "2G"; also the limit of each task."""
    gpus: int
    custom: Mapping[str, int]
    cwd: str
    """The working directory on the worker; by default the current one."""
    env: Union[Mapping[str, str], str]
    """The whole environment of the tasks, or "all" or "none" of yours. The default is that of `windlass submit`."""
    tags: Iterable[str]
    workers: Iterable[str]
    limits: Iterable[str]
    time_limit_s: float
    retries: int
    max_running: int
    nodes: int
    chunks: Union[bool, int]
    """True lets one process run several tasks, as many as are worth it; a number is how many."""
    fail_fast: str
    placeable_only: bool
    parent: str


_OF_JOB = ("name", "queue", "priority", "fail_fast", "max_running", "placeable_only", "parent")
_OF_STEP = ("retries", "nodes", "cpus_max")
_LISTS_OF_STEP = ("tags", "workers", "limits")
_OTHERS = ("key", "after", "cpus", "memory", "gpus", "custom", "cwd", "env", "time_limit_s", "chunks")


def job_spec(
    command: Sequence[str],
    values: Optional[Iterable[object]],
    array: Union[range, str, None],
    options: TaskOptions,
    inherit: str,
) -> JobSpec:
    """The job of one command. `inherit` says which variables tasks get by default: `all`, `but_home` or `none`."""
    if isinstance(command, (str, bytes)):
        raise TypeError("the command is a list of arguments; for a shell line write ['sh', '-c', LINE]")
    given = cast(Dict[str, Any], dict(options))
    unknown = set(given) - {*_OF_JOB, *_OF_STEP, *_LISTS_OF_STEP, *_OTHERS}
    if unknown:
        raise TypeError(f"there is no option {', '.join(map(repr, sorted(unknown)))}")
    step: Dict[str, Any] = {"command": [os.fspath(word) for word in command]}
    step["env"] = environment(given.get("env"), inherit, os.environ)
    step["cwd"] = os.path.abspath(given.get("cwd") or os.getcwd())
    param = _param(values, array)
    if param is not None:
        step["param"] = param
        step["command"] = _with_value(step["command"], "values" in param)
    step["resources"] = _resources(given)
    for name in _OF_STEP:
        if given.get(name) is not None:
            step[name] = given[name]
    for name in _LISTS_OF_STEP:
        if given.get(name):
            step[name] = list(given[name])
    if given.get("time_limit_s") is not None:
        step["time_limit_ms"] = max(1, round(given["time_limit_s"] * 1000))
    chunks = given.get("chunks")
    if chunks:
        step["chunks"] = {} if chunks is True else {"tasks": int(chunks)}
    job: Dict[str, Any] = {name: given[name] for name in _OF_JOB if given.get(name) is not None}
    if given.get("after"):
        job["after"] = [int(one) for one in given["after"]]
    job["key"] = given.get("key") or fresh_key()
    job["steps"] = [step]
    return cast(JobSpec, job)


def _param(values: Optional[Iterable[object]], array: Union[range, str, None]) -> Optional[Dict[str, Any]]:
    if values is not None and array is not None:
        raise TypeError("give values or array, not both")
    if array is not None:
        return {"range": _range_of(array)}
    if values is None:
        return None
    if isinstance(values, (str, bytes)):
        raise TypeError("values is a list, not one text")
    return {"values": [value if isinstance(value, str) else str(value) for value in values]}


def _range_of(array: Union[range, str]) -> Range:
    if isinstance(array, range):
        if not len(array):
            raise ValueError(f"{array} is empty")
        return {"start": array[0], "end": array[-1], "step": array.step}
    found = re.fullmatch(r"(-?\d+)(?:-(-?\d+))?(?::(-?\d+))?", array)
    if found is None:
        raise ValueError(f"invalid range {array!r}: write '1-100', '1-100:5' or range(1, 101)")
    start = int(found[1])
    return {"start": start, "end": int(found[2]) if found[2] else start, "step": int(found[3] or 1)}


REPLACEMENTS = ("{}", "{.}", "{/}", "{//}", "{/.}")
"""Strings that stand for the task's value, as in GNU parallel."""


def _with_value(command: List[str], is_list: bool) -> List[str]:
    """The value of a list is appended if no argument has a place for it."""
    has_place = any(mark in word for word in command for mark in REPLACEMENTS)
    return command if has_place or not is_list else [*command, "{}"]


def _resources(given: Mapping[str, Any]) -> Resources:
    resources: Resources = {"cpus": given.get("cpus", 1)}
    if given.get("memory") is not None:
        resources["memory"] = parse_size(given["memory"])
    if given.get("gpus"):
        resources["gpus"] = given["gpus"]
    if given.get("custom"):
        resources["custom"] = dict(given["custom"])
    return resources


def parse_size(size: Union[int, str]) -> int:
    """Bytes from a number, or from `500M`, `2GiB` or `1.5g`; every unit is a power of 1024."""
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])i?)?b?", size.strip().lower())
    if found is None:
        raise ValueError(f"invalid size {size!r}: write 500M, 2GiB or 1.5g")
    power = " kmgtp".index(found[2]) if found[2] else 0
    return round(float(found[1]) * float(1024**power))


def environment(choice: Union[Mapping[str, str], str, None], inherit: str, own: Mapping[str, str]) -> Dict[str, str]:
    """The environment of the tasks. A token must not stay in the store for as long as the job, and each task gets an id
    of its own."""
    if choice is not None and not isinstance(choice, str):
        return dict(choice)
    if choice not in (None, "all", "none"):
        raise ValueError(f"env is a mapping, 'all' or 'none', not {choice!r}")
    if choice == "none" or (choice is None and inherit == "none"):
        return {}
    left_out = {"WINDLASS_TASK", "WINDLASS_TOKEN"}
    if choice is None and inherit == "but_home":
        left_out.add("HOME")
    # A variable that is not valid UTF-8 cannot be sent.
    return {name: value for name, value in own.items() if name not in left_out and _is_text(name + value)}


def _is_text(value: str) -> bool:
    return not any(0xDC80 <= ord(char) <= 0xDCFF for char in value)


def fresh_key() -> str:
    """A key with which a submission whose answer was lost can be made again."""
    return f"python-{secrets.token_hex(16)}"


def user_name() -> str:
    """The user's name on this machine."""
    said = os.environ.get("USER") or os.environ.get("LOGNAME")
    if said:
        return said
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
