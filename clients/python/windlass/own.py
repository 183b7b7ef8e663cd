"""The user's own server: where its socket and its token are, and how it is started.

The program has the rules; the paths here are the same ones. The program itself starts the server, so that the way it
is started is written once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

from .address import Address, parse_address
from .errors import ConfigError, Unreachable

SOCKET_BYTES_MAX = 107
"""Most bytes of a unix socket's path."""
START_S = 30.0
"""How long the program may take to start the user's server. It gives up by itself after 20 s."""


@dataclass(frozen=True)
class Paths:
    """The directories of the user's own server."""

    state: Path
    socket: Path

    def check(self) -> None:
        """Refuses a directory of the socket that another user owns or may write to: that user could pretend to be the
        server. A missing directory is accepted."""
        runtime = self.socket.parent
        try:
            found = os.lstat(runtime)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"cannot access {runtime}: {error.strerror}") from error
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not is_own or found.st_mode & 0o022:
            raise ConfigError(
                f"{runtime} is not a directory that only you may write to",
                "set XDG_RUNTIME_DIR or WINDLASS_RUNTIME to one that is",
            )


def paths_for_user(env: Mapping[str, str]) -> Paths:
    """By the XDG conventions; `WINDLASS_STATE` and `WINDLASS_RUNTIME` override them."""

    def var(name: str) -> Optional[Path]:
        value = env.get(name)
        return Path(os.path.abspath(value)) if value else None

    state, home = var("WINDLASS_STATE"), var("HOME")
    runtime = var("WINDLASS_RUNTIME")
    if runtime is None and state is not None:
        # A state directory of its own has a server of its own.
        runtime = state / "run"
    xdg_state, xdg_runtime = var("XDG_STATE_HOME"), var("XDG_RUNTIME_DIR")
    if state is None and xdg_state is not None:
        state = xdg_state / "windlass"
    if state is None:
        if home is None:
            home = Path(os.path.expanduser("~"))
        if not home.is_absolute():
            raise ConfigError("cannot tell where the server keeps its state", "set HOME or WINDLASS_STATE")
        state = home / ".local/state/windlass"
    if runtime is None:
        runtime = xdg_runtime / "windlass" if xdg_runtime else Path(f"/tmp/windlass-{os.getuid()}")
    return Paths(state=state, socket=_socket_in(runtime))


def _socket_in(runtime: Path) -> Path:
    socket = runtime / "server.sock"
    if len(os.fsencode(socket)) <= SOCKET_BYTES_MAX:
        return socket
    # The path is too long for a socket, so the program derives a short one from it.
    short = hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]
    return Path(f"/tmp/windlass-{os.getuid()}-{short}/server.sock")


def local_token(address: Address, env: Mapping[str, str]) -> Optional[str]:
    """The token of the user's own server, if that server is at the address: one behind a tunnel does not get it."""
    try:
        text = (paths_for_user(env).state / "local.token").read_text()
    except (OSError, ConfigError, UnicodeDecodeError):
        return None
    at, newline, token = text.rstrip().partition("\n")
    own, asked = _port_here(parse_address(at)), _port_here(address)
    return token if newline and own is not None and own == asked else None


def _port_here(address: Address) -> Optional[int]:
    return address.port if address.base is not None and address.is_local else None


def find_program(env: Mapping[str, str]) -> Optional[str]:
    """The program: what `WINDLASS` names, else the first `windlass` in `PATH`."""
    named = env.get("WINDLASS")
    return named if named else shutil.which("windlass", path=env.get("PATH"))


def start_server(env: Mapping[str, str]) -> None:
    """Lets the program start the user's server, and returns when it answers."""
    program = find_program(env)
    if program is None:
        raise Unreachable(
            "no server of yours runs, and the program 'windlass' is not in PATH",
            "install it, name it in WINDLASS, or set WINDLASS_SERVER to the address of a server",
        )
    # An empty address is the user's own server, too. The cheapest request that starts it is a short list.
    command = [program, "job", "list", "--limit", "1", "-o", "name"]
    try:
        done = subprocess.run(
            command,
            env={**env, "WINDLASS_SERVER": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"your server did not start within {START_S:.0f} s") from error
    except OSError as error:
        raise Unreachable(f"cannot run {program}: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        why = said[len("error: ") :] if said.startswith("error: ") else said
        raise Unreachable(f"your server did not start: {why or f'exit code {done.returncode}'}")
