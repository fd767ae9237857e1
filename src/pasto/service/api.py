"""What can be asked of a running system, whether it runs in this process or behind an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pasto.report.records import Report, WhatIfAnswer


class StudyApi(Protocol):
    """The control plane in plain values: the service itself answers it, and so does `Remote` over HTTP."""

    def create(self, document: Mapping[str, Any], *, who: str, reason: str = "") -> dict[str, Any]:
        """Take in a study file; the study is then a draft."""
        ...

    def check(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Check a study file and the tables that it names; nothing is created."""
        ...

    def edit(self, name: str, document: Mapping[str, Any], *, who: str, reason: str = "") -> dict[str, Any]:
        """Put another study file in the place of a draft's."""
        ...

    def delete(self, name: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete a draft, which frees its name."""
        ...

    def studies(self) -> list[dict[str, Any]]:
        """Every study in a few words."""
        ...

    def show(self, name: str) -> dict[str, Any]:
        """One study as it stands."""
        ...

    def change(self, name: str, action: str, *, who: str, reason: str = "", **options: Any) -> dict[str, Any]:
        """Start, pause, resume, confirm, deploy or archive a study."""
        ...

    def close_round(self, name: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Close the open round now."""
        ...

    def resolve_round(self, name: str, round: int, resolution: str, *, who: str, reason: str) -> dict[str, Any]:
        """Decide about a round that is held back for lack of events: "learn" it as it is, or "discard" it."""
        ...

    def rounds(self, name: str, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Closed rounds in order."""
        ...

    def audit(self, name: str, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Who did what, and why."""
        ...

    def report(self, name: str) -> Report:
        """Report on a study: its blend, its lifts and the quality of its data."""
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
        """Answer another question from what was learned."""
        ...

    def replay(self, name: str) -> dict[str, Any]:
        """Compute every policy again from the log, and compare."""
        ...

    def archive_events(self, name: str, *, who: str, delete_older: float | None = None) -> dict[str, Any]:
        """Move learned rounds' events to the archive, and delete archived ones that are old."""
        ...

    def forget(self, name: str, unit: str, *, who: str, reason: str = "") -> dict[str, Any]:
        """Delete all that is kept of a unit."""
        ...

    def create_key(
        self, name: str, scopes: Sequence[str], *, expires_in: float | None = None, who: str = ""
    ) -> dict[str, Any]:
        """Make a key; the only time it is shown."""
        ...

    def keys(self) -> list[dict[str, Any]]:
        """Every key by its prefix, never the key itself."""
        ...

    def revoke_key(self, prefix: str, *, who: str = "") -> bool:
        """Stop a key from working."""
        ...

    def rotate_key(self, prefix: str, *, grace: float, who: str = "") -> dict[str, Any]:
        """Make a successor of a key, which itself goes on for `grace` seconds."""
        ...

    def key_audit(self, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return who created, rotated and revoked keys, in order."""
        ...
