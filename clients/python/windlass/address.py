"""Addresses of servers, alone and in lists. They are read as the program reads them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import List, Optional, Tuple
from urllib.parse import urlsplit

from .errors import ConfigError

ADDRESSES_MAX = 32
"""Most addresses in a list. A farm has a handful of servers; more is a mistake."""


@dataclass(frozen=True)
class Address:
    """A server: the path of a unix socket, or the base of a URL without a slash at its end."""

    path: Optional[str] = None
    base: Optional[str] = None

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path is not None else str(self.base)

    @property
    def is_https(self) -> bool:
        return self.base is not None and self.base.startswith("https://")

    @property
    def is_local(self) -> bool:
        """True if the address is on this machine; behind it may be a tunnel."""
        return self.base is None or is_loopback(self.base.split("://", 1)[-1].split("/", 1)[0])

    @property
    def port(self) -> Optional[int]:
        """The port of a TCP address; None of a unix socket, and of an address without one."""
        if self.base is None:
            return None
        return _port_of(self.base.rpartition(":")[2])

    def host_port_path(self) -> Tuple[str, int, str]:
        """Host, port and the path before that of each request. The host of a unix socket is a name that stands for
        it."""
        if self.base is None:
            return "localhost", 80, ""
        parts = urlsplit(str(self.base))
        try:
            port = parts.port or (443 if self.is_https else 80)
        except ValueError as error:
            raise ConfigError(f"the address '{self}' has an invalid port") from error
        if not parts.hostname:
            raise ConfigError(f"the address '{self}' names no host", "write HOST:PORT")
        return parts.hostname, port, parts.path.rstrip("/")


def parse_address(text: str) -> Address:
    """Reads `unix:PATH`, a path with a slash, `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`.

    The last is http on this machine and https elsewhere: a token crosses a network in plain text only if the user
    wrote http.
    """
    if text.startswith("unix:"):
        return Address(path=text[len("unix:") :])
    if text.startswith("/"):
        return Address(path=text)
    if "://" in text:
        return Address(base=text.rstrip("/"))
    return Address(base=("http://" if is_loopback(text) else "https://") + text)


def parse_addresses(text: str) -> List[Address]:
    """Reads addresses separated by commas. A comma belongs to the path of a unix socket unless an address with its
    port, its scheme or a slash follows."""
    parts: List[str] = []
    for part in text.split(","):
        if parts and _is_path(parts[-1]) and not _begins_an_address(part.strip()):
            parts[-1] += f",{part}"
        else:
            parts.append(part.lstrip())
    addresses: List[Address] = []
    for part in parts:
        if part.strip():
            address = parse_address(part.strip())
            if address not in addresses:
                addresses.append(address)
    if not addresses:
        raise ConfigError(f"'{text}' names no server", "write HOST:PORT, or several separated by commas")
    if len(addresses) > ADDRESSES_MAX:
        raise ConfigError(f"{len(addresses)} addresses are too many: at most {ADDRESSES_MAX}")
    return addresses


def is_loopback(text: str) -> bool:
    """True if `HOST:PORT` is on this machine."""
    host = text[1:].split("]", 1)[0] if text.startswith("[") else text.split(":", 1)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_path(part: str) -> bool:
    return part.startswith(("/", "unix:"))


def _begins_an_address(part: str) -> bool:
    """True if the text behind a comma begins another address, even where a path could go on."""
    if not part or _is_path(part) or "://" in part:
        return True
    head, _, port = part.rpartition(":")
    return bool(head) and _port_of(port) is not None and "/" not in part


def _port_of(text: str) -> Optional[int]:
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    return None
