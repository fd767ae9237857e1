"""HTTP client of the control plane of a running service."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pasto import __version__
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
from pasto.report.records import ClosedRoundRecord, Record, Report, WhatIfAnswer
from pasto.report.replay_report import ReplayReport
from pasto.service.api_keys import ApiKeyRecord, NewApiKey
from pasto.service.archive import ArchiveResult
from pasto.service.close_record import CloseSummary
from pasto.service.holdout import HoldoutRecord
from pasto.service.layers import LayerRecord
from pasto.service.retention import UnitErasure
from pasto.service.study_check import StudyFileCheck
from pasto.service.study_file.edit import EditRequest
from pasto.service.study_records import DeletedStudy, StudyOverview, StudySummary
from pasto.service.webhook_worker import WebhookRecord, WebhookTrial
from pasto.store import AuditRow

TIMEOUT_SECONDS = 60.0
"""Seconds to wait for a response."""
SCAN_TIMEOUT_SECONDS = 3600.0
"""Seconds to wait for a response to a request that reads all events, such as a replay."""


class UnknownKeyError(OptionError):
    """Error of a request for a key that does not exist."""


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
"""Exceptions by error code. Other codes are an `InputError` if the status is below 500, else a `StoreError`."""


class _NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirects, because a redirect could send the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that the redirect is an error."""


class HttpStudyApi:
    """Client of a running service with the methods, results and errors of `StudyApi`.

    >>> HttpStudyApi("http://127.0.0.1:8300/").url
    'http://127.0.0.1:8300'
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise OptionError(f"the address of a service must be a URL such as http://127.0.0.1:8300, got {url!r}")
        self.url = url.rstrip("/")
        self._key = key
        # An empty ProxyHandler makes requests to loopback ignore the proxy of the environment.
        local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        proxy = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_NoRedirectHandler, *proxy)

    def create(self, document: Mapping[str, Any], *, who: str, reason: str = "") -> StudyOverview:
        """Create a study from a study file."""
        return self._request(StudyOverview, "POST", "/v1/studies" + _reason_query(reason), dict(document), who=who)

    def edit(
        self,
        name: str,
        document: Mapping[str, Any] | None = None,
        *,
        who: str,
        reason: str = "",
        fields: Mapping[str, Any] | None = None,
        add: Sequence[Mapping[str, Any]] = (),
        retire: Sequence[str] = (),
        restore: Sequence[str] = (),
        generation: int | None = None,
        dry_run: bool = False,
    ) -> StudyOverview:
        """Edit the study file of a draft or of a running study."""
        EditRequest(document, fields or {}, add, retire, restore)  # checks that they go together
        if document is not None:
            query = {"reason": reason, "generation": generation, "dry_run": "true" if dry_run else None}
            sent = urlencode({name: value for name, value in query.items() if value not in (None, "")}, quote_via=quote)
            path = _study_path(name) + (f"?{sent}" if sent else "")
            return self._request(StudyOverview, "PUT", path, dict(document), who=who)
        body: dict[str, Any] = {
            "action": "edit",
            "reason": reason,
            "set": dict(fields or {}),
            "add": [dict(row) for row in add],
            "retire": list(retire),
            "restore": list(restore),
            "dry_run": dry_run,
        }
        if generation is not None:
            body["generation"] = generation
        return self._request(StudyOverview, "PATCH", _study_path(name), body, who=who)

    def move_ramp(self, name: str, to: str | float, *, who: str, reason: str = "") -> StudyOverview:
        """Move the ramp of a learning study, or hold it."""
        body = {"action": "ramp", "to": to, "reason": reason}
        return self._request(StudyOverview, "PATCH", _study_path(name), body, who=who)

    def delete(self, name: str, *, who: str, reason: str = "") -> DeletedStudy:
        """Delete a draft."""
        return self._request(DeletedStudy, "DELETE", _study_path(name) + _reason_query(reason), who=who)

    def check(self, document: Mapping[str, Any]) -> StudyFileCheck:
        """Check a study file and its source tables without creating a study."""
        return self._request(StudyFileCheck, "POST", "/v1/check", dict(document))

    def studies(self) -> list[StudySummary]:
        """List all studies."""
        return self._request(dict[str, list[StudySummary]], "GET", "/v1/studies")["studies"]

    def show(self, name: str) -> StudyOverview:
        """Return a study."""
        return self._request(StudyOverview, "GET", _study_path(name))

    def layers(self) -> list[LayerRecord]:
        """List the layers with their studies and free shares."""
        return self._request(dict[str, list[LayerRecord]], "GET", "/v1/layers")["layers"]

    def holdout(self) -> HoldoutRecord:
        """Return the holdout, and since when each study leaves it out."""
        return self._request(HoldoutRecord, "GET", "/v1/holdout")

    def set_holdout(self, share: Any, *, who: str, reason: str = "", unit: str = "user") -> HoldoutRecord:
        """Hold a share of units out of all studies that assign this unit."""
        body = {"share": share, "unit": unit, "reason": reason}
        return self._request(HoldoutRecord, "PUT", "/v1/holdout", body, who=who)

    def delete_holdout(self, *, who: str, reason: str = "") -> HoldoutRecord:
        """End the holdout."""
        return self._request(HoldoutRecord, "DELETE", "/v1/holdout" + _reason_query(reason), who=who)

    def change(self, name: str, action: str, *, who: str, reason: str = "", **options: Any) -> StudyOverview:
        """Start, pause, resume, confirm, deploy or archive a study."""
        return self._request(
            StudyOverview, "PATCH", _study_path(name), {"action": action, "reason": reason, **options}, who=who
        )

    def close_round(self, name: str, *, who: str, reason: str = "") -> CloseSummary:
        """Close the open round."""
        return self._request(CloseSummary, "POST", _study_path(name, "rounds/close"), {"reason": reason}, who=who)

    def resolve_round(self, name: str, round: int, resolution: str, *, who: str, reason: str) -> StudyOverview:
        """Decide about a round that is held back because events are missing."""
        body = {"round": round, "resolution": resolution, "reason": reason}
        return self._request(StudyOverview, "POST", _study_path(name, "rounds/resolve"), body, who=who)

    def rounds(self, name: str, after: int = 0, limit: int = 100) -> list[ClosedRoundRecord]:
        """List closed rounds, oldest first."""
        path = _study_path(name, f"rounds?after={after}&limit={limit}")
        return self._request(dict[str, list[ClosedRoundRecord]], "GET", path)["rounds"]

    def audit(self, name: str, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """List entries of the audit log, oldest first."""
        path = _study_path(name, f"audit?after={after}&limit={limit}")
        return self._request(dict[str, list[AuditRow]], "GET", path)["audit"]

    def report(self, name: str) -> Report:
        """Return the report of a study."""
        return self._request(Report, "GET", _study_path(name, "report"))

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
        """Return the best blend for another objective, guardrail or set of candidates."""
        parts = {"maximize": maximize, "minimize": minimize, "keep": keep, "drop": drop, "only": only}
        question = {part: list(texts) for part, texts in parts.items() if texts}
        return self._request(WhatIfAnswer, "POST", _study_path(name, "what-if"), question)

    def replay(self, name: str) -> ReplayReport:
        """Recompute all policies from the event log and compare them."""
        return self._request(ReplayReport, "POST", _study_path(name, "replay"), {}, timeout=SCAN_TIMEOUT_SECONDS)

    def export(self, name: str, format: str, *, part: str = "policy", attribute: str | None = None) -> dict[str, Any]:
        """Return the served policy or the blend in the form of another platform."""
        query = {"format": format, "part": part, **({} if attribute is None else {"attribute": attribute})}
        return self._request(dict[str, Any], "GET", _study_path(name, f"export?{urlencode(query)}"))

    def archive_events(self, name: str, *, who: str, delete_older: float | None = None) -> ArchiveResult:
        """Archive the events of learned rounds, and delete old archived events."""
        body = {} if delete_older is None else {"delete_older": delete_older}
        return self._request(
            ArchiveResult, "POST", _study_path(name, "events/archive"), body, who=who, timeout=SCAN_TIMEOUT_SECONDS
        )

    def erase_unit(self, name: str, unit: str, *, who: str, reason: str = "") -> UnitErasure:
        """Erase the events of a unit."""
        body = {"unit": unit, "reason": reason}
        return self._request(
            UnitErasure, "POST", _study_path(name, "units/erase"), body, who=who, timeout=SCAN_TIMEOUT_SECONDS
        )

    def create_key(
        self, name: str, scopes: Sequence[str], *, expires_in: float | None = None, who: str = ""
    ) -> NewApiKey:
        """Create a key."""
        body: dict[str, Any] = {"name": name, "scopes": list(scopes)}
        if expires_in is not None:
            body["expires_in"] = expires_in
        return self._request(NewApiKey, "POST", "/v1/keys", body, who=who)

    def keys(self) -> list[ApiKeyRecord]:
        """List all keys."""
        return self._request(dict[str, list[ApiKeyRecord]], "GET", "/v1/keys")["keys"]

    def revoke_key(self, prefix: str, *, who: str = "") -> bool:
        """Revoke a key."""
        try:
            return bool(
                self._request(dict[str, bool], "DELETE", f"/v1/keys/{quote(prefix, safe='')}", who=who)["revoked"]
            )
        except UnknownKeyError:
            return False

    def rotate_key(self, prefix: str, *, grace: float, who: str = "") -> NewApiKey:
        """Create a key's successor."""
        return self._request(NewApiKey, "POST", f"/v1/keys/{quote(prefix, safe='')}/rotate", {"grace": grace}, who=who)

    def key_audit(self, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """List entries of the audit log of keys, oldest first."""
        return self._request(dict[str, list[AuditRow]], "GET", f"/v1/keys/audit?after={after}&limit={limit}")["audit"]

    def webhooks(self) -> list[WebhookRecord]:
        """List the webhooks of the service."""
        return self._request(dict[str, list[WebhookRecord]], "GET", "/v1/webhooks")["webhooks"]

    def try_webhook(self, name: str, *, who: str = "") -> WebhookTrial:
        """Send a test message to a webhook."""
        return self._request(WebhookTrial, "POST", f"/v1/webhooks/{quote(name, safe='')}/test", {}, who=who)

    def _request(
        self,
        kind: type[Record],
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str = "",
        timeout: float = TIMEOUT_SECONDS,
    ) -> Record:
        """Send a request, and read the response as a record of a kind."""
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 -- http or https, checked above
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if who:
            request.add_header("Pasto-Who", quote(who, safe=" "))
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return msgspec.json.decode(response.read() or b"{}", type=kind)
        except urllib.error.HTTPError as response:
            with response:
                raise _convert_error(response, self._key is not None) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"the response of {self.url} cannot be read ({error}); check the address, and that the service has the "
                f"version {__version__} of PASTO"
            ) from error
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", None) or error
            raise StoreError(
                f"no service answers at {self.url} ({cause}); start one with `pasto serve`, or give another --url"
            ) from error


def _study_path(name: str, rest: str = "") -> str:
    return f"/v1/studies/{quote(name, safe='')}" + (f"/{rest}" if rest else "")


def _reason_query(reason: str) -> str:
    return f"?reason={quote(reason, safe='')}" if reason else ""


def _convert_error(response: urllib.error.HTTPError, with_key: bool) -> PastoError:
    """Return the exception for an error response."""
    if response.code == 401:
        cure = "the key is wrong, revoked or expired" if with_key else "it needs a key: pass --key or set PASTO_KEY"
        return OptionError(f"the service rejected the request: {cure}")
    try:
        problem = json.loads(response.read())["error"]
        message, code = str(problem["message"]), str(problem["code"])
    except (ValueError, KeyError, TypeError):
        return StoreError(
            f"{response.url} answered {response.code} {response.reason}, but not as PASTO does; check the address"
        )
    if isinstance(problems := problem.get("problems"), dict):
        return StudyFileError({str(field): str(text) for field, text in problems.items()})
    return ERRORS.get(code, InputError if response.code < 500 else StoreError)(message)
