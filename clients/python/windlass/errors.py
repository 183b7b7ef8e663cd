"""Errors of this client. Each says what failed, why, and what to do."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple, Type

if TYPE_CHECKING:
    from .models import Job, Task


class Verdict(enum.Enum):
    """Whether a request that failed may have been done."""

    NOT_SENT = "not_sent"
    """The server never got it: another one may."""
    UNKNOWN = "unknown"
    """The server may have done it: another one may get it if that does no harm."""
    ANSWERED = "answered"
    """The server answered, and all others would answer the same."""


class WindlassError(Exception):
    """The base of all errors of this package."""

    verdict: Verdict = Verdict.ANSWERED
    default_hint: Optional[str] = None

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        """What failed and why."""
        self.hint = hint if hint is not None else self.default_hint
        """What to do next; None if that is not known."""
        self.doing: Optional[str] = None
        """The purpose of the request, such as "submit a job"."""

    def __str__(self) -> str:
        text = self.message if self.doing is None else f"cannot {self.doing}: {self.message}"
        if self.hint is None:
            return text
        return f"{text}\n{self.hint}" if "\n" in text else f"{text}; {self.hint}"

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later, without a person's help."""
        return False


class ConfigError(WindlassError):
    """An address, a file or a variable cannot be used. Nothing was sent."""

    verdict = Verdict.NOT_SENT


class NoAnswer(WindlassError):
    """No usable answer came from the server at `address`."""

    default_hint = "'windlass server status' shows whether a server runs, 'windlass server start' starts one"

    def __init__(self, message: str, hint: Optional[str] = None, address: Optional[str] = None) -> None:
        super().__init__(message, hint)
        self.address = address

    @property
    def is_temporary(self) -> bool:
        return True


class Unreachable(NoAnswer):
    """No connection was made. The request was not sent."""

    verdict = Verdict.NOT_SENT


class Untrusted(Unreachable):
    """The connection failed by its encryption: a person has to change something first."""

    default_hint = "check WINDLASS_CA, and that the certificate names the host of the address"

    @property
    def is_temporary(self) -> bool:
        return False


class ConnectionLost(NoAnswer):
    """The connection broke before the whole answer came. Whether the request was done is not known."""

    verdict = Verdict.UNKNOWN


class Silent(ConnectionLost):
    """The server accepted the request and said nothing for too long."""


class LookedAway(Silent):
    """The client stopped waiting by itself, to look whether the server still lives. No other server is asked."""


class Garbled(NoAnswer):
    """The answer cannot be read: perhaps another program listens there."""

    verdict = Verdict.UNKNOWN
    default_hint = "check that a Windlass server of this version listens there"


class NoServerAnswers(NoAnswer):
    """None of several servers has an answer. `failures` has each address and what was met there."""

    verdict = Verdict.UNKNOWN
    default_hint = "'windlass --server ADDRESS server status' asks one of them alone"

    def __init__(
        self,
        message: str,
        hint: Optional[str] = None,
        failures: Tuple[Tuple[str, WindlassError], ...] = (),
    ) -> None:
        super().__init__(message, hint)
        self.failures = failures

    @classmethod
    def of(cls, failures: List[Tuple[str, WindlassError]]) -> NoServerAnswers:
        each = "; ".join(f"{address}: {error.message}" for address, error in failures)
        return cls(f"none of the {len(failures)} servers answers: {each}", failures=tuple(failures))

    @property
    def is_temporary(self) -> bool:
        return not all(isinstance(error, Untrusted) for _, error in self.failures)


class Unsure(NoAnswer):
    """A request that is made once may have been done, and its answer was lost."""

    verdict = Verdict.UNKNOWN
    default_hint = "see whether it was done before you ask again"

    @property
    def is_temporary(self) -> bool:
        return False


class Refused(WindlassError):
    """The server answered with an error. `code` is its word, `status` that of HTTP."""

    code: str = "internal"

    def __init__(self, message: str, hint: Optional[str] = None, status: Optional[int] = None) -> None:
        super().__init__(message, hint)
        self.status = status


class BadRequest(Refused):
    """400: the request is malformed or breaks a rule."""

    code = "bad_request"


class Unauthorized(Refused):
    """401: the token is missing or not valid."""

    code = "unauthorized"


class Forbidden(Refused):
    """403: the caller may not do it."""

    code = "forbidden"


class NotFound(Refused):
    """404: there is no such job, task, worker, queue or path."""

    code = "not_found"


class MethodNotAllowed(Refused):
    """405: the path has other methods."""

    code = "method_not_allowed"


class Conflict(Refused):
    """409: the state does not allow it, such as a cancellation of a job that has ended."""

    code = "conflict"


class TooLarge(Refused):
    """413: the body is over the limit."""

    code = "too_large"


class CannotBePlaced(Refused):
    """422: no worker of the farm could ever run it."""

    code = "cannot_be_placed"


class Unavailable(Refused):
    """503: the server cannot do it now. Nothing was done."""

    code = "unavailable"
    verdict = Verdict.UNKNOWN

    @property
    def is_temporary(self) -> bool:
        return True


class WorkerAway(Refused):
    """503: the worker that has to answer is not connected. No other server knows more."""

    code = "worker_away"

    @property
    def is_temporary(self) -> bool:
        return True


class ServerDefect(Refused):
    """500: a defect of the server."""

    code = "internal"


REFUSALS: Dict[str, Type[Refused]] = {
    cls.code: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        Conflict,
        TooLarge,
        CannotBePlaced,
        Unavailable,
        WorkerAway,
        ServerDefect,
    )
}


class WaitTimeout(WindlassError, TimeoutError):
    """The caller's own time ran out. The job goes on."""

    default_hint = "the job goes on: wait again, or cancel it"


class JobFailed(WindlassError):
    """A job ended, and not every task succeeded. `job` is the job, `task` its first failed task if there is one."""

    def __init__(
        self,
        message: str,
        hint: Optional[str] = None,
        job: Optional[Job] = None,
        task: Optional[Task] = None,
        stderr: str = "",
    ) -> None:
        super().__init__(message, hint)
        self.job = job
        self.task = task
        self.stderr = stderr
        """The end of what the task wrote to standard error; empty if that is not known."""


class TaskFailed(WindlassError):
    """A task of an executor ended without a result. `task` says how; `stderr` is the end of what it wrote there."""

    def __init__(
        self, message: str, hint: Optional[str] = None, task: Optional[Task] = None, stderr: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.task = task
        self.stderr = stderr


class RemoteError(WindlassError):
    """A call of an executor raised an exception that cannot be sent. `traceback` is its text."""

    def __init__(self, message: str, hint: Optional[str] = None, traceback: str = "") -> None:
        super().__init__(message, hint)
        self.traceback = traceback
