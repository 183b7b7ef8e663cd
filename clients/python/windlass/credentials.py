"""How the client verifies a server and authenticates itself. None of it is used on a unix socket, where file
permissions decide."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Mapping, Optional

from .address import Address
from .errors import ConfigError
from .own import local_token

logger = logging.getLogger("windlass")

CONTEXTS_MAX = 32
"""Contexts of TLS that are kept for later connections."""


@dataclass(frozen=True)
class Credentials:
    """The files and the token that a client was given."""

    ca: Optional[str] = None
    """File of the certificates to trust; None means those of the system."""
    token: Optional[str] = field(default=None, repr=False)
    """The token, without `Bearer`."""
    cert: Optional[str] = None
    """File of the client certificate, for servers that ask for one."""
    key: Optional[str] = None
    """File of the client certificate's key."""

    @lru_cache(maxsize=CONTEXTS_MAX)
    def ssl_context(self) -> ssl.SSLContext:
        """The context for connections over TLS. Reading the system's certificates takes some milliseconds, so it is
        done once."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot read the certificates in {self.ca}: {_why(error)}", "see WINDLASS_CA") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None and self.key is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                message = f"cannot use the client certificate {self.cert}: {_why(error)}"
                raise ConfigError(message, "see WINDLASS_CERT and WINDLASS_KEY") from error
        return context


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def read_credentials(
    env: Mapping[str, str],
    ca: Optional[str] = None,
    token: Optional[str] = None,
    token_file: Optional[str] = None,
    cert: Optional[str] = None,
    key: Optional[str] = None,
) -> Credentials:
    """Reads what the arguments name, else what the environment names. A token takes precedence over one in a file."""
    ca = ca or env.get("WINDLASS_CA") or None
    cert = cert or env.get("WINDLASS_CERT") or None
    key = key or env.get("WINDLASS_KEY") or None
    if (cert is None) != (key is None):
        raise ConfigError("a client certificate needs its key", "give both WINDLASS_CERT and WINDLASS_KEY, or neither")
    if token is None and token_file is None:
        token = env.get("WINDLASS_TOKEN", "").strip() or None
        token_file = env.get("WINDLASS_TOKEN_FILE") or None
    if token is None and token_file is not None:
        token = _token_in(token_file)
    if token is not None and not all(33 <= ord(char) <= 126 for char in token):
        raise ConfigError("the token has characters that no token has", "copy the first line of its file alone")
    return Credentials(ca=ca, token=token, cert=cert, key=key)


def _token_in(path: str) -> str:
    """The first line of the file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            line = file.readline()
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "see WINDLASS_TOKEN_FILE") from error
    if mode & 0o077:
        logger.warning("others can read the token in %s; 'chmod 600' it", path)
    return line.strip()


def token_for(address: Address, given: Credentials, env: Mapping[str, str]) -> Optional[str]:
    """What the server at the address is shown: the given token, else that of the user's own server if it is there."""
    if address.base is None:
        return None
    return given.token or local_token(address, env)
