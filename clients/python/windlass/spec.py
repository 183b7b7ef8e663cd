"""Submissions: the JSON of a job, and how it is made from a command."""

from __future__ import annotations

import getpass
import os
import re
import secrets
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union, cast

if TYPE_CHECKING:
    from .files import Inputs

ARRAY_MAX = 10_000_000
"""Most numbers of an array: the most tasks that a job may have."""


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


class Param(TypedDict, total=False):
    """The values of a step's tasks: one of these."""

    range: Range
    values: List[str]
    space: Dict[str, Any]


class Chunks(TypedDict, total=False):
    """How many tasks one process runs; without a number it is learned."""

    tasks: int
    target_ms: int
    block: int
    param: str
    range: str
    """`contiguous` or `noncontiguous`: the numbers that one process may get."""


class StepFiles(TypedDict, total=False):
    """Files that each task finds in a directory of its own, and what is kept of it. Digests are `HASH/BYTES`."""

    root: str
    """The root `Directory` of the tree of inputs, which was uploaded before."""
    outputs_of: List[str]
    outputs: List[str]
    """Globs of what is kept when a task ends."""
    stdin: str


class OnEnd(TypedDict, total=False):
    """An address that is told when the job has ended: a URL, or `mailto:` and a mail address."""

    url: str
    only_failures: bool


# `with` is a word of Python, so a class cannot have such a field.
_With = TypedDict("_With", {"with": str}, total=False)


class StepSpec(_With, total=False):
    """A step: tasks with one command and one set of requirements."""

    name: str
    command: List[str]
    env: Dict[str, str]
    cwd: str
    param: Param
    resources: Resources
    tags: List[str]
    workers: List[str]
    time_limit_ms: int
    max_running: int
    nodes: int
    chunks: Chunks
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
    jobserver: str
    files: StepFiles
    umask: str


class JobSpec(TypedDict, total=False):
    """A job, as the HTTP interface takes it. `steps` is all that it needs."""

    name: str
    queue: str
    user: str
    priority: int
    key: str
    parent: str
    after: List[int]
    after_any: List[int]
    after_not_ok: List[int]
    after_tasks: int
    fail_fast: str
    fail_limit: str
    max_running: int
    placeable_only: bool
    limit_unset_ok: bool
    on_end: List[OnEnd]
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
    after_any: Iterable[Union[int, str]]
    """Jobs that must end first, whatever way."""
    after_not_ok: Iterable[Union[int, str]]
    """Jobs that must fail or be cancelled first."""
    after_each: Union[int, str]
    """The job after whose tasks those of this one come, number by number. Both have as many tasks."""
    cpus: Union[float, str]
    """A number, "2-16" for as many as are idle, or "auto", which starts with 1 and learns from earlier tasks."""
    cpus_max: float
    jobserver: Union[bool, str]
    """True, or "fifo" or "pipes": each task finds a GNU make jobserver, and books 0.1 cpus if `cpus` is not given. False:
    none, whatever the queue's setting says."""
    memory: Union[int, str]
    """Bytes, or a size such as "2G"; also the limit of each task."""
    gpus: int
    custom: Mapping[str, int]
    cwd: str
    """The working directory on the worker; by default the current one. With `inputs` or `outputs` it is inside the
    directory of the task's own."""
    inputs: Inputs
    """Files and directories that each task finds in a directory of its own: paths, or a mapping of paths to the names
    that they have there. They are uploaded first."""
    outputs: Iterable[str]
    """Globs of what is kept of that directory when a task ends, such as "*.o"."""
    env: Union[Mapping[str, str], str]
    """The whole environment of the tasks, or "all" or "none" of yours. The default is that of `windlass submit`."""
    umask: str
    """In octal digits, such as "027"; by default that of this process."""
    tags: Iterable[str]
    workers: Iterable[str]
    limits: Iterable[str]
    limit_unset_ok: bool
    """Accept limits that are not set."""
    caches: Mapping[str, Union[int, str, None]]
    """Keys of caches that the tasks read, each with its size; None is unknown."""
    network_bound: bool
    prefer_local: bool
    fetches: bool
    kind: str
    max_wait_s: float
    """How long a ready task should wait at most."""
    time_limit_s: float
    retries: int
    max_running: int
    nodes: int
    chunks: Union[bool, int]
    """True lets one process run several tasks, as many as are worth it; a number is how many."""
    fail_fast: Union[str, int]
    """`finish` or `kill`, a number of failed tasks such as 3 or "5%", or both: "kill:5%"."""
    on_end: Iterable[str]
    """Addresses that are told when the job has ended."""
    on_failure: Iterable[str]
    """Addresses that are told if it fails."""
    placeable_only: bool
    parent: str


_OF_JOB = ("name", "queue", "priority", "max_running", "placeable_only", "parent", "limit_unset_ok")
_JOBS_OF_JOB = ("after", "after_any", "after_not_ok")
_OF_STEP = ("retries", "nodes", "cpus_max", "network_bound", "prefer_local", "fetches", "kind")
_LISTS_OF_STEP = ("tags", "workers", "limits")


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
    given: Dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    unknown = set(options) - set(TaskOptions.__annotations__)
    if unknown:
        raise TypeError(f"there is no option {', '.join(map(repr, sorted(unknown)))}")
    job: Dict[str, Any] = {name: given[name] for name in _OF_JOB if name in given}
    job.update((name, [int(one) for one in given[name]]) for name in _JOBS_OF_JOB if given.get(name))
    if "after_each" in given:
        job["after_tasks"] = int(given["after_each"])
    if "fail_fast" in given:
        job.update(_fail_fast(str(given["fail_fast"])))
    told = [{"url": url} for url in given.get("on_end", ())]
    told += [{"url": url, "only_failures": True} for url in given.get("on_failure", ())]
    if told:
        job["on_end"] = told
    job["key"] = given.get("key") or fresh_key()
    words = _with_value([os.fspath(word) for word in command], values is not None)
    job["steps"] = [_step(words, _param(values, array), given, inherit)]
    return cast(JobSpec, job)


def _step(command: Sequence[str], param: Optional[Param], given: Mapping[str, Any], inherit: str) -> Dict[str, Any]:
    """The step of the command."""
    jobserver = _jobserver(given.get("jobserver"))
    step: Dict[str, Any] = {
        "command": command,
        "env": environment(given.get("env"), inherit, os.environ),
        **_place(given),
        **_cpus(given.get("cpus", 1 if jobserver in (None, "none") else 0.1)),
    }
    if jobserver is not None:
        step["jobserver"] = jobserver
    umask = given.get("umask") or own_umask()
    if umask is not None:
        step["umask"] = umask
    if param is not None:
        step["param"] = param
    step["resources"].update(_resources(given))
    step.update((name, given[name]) for name in _OF_STEP if name in given)
    step.update((name, list(given[name])) for name in _LISTS_OF_STEP if given.get(name))
    for name, field in (("time_limit_s", "time_limit_ms"), ("max_wait_s", "deadline_ms")):
        if name in given:
            step[field] = max(1, round(given[name] * 1000))
    if given.get("caches"):
        sizes = given["caches"].items()
        step["caches"] = {key: None if size is None else parse_size(size) for key, size in sizes}
    chunks = given.get("chunks")
    if chunks:
        step["chunks"] = {} if chunks is True else {"tasks": int(chunks)}
    return step


def _place(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Where the tasks run: in a directory of the worker, or in one of their own if they have files."""
    if given.get("inputs") is None and not given.get("outputs"):
        return {"cwd": os.path.abspath(given.get("cwd") or os.getcwd())}
    cwd = given.get("cwd") or "."
    if os.path.isabs(cwd):
        raise ValueError(f"cwd is {cwd!r}: a task with files runs in a directory of its own, and cwd is inside it")
    outputs = given.get("outputs") or ()
    if isinstance(outputs, (str, bytes)):
        raise TypeError("outputs is a list, not one text")
    files: StepFiles = {"outputs": list(outputs)} if outputs else {}
    return {"cwd": cwd, "files": files}


def own_umask() -> Optional[str]:
    """The umask of this process in octal digits; None where the kernel does not tell it."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
            lines = [line for line in status if line.startswith("Umask:")]
    except OSError:
        return None
    return lines[0].split()[1] if lines else None


def _fail_fast(text: str) -> Dict[str, str]:
    how, _, limit = text.rpartition(":")
    if text in ("finish", "kill"):
        return {"fail_fast": text}
    if how not in ("", "finish", "kill") or not re.fullmatch("[0-9]+%?", limit):
        raise ValueError(f"fail_fast is 'finish', 'kill', a number such as 3, '5%' or 'kill:3', not {text!r}")
    return {"fail_fast": how or "finish", "fail_limit": limit}


def _jobserver(said: Union[bool, str, None]) -> Optional[str]:
    if isinstance(said, bool):
        return "auto" if said else "none"
    return said


def _cpus(cpus: Union[float, str]) -> Dict[str, Any]:
    """The cpus of a task, as fields of its step."""
    if cpus == "auto":
        return {"resources": {"cpus": 1}, "cpus_auto": True}
    try:
        least, *most = [float(number) for number in str(cpus).split("-", 1)]
    except ValueError:
        raise ValueError(f"invalid cpus {cpus!r}: write a number, '2-16' or 'auto'") from None
    return {"resources": {"cpus": least}, **({"cpus_max": most[0]} if most else {})}


def _param(values: Optional[Iterable[object]], array: Union[range, str, None]) -> Optional[Param]:
    if values is not None and array is not None:
        raise TypeError("give values or array, not both")
    if array is not None:
        return _array(array)
    if values is None:
        return None
    if isinstance(values, (str, bytes)):
        raise TypeError("values is a list, not one text")
    return {"values": [value if isinstance(value, str) else str(value) for value in values]}


def _array(array: Union[range, str]) -> Param:
    """The numbers of an array: a range, or a list where they are of several ranges or have leading zeros."""
    parts = [(array, 0)] if isinstance(array, range) else [_range_of(part) for part in array.split(",")]
    if not all(numbers for numbers, _ in parts):
        raise ValueError(f"{array} is empty")
    numbers, digits = parts[0]
    if len(parts) == 1 and not digits:
        return {"range": {"start": numbers[0], "end": numbers[-1], "step": numbers.step}}
    if sum(len(numbers) for numbers, _ in parts) > ARRAY_MAX:
        raise ValueError(f"{array!r} has more than {ARRAY_MAX} numbers, the most tasks that a job may have")
    return {"values": [f"{number:0{digits + (number < 0)}}" for numbers, digits in parts for number in numbers]}


def _range_of(text: str) -> Tuple[range, int]:
    """The numbers, and how many digits they are filled up to with zeros; 0 is none."""
    found = re.fullmatch(r"(-?([0-9]+))(?:-(-?([0-9]+)))?(?::(-?[0-9]+))?", text)
    step = int(found[5] or 1) if found else 0
    if found is None or step == 0:
        raise ValueError(f"invalid range {text!r}: write '1-100', '1-100:5', '1,3,7-9' or range(1, 101)")
    start, end = int(found[1]), int(found[3] or found[1])
    digits = [found[2], found[4] or ""]
    is_padded = any(len(number) > 1 and number.startswith("0") for number in digits)
    return range(start, end + (1 if step > 0 else -1), step), max(map(len, digits)) if is_padded else 0


REPLACEMENTS = ("{}", "{.}", "{/}", "{//}", "{/.}")
"""Strings that stand for the task's value, as in GNU parallel."""


def _with_value(command: List[str], is_list: bool) -> List[str]:
    """The value of a list is appended if no argument has a place for it."""
    has_place = any(mark in word for word in command for mark in REPLACEMENTS)
    return command if has_place or not is_list else [*command, "{}"]


def _resources(given: Mapping[str, Any]) -> Resources:
    """What each task holds beside its cpus."""
    resources: Resources = {}
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
