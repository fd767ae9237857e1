"""Transport of requests to the service: an argument of the client, so that tests and proxies can replace it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_MESSAGE_CHARACTERS = 300
"""Longest message of the service that is passed on."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the service."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 10.0
    """Seconds for the whole response, also if it arrives slowly."""


@dataclass(frozen=True, slots=True)
class Response:
    """One whole response.

    >>> Response(200, {"ETag": '"abc"'}).header("etag")
    '"abc"'
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return a header's value by its name in any case; empty if it is missing."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")

    @property
    def error(self) -> str:
        """Code of an error of the service; empty for an error of a proxy.

        >>> Response(409, {}, b'{"error": {"code": "wrong_state", "message": ""}}').error, Response(502).error
        ('wrong_state', '')
        """
        return self._read_error("code")

    @property
    def message(self) -> str:
        """Message of an error of the service, in one line; empty for an error of a proxy.

        >>> Response(404, {}, b'{"error": {"code": "unknown_study", "message": "there is no study fed"}}').message
        'there is no study fed'
        """
        return " ".join(self._read_error("message").split())[:MAX_MESSAGE_CHARACTERS]

    def _read_error(self, part: str) -> str:
        try:
            found = json.loads(self.body)["error"][part]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        return found if isinstance(found, str) else ""


Transport = Callable[[Request], Response]
"""Function that sends a request and returns the response of any status, or raises. Two threads call it."""
