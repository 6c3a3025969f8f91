"""Decides who may use the dashboard: a token in the address or a password admits; other origins are refused."""

import hmac
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from fedtailor.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "X-FedTailor-Token"  # the header in which a page sends its token
SHORTEST = 12  # characters of a password


@dataclass(frozen=True)
class Access:
    """Decides about a request from its headers. With a password, Basic authentication replaces the token."""

    host: str = "127.0.0.1"
    password: str | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    page_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # only a page that we served knows it

    def __post_init__(self) -> None:
        if self.host not in LOOPBACK and not self.password:
            raise UserError(
                f"--host {self.host} lets other machines read your runs: put a password into the environment variable "
                "FEDTAILOR_PASSWORD, or leave --host out and use an SSH tunnel"
            )
        if self.password and len(self.password) < SHORTEST:
            raise UserError(f"FEDTAILOR_PASSWORD is too short: use at least {SHORTEST} characters")

    def foreign(self, headers: Mapping[str, str]) -> bool:
        """Whether a request was made by another page, or names a host that is not this one."""
        host = headers.get("Host", "")
        if self.host in LOOPBACK and _name(host) not in LOOPBACK:
            return True  # a foreign name that leads to this machine
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return True
        return headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

    def admits(self, headers: Mapping[str, str], port: int) -> bool:
        """Whether a request brings the token as a cookie or, if there is one, the password."""
        if self.password:
            return _same(_basic_password(headers.get("Authorization", "")), self.password)
        return self.is_token(_cookie(headers.get("Cookie", ""), self.cookie_name(port)))

    def commands(self, headers: Mapping[str, str]) -> bool:
        """Whether a request that changes something comes from a page of this server: it proves origin and token."""
        ours = headers.get("Origin") == f"http://{headers.get('Host', '')}" and not self.foreign(headers)
        return ours and _same(headers.get(TOKEN, ""), self.page_token)

    def is_token(self, given: str) -> bool:
        return not self.password and _same(given, self.token)

    @staticmethod
    def cookie_name(port: int) -> str:
        """A name for each port: browsers share the cookies of all ports."""
        return f"fedtailor-{port}"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _basic_password(header: str) -> str:
    kind, _, value = header.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
