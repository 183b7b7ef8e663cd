"""A client of Windlass, a job scheduler for one machine or a farm of machines."""

from .aio import AsyncClient
from .client import Client
from .errors import (
    BadRequest,
    CannotBePlaced,
    ConfigError,
    Conflict,
    ConnectionLost,
    Forbidden,
    Garbled,
    JobFailed,
    NoAnswer,
    NoServerAnswers,
    NotFound,
    Refused,
    RemoteError,
    ServerDefect,
    Silent,
    TaskFailed,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unreachable,
    Unsure,
    Untrusted,
    WaitTimeout,
    WindlassError,
    WorkerAway,
)
from .executor import WindlassExecutor
from .models import (
    Attempt,
    Counts,
    Event,
    Job,
    JobEvent,
    Lagged,
    Submitted,
    Task,
    TaskEvent,
    TaskResult,
    TasksEvent,
    Version,
    Why,
    WorkerEvent,
)
from .spec import Depends, JobSpec, Range, Resources, StepSpec, TaskOptions

__version__ = "0.1.0"
