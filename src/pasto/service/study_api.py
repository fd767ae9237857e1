"""Protocol of the control plane, implemented by the service in this process and by the HTTP client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pasto.report.records import ClosedRoundRecord, Report, WhatIfAnswer
from pasto.report.replay_report import ReplayReport
from pasto.service.api_keys import ApiKeyRecord, NewApiKey
from pasto.service.archive import ArchiveResult
from pasto.service.close_record import CloseSummary
from pasto.service.holdout import HoldoutRecord
from pasto.service.layers import LayerRecord
from pasto.service.retention import UnitErasure
from pasto.service.study_check import StudyFileCheck
from pasto.service.study_records import DeletedStudy, StudyOverview, StudySummary
from pasto.store import AuditRow


class StudyApi(Protocol):
    """Control plane of studies and keys; `Service` and `HttpStudyApi` implement it."""

    def create(self, document: Mapping[str, Any], *, who: str, reason: str = "") -> StudyOverview:
        """Create a study from a study file; it starts as a draft."""
        ...

    def check(self, document: Mapping[str, Any]) -> StudyFileCheck:
        """Check a study file and its source tables without creating a study."""
        ...

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
        ...

    def delete(self, name: str, *, who: str, reason: str = "") -> DeletedStudy:
        """Delete a draft and free its name."""
        ...

    def studies(self) -> list[StudySummary]:
        """List all studies."""
        ...

    def show(self, name: str) -> StudyOverview:
        """Return a study."""
        ...

    def layers(self) -> list[LayerRecord]:
        """List the layers with their studies and free shares."""
        ...

    def holdout(self) -> HoldoutRecord:
        """Return the holdout, and since when each study leaves it out."""
        ...

    def set_holdout(self, share: Any, *, who: str, reason: str = "", unit: str = "user") -> HoldoutRecord:
        """Hold a share of units out of all studies that assign this unit, each from its next policy on."""
        ...

    def delete_holdout(self, *, who: str, reason: str = "") -> HoldoutRecord:
        """End the holdout: each study may use all units again, from its next policy on."""
        ...

    def change(self, name: str, action: str, *, who: str, reason: str = "", **options: Any) -> StudyOverview:
        """Start, pause, resume, confirm, deploy or archive a study."""
        ...

    def move_ramp(self, name: str, to: str | float, *, who: str, reason: str = "") -> StudyOverview:
        """Move the ramp of a learning study to a share, to the next step or back; or hold it, or let it go on."""
        ...

    def close_round(self, name: str, *, who: str, reason: str = "") -> CloseSummary:
        """Close the open round."""
        ...

    def resolve_round(self, name: str, round: int, resolution: str, *, who: str, reason: str) -> StudyOverview:
        """Decide about a round that is held back because events are missing: "learn" or "discard"."""
        ...

    def rounds(self, name: str, after: int = 0, limit: int = 100) -> list[ClosedRoundRecord]:
        """List closed rounds, oldest first."""
        ...

    def audit(self, name: str, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """List entries of the audit log, oldest first."""
        ...

    def report(self, name: str) -> Report:
        """Return the report of a study."""
        ...

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
        ...

    def replay(self, name: str) -> ReplayReport:
        """Recompute all policies from the event log and compare them."""
        ...

    def export(self, name: str, format: str, *, part: str = "policy", attribute: str | None = None) -> dict[str, Any]:
        """Return the served policy or the blend in the form of another platform."""
        ...

    def archive_events(self, name: str, *, who: str, delete_older: float | None = None) -> ArchiveResult:
        """Archive the events of learned rounds, and delete old archived events."""
        ...

    def erase_unit(self, name: str, unit: str, *, who: str, reason: str = "") -> UnitErasure:
        """Erase the events of a unit."""
        ...

    def create_key(
        self, name: str, scopes: Sequence[str], *, expires_in: float | None = None, who: str = ""
    ) -> NewApiKey:
        """Create a key; only this result contains its secret."""
        ...

    def keys(self) -> list[ApiKeyRecord]:
        """List all keys without their secrets."""
        ...

    def revoke_key(self, prefix: str, *, who: str = "") -> bool:
        """Revoke a key."""
        ...

    def rotate_key(self, prefix: str, *, grace: float, who: str = "") -> NewApiKey:
        """Create a key's successor; the old key stays valid for `grace` seconds."""
        ...

    def key_audit(self, after: int = 0, limit: int = 100) -> list[AuditRow]:
        """List entries of the audit log of keys, oldest first."""
        ...
