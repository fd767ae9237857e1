"""The control plane of a service somewhere else, over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from pasto.errors import (
    ConflictError,
    InputError,
    LifecycleError,
    OptionError,
    PastoError,
    SourceError,
    StoreBusyError,
    StoreError,
    StudyExistsError,
    StudyFileError,
    TextError,
    UnknownStudyError,
)
from pasto.report.records import Report, WhatIfAnswer, read_report, read_what_if

PATIENCE = 60.0
"""Seconds to wait for an answer; a replay may take minutes."""
REPLAY_PATIENCE = 3600.0


class UnknownKeyError(OptionError):
    """The service knows no such key."""


ERRORS: dict[str, type[PastoError]] = {
    "bad_request": InputError,
    "invalid_text": TextError,
    "conflict": ConflictError,
    "source_failed": SourceError,
    "store_busy": StoreBusyError,
    "study_exists": StudyExistsError,
    "unknown_key": UnknownKeyError,
    "unknown_study": UnknownStudyError,
    "wrong_state": LifecycleError,
}
"""What the service's error codes mean here; any other is a BadInput below 500 and a StoreError from there."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could carry the key to a stranger."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse."""


class HttpStudyApi:
    """A running service by its address: the same questions, the same answers, the same errors.

    >>> HttpStudyApi("http://127.0.0.1:8300/").url
    'http://127.0.0.1:8300'
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise OptionError(f"a service's address looks like http://127.0.0.1:8300, got {url!r}")
        self.url = url.rstrip("/")
        self._key = key
        # An empty ProxyHandler keeps loopback traffic out of a proxy that the environment names.
        local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        proxy = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_Straight, *proxy)

    def create(self, document: Mapping[str, Any], *, who: str, reason: str = "") -> dict[str, Any]:
        """Take in a study file."""
        return self._ask("POST", "/v1/studies" + _reason(reason), dict(document), who=who)

    def edit(self, name: str, document: Mapping[str, Any], *, who: str, reason: str = "") -> dict[str, Any]:
        """Put another study file in the place of a draft's."""
        return self._ask("PUT", _path(name) + _reason(reason), dict(document), who=who)

    def delete(self, name: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete a draft."""
        return self._ask("DELETE", _path(name) + _reason(reason), who=who)

    def check(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Check a study file and the tables that it names; nothing is created."""
        return self._ask("POST", "/v1/check", dict(document))

    def studies(self) -> list[dict[str, Any]]:
        """Every study in a few words."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/studies")["studies"]
        return found

    def show(self, name: str) -> dict[str, Any]:
        """One study as it stands."""
        return self._ask("GET", _path(name))

    def change(self, name: str, action: str, *, who: str, reason: str = "", **options: Any) -> dict[str, Any]:
        """Start, pause, resume, confirm, deploy or archive a study."""
        return self._ask("PATCH", _path(name), {"action": action, "reason": reason, **options}, who=who)

    def close_round(self, name: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Close the open round now."""
        return self._ask("POST", _path(name, "rounds/close"), {"reason": reason}, who=who)

    def resolve_round(self, name: str, round: int, resolution: str, *, who: str, reason: str) -> dict[str, Any]:
        """Decide about a round that is held back for lack of events."""
        asked = {"round": round, "resolution": resolution, "reason": reason}
        return self._ask("POST", _path(name, "rounds/resolve"), asked, who=who)

    def rounds(self, name: str, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Closed rounds in order."""
        found: list[dict[str, Any]] = self._ask("GET", _path(name, f"rounds?after={after}&limit={limit}"))["rounds"]
        return found

    def audit(self, name: str, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Who did what, and why."""
        found: list[dict[str, Any]] = self._ask("GET", _path(name, f"audit?after={after}&limit={limit}"))["audit"]
        return found

    def report(self, name: str) -> Report:
        """Report on a study: its blend, its lifts and the quality of its data."""
        return read_report(self._ask("GET", _path(name, "report")))

    def what_if(
        self,
        name: str,
        *,
        maximize: Sequence[str] = (),
        minimize: Sequence[str] = (),
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        only: Sequence[str] = (),
    ) -> WhatIfAnswer:
        """Answer another question from what was learned."""
        parts = {"maximize": maximize, "minimize": minimize, "keep": keep, "drop": drop, "only": only}
        question = {part: list(words) for part, words in parts.items() if words}
        return read_what_if(self._ask("POST", _path(name, "what-if"), question))

    def replay(self, name: str) -> dict[str, Any]:
        """Compute every policy again from the log, and compare."""
        return self._ask("POST", _path(name, "replay"), {}, patience=REPLAY_PATIENCE)

    def archive_events(self, name: str, *, who: str, delete_older: float | None = None) -> dict[str, Any]:
        """Move learned rounds' events to the archive, and delete archived ones that are old."""
        asked = {} if delete_older is None else {"delete_older": delete_older}
        return self._ask("POST", _path(name, "events/archive"), asked, who=who, patience=REPLAY_PATIENCE)

    def forget(self, name: str, unit: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete all that is kept of a unit."""
        asked = {"unit": unit, "reason": reason}
        return self._ask("POST", _path(name, "units/erase"), asked, who=who, patience=REPLAY_PATIENCE)

    def create_key(
        self, name: str, scopes: Sequence[str], *, expires_in: float | None = None, who: str = ""
    ) -> dict[str, Any]:
        """Make a key."""
        asked: dict[str, Any] = {"name": name, "scopes": list(scopes)}
        if expires_in is not None:
            asked["expires_in"] = expires_in
        return self._ask("POST", "/v1/keys", asked, who=who)

    def keys(self) -> list[dict[str, Any]]:
        """Every key by its prefix."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/keys")["keys"]
        return found

    def revoke_key(self, prefix: str, *, who: str = "") -> bool:
        """Stop a key from working."""
        try:
            return bool(self._ask("DELETE", f"/v1/keys/{quote(prefix, safe='')}", who=who)["revoked"])
        except UnknownKeyError:
            return False

    def rotate_key(self, prefix: str, *, grace: float, who: str = "") -> dict[str, Any]:
        """Make a successor of a key."""
        return self._ask("POST", f"/v1/keys/{quote(prefix, safe='')}/rotate", {"grace": grace}, who=who)

    def key_audit(self, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return who created, rotated and revoked keys, in order."""
        lines: list[dict[str, Any]] = self._ask("GET", f"/v1/keys/audit?after={after}&limit={limit}")["audit"]
        return lines

    def _ask(
        self, method: str, path: str, body: Any = None, *, who: str = "", patience: float = PATIENCE
    ) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 -- http or https, checked above
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if who:
            request.add_header("Pasto-Who", quote(who, safe=" "))
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=patience) as answer:
                found: dict[str, Any] = json.loads(answer.read() or b"{}")
                return found
        except urllib.error.HTTPError as refused:
            with refused:
                raise _error(refused, self._key is not None) from None
        except (OSError, ValueError) as error:
            told = getattr(error, "reason", None) or error
            raise StoreError(
                f"no service answers at {self.url} ({told}); start one with `pasto serve`, or name another with --url"
            ) from error


def _path(name: str, rest: str = "") -> str:
    return f"/v1/studies/{quote(name, safe='')}" + (f"/{rest}" if rest else "")


def _reason(reason: str) -> str:
    return f"?reason={quote(reason, safe='')}" if reason else ""


def _error(refused: urllib.error.HTTPError, with_key: bool) -> PastoError:
    """The library's own error for an answer that is one."""
    if refused.code == 401:
        cure = "the key is wrong, revoked or expired" if with_key else "it wants a key: pass --key or set PASTO_KEY"
        return OptionError(f"the service refused: {cure}")
    try:
        told = json.loads(refused.read())["error"]
        message, code = str(told["message"]), str(told["code"])
    except (ValueError, KeyError, TypeError):
        return StoreError(f"the service answered {refused.code} {refused.reason}, which is no answer of PASTO's")
    if isinstance(problems := told.get("problems"), dict):
        return StudyFileError({str(field): str(problem) for field, problem in problems.items()})
    return ERRORS.get(code, InputError if refused.code < 500 else StoreError)(message)
