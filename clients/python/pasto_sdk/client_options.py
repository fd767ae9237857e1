"""Options of a client, checked when it is made: the only place where a client raises."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pasto_sdk.errors import OptionError
from pasto_sdk.policy_file import policy_path, user_folder


def check_address(url: str) -> str:
    """Return the service's address without a slash at its end.

    >>> check_address("https://pasto.example/")
    'https://pasto.example'
    """
    parts = urlsplit(url)
    odd = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.netloc or odd:
        raise OptionError(f"url must be an address such as http://127.0.0.1:8300, got {url!r}")
    return url.rstrip("/")


def check_study_name(study: str) -> str:
    """Return the study's name."""
    if not isinstance(study, str) or not study:
        raise OptionError(f"study must be the name of a study, got {study!r}")
    return study


def request_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    headers = {"User-Agent": "pasto-sdk", "Accept": "application/json"}
    if api_key is not None:
        # The message does not repeat the value, because it may be most of a key.
        is_text = isinstance(api_key, str) and api_key.isascii()
        if not is_text or not api_key.strip().isprintable() or not api_key.strip():
            raise OptionError("api_key must be a key as `pasto key create` prints it; got something else")
        headers["Authorization"] = f"Bearer {api_key.strip()}"
    return headers


def cache_file(cache: str | os.PathLike[str] | bool | None, url: str, study: str) -> Path | None:
    """Return the file for the last good policy; None for no file."""
    folder = user_folder() if cache is True else cache
    return None if folder is None or isinstance(folder, bool) else policy_path(folder, url, study)


def check_seconds(name: str, value: float) -> float:
    """Return a number of seconds above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise OptionError(f"{name} must be a number of seconds above zero, got {value!r}")
    return float(value)


def check_amount(name: str, value: int) -> int:
    """Return a whole number above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name} must be a whole number above zero, got {value!r}")
    return value


RENAMED_OPTIONS = {
    "refresh": "poll_interval",
    "flush": "flush_interval",
    "buffer": "max_buffered_events",
    "remember": "decision_cache_size",
    "key": "api_key",
}


def check_unknown(options: Mapping[str, object]) -> None:
    """Raise OptionError for options that do not exist, with the new word of one that was renamed.

    >>> check_unknown({"refresh": 20})
    Traceback (most recent call last):
    pasto_sdk.errors.OptionError: there is no option 'refresh'; it is now called poll_interval
    """
    for name in options:
        hint = f"; it is now called {RENAMED_OPTIONS[name]}" if name in RENAMED_OPTIONS else ""
        raise OptionError(f"there is no option {name!r}{hint}")
