"""What a client is made with, checked once at the door: the only place where it may raise."""

from __future__ import annotations

import math
import os
from pathlib import Path
from urllib.parse import urlsplit

from pasto_sdk.errors import OptionError
from pasto_sdk.policy_file import policy_path, user_folder


def check_address(url: str) -> str:
    """The service's address without a slash at its end.

    >>> check_address("https://pasto.example/")
    'https://pasto.example'
    """
    parts = urlsplit(url)
    odd = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.netloc or odd:
        raise OptionError(f"a service's address looks like http://127.0.0.1:8300, got {url!r}")
    return url.rstrip("/")


def check_study_name(study: str) -> str:
    """The study's name."""
    if not isinstance(study, str) or not study:
        raise OptionError(f"study= names the study to take part in, got {study!r}")
    return study


def request_headers(key: str | None) -> dict[str, str]:
    """What every request says of its sender."""
    said = {"User-Agent": "pasto-sdk", "Accept": "application/json"}
    if key is not None:
        # The message does not repeat what came: it may be most of a key.
        if not isinstance(key, str) or not key.isascii() or not key.strip().isprintable() or not key.strip():
            raise OptionError("key= is a key of the service, as it was printed when it was made; got something else")
        said["Authorization"] = f"Bearer {key.strip()}"
    return said


def cache_file(cache: str | os.PathLike[str] | bool | None, url: str, study: str) -> Path | None:
    """Where the last good policy is kept; None for nowhere."""
    folder = user_folder() if cache is True else cache
    return None if folder is None or isinstance(folder, bool) else policy_path(folder, url, study)


def check_seconds(name: str, value: float) -> float:
    """A length of time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise OptionError(f"{name}= is a number of seconds above zero, got {value!r}")
    return float(value)


def check_amount(name: str, value: int) -> int:
    """A number of things."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name}= is a whole number above zero, got {value!r}")
    return value
