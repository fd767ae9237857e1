"""Covariate window: the part of the event log before a round from which its covariates are computed.

The window ends before the first policy that assigns units to arms as the round's policy does. So no decision of the
round can have changed a covariate, and an adjusted lift estimates the same quantity.
"""

from __future__ import annotations

import json
import math

from pasto.errors import StoreError
from pasto.metrics import CovariateWindow
from pasto.service.study_file import StudySpec
from pasto.service.study_state import StudyState
from pasto.store import PolicyRow, Store, StudyRow


def covariate_window(store: Store, spec: StudySpec, study: int, version: int) -> CovariateWindow | None:
    """Return the part of the log for a round's covariates; None if the study has none."""
    longest = max((column.lookback or 0.0 for column in spec.covariates), default=0.0)
    if not longest:
        return None
    first = first_assignments(store, study, version)
    return CovariateWindow(_find_start(store, study, first, longest), first.after_sequence, first.published_at)


def first_assignments(store: Store, study: int, version: int) -> PolicyRow:
    """Return the first policy that assigns units to arms as a given version does.

    While a study learns, every policy assigns units independently. In a confirmation and after it, units keep their
    arm, even through pauses: their actions in one such phase depend on the arm that they have in the next.
    """
    found = _policy(store, study, version)
    while _is_sticky(found) and found.version > 1 and _is_sticky(earlier := _policy(store, study, found.version - 1)):
        found = earlier
    return found


def needed_from(store: Store, spec: StudySpec, row: StudyRow) -> float:
    """Return the time from which events must stay in the store for covariates of rounds that are not measured yet.

    Infinite if there are none.
    """
    longest = max((column.lookback or 0.0 for column in spec.covariates), default=0.0)
    if not longest or not row.version or row.state == "archived":
        return math.inf
    details = StudyState.from_text(row.details)
    open_rounds = [entry.round for entry in details.waiting] + [entry.waiting.round for entry in details.correctable]
    versions = [row.version, *open_rounds]
    return min(first_assignments(store, row.number, version).published_at for version in versions) - longest


def lacks_events(store: Store, row: StudyRow, window: CovariateWindow) -> bool:
    """Return whether some events of a window are not in the store any more: archived, or of an erased unit."""
    return (
        bool(store.list_archived_spans(row.number, window.after, window.until))
        or count_forgotten(store, row, window) > 0
    )


def count_forgotten(store: Store, row: StudyRow, window: CovariateWindow) -> int:
    """Return the number of events in a window that belong to erased units."""
    query = "SELECT count(*) FROM events WHERE study = ? AND sequence > ? AND sequence <= ? AND unit = ''"
    with store.read_transaction() as source:
        found = source.execute(
            query.replace("?", "%s") if store.dialect == "postgres" else query, (row.number, window.after, window.until)
        ).fetchone()
    return int(found[0])


def _find_start(store: Store, study: int, first: PolicyRow, longest: float) -> int:
    """Return the sequence number at which the look-back starts: that of the last policy published before it."""
    low, high = 1, first.version
    since = first.published_at - longest
    while low < high:
        middle = (low + high + 1) // 2
        if _policy(store, study, middle).published_at <= since:
            low = middle
        else:
            high = middle - 1
    return _policy(store, study, low).after_sequence


def _is_sticky(policy: PolicyRow) -> bool:
    return bool(json.loads(policy.document)["mode"] == "sticky")


def _policy(store: Store, study: int, version: int) -> PolicyRow:
    found = store.read_policy(study, version)
    if found is None:
        raise StoreError(f"policy {version} of study number {study} is missing; run `pasto store check`")
    return found
