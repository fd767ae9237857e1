"""Scopes of API keys and of people: what their holder may do, in every study or in one.

`read` is for every study, `read:feed` for the study feed only. `admin` includes all other scopes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

SCOPES = ("admin", "evaluate", "ingest", "read")
"""Scopes for every study; `admin` may do everything."""

SCOPE_PATTERN = rf"(?:{'|'.join(SCOPES)})(?::[a-z0-9][a-z0-9_-]{{0,62}})?"
"""A scope, with the name of a study if it is for that study only."""

_SCOPE = re.compile(SCOPE_PATTERN)


def is_scope(text: str) -> bool:
    """Return whether a text is a scope.

    >>> is_scope("admin:feed"), is_scope("read"), is_scope("read:"), is_scope("write")
    (True, True, False, False)
    """
    return _SCOPE.fullmatch(text) is not None


def permits(held: Collection[str], needed: Iterable[str], study: str = "") -> bool:
    """Return whether one of the held scopes includes one of the needed ones, in a study or, without one, everywhere.

    A scope for a study includes earlier studies of that name, which are archived as `feed@1`.

    >>> permits(["admin:feed"], ["read"], "feed"), permits(["admin:feed"], ["read"]), permits(["admin"], ["read"])
    (True, False, True)
    """
    if "admin" in held or any(scope in held for scope in needed):
        return True
    name = study.partition("@")[0]
    return bool(name) and (f"admin:{name}" in held or any(f"{scope}:{name}" in held for scope in needed))


def permits_somewhere(held: Iterable[str], needed: Collection[str]) -> bool:
    """Return whether one of the held scopes includes one of the needed ones, in any study.

    >>> permits_somewhere(["admin:feed"], ["read"]), permits_somewhere(["ingest:feed"], ["read"])
    (True, False)
    """
    return any(scope == "admin" or scope in needed for scope in (text.partition(":")[0] for text in held))


def reaches(held: Iterable[str], study: str) -> bool:
    """Return whether any of the held scopes is for a study; without one, its existence is not revealed.

    >>> reaches(["ingest:feed"], "feed"), reaches(["ingest:feed"], "shop"), reaches(["ingest"], "shop")
    (True, False, True)
    """
    name = study.partition("@")[0]
    return any(text.partition(":")[2] in ("", name) for text in held)
