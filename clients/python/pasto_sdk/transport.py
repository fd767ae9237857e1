"""How a request reaches the service: an argument of the client, so that tests and proxies can bring their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

LONGEST_MESSAGE = 300
"""Characters of the service's own words that are passed on."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the service."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 10.0
    """Seconds in which the whole answer has to be here, however slowly it comes."""


@dataclass(frozen=True, slots=True)
class Response:
    """One whole answer.

    >>> Response(200, {"ETag": '"abc"'}).header("etag")
    '"abc"'
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str:
        """A header's value by its name in any case; empty where it is missing."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")

    @property
    def error(self) -> str:
        """The code of an error that is the service's own; empty for one of something on the way.

        >>> Response(409, {}, b'{"error": {"code": "wrong_state", "message": ""}}').error, Response(502).error
        ('wrong_state', '')
        """
        return self._told("code")

    @property
    def message(self) -> str:
        """What the service says about an error of its own, in one line; empty for an error of something on the way.

        >>> Response(404, {}, b'{"error": {"code": "unknown_study", "message": "there is no study fed"}}').message
        'there is no study fed'
        """
        return " ".join(self._told("message").split())[:LONGEST_MESSAGE]

    def _told(self, part: str) -> str:
        try:
            found = json.loads(self.body)["error"][part]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""
        return found if isinstance(found, str) else ""


Transport = Callable[[Request], Response]
"""Sends one request and returns the answer, whatever its status; raises where there is none. Called by two threads."""
