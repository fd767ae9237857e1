"""Where the past of a round ends, which covariates are made of: before its units were dealt to their arms.

Whatever a covariate reads was in the log before the first policy was published that deals units as the round's does. So
no decision of the round can have changed it, and a lift that is adjusted by it stays what it was.
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
    """The part of the log that a round's covariates are made of; None where the study has none."""
    longest = max((column.lookback or 0.0 for column in spec.covariates), default=0.0)
    if not longest:
        return None
    first = first_assignments(store, study, version)
    return CovariateWindow(_begun(store, study, first, longest), first.after_sequence, first.published_at)


def first_assignments(store: Store, study: int, version: int) -> PolicyRow:
    """The first policy that deals units to arms as a version's does.

    While a study learns, every policy deals anew. In a confirmation and after it units stay in their arm, through
    pauses too: what they did in one such phase owes something to the arm that they have in the next.
    """
    found = _policy(store, study, version)
    while _sticky(found) and found.version > 1 and _sticky(earlier := _policy(store, study, found.version - 1)):
        found = earlier
    return found


def needed_from(store: Store, spec: StudySpec, row: StudyRow) -> float:
    """The time from which events must stay in the store, for covariates of rounds that are to be measured yet.

    Infinite where none will be.
    """
    longest = max((column.lookback or 0.0 for column in spec.covariates), default=0.0)
    if not longest or not row.version or row.state == "archived":
        return math.inf
    details = StudyState.from_text(row.details)
    open_rounds = [one.round for one in details.waiting] + [one.waiting.round for one in details.correctable]
    versions = [row.version, *open_rounds]
    return min(first_assignments(store, row.number, version).published_at for version in versions) - longest


def lacks_events(store: Store, row: StudyRow, past: CovariateWindow) -> bool:
    """Return whether some events of a past are not in the store any more: archived, or of a unit that was forgotten."""
    return bool(store.list_archived_spans(row.number, past.after, past.until)) or count_forgotten(store, row, past) > 0


def count_forgotten(store: Store, row: StudyRow, past: CovariateWindow) -> int:
    """Return how many events of a past are of units that were forgotten."""
    query = "SELECT count(*) FROM events WHERE study = ? AND sequence > ? AND sequence <= ? AND unit = ''"
    with store.read_transaction() as source:
        found = source.execute(
            query.replace("?", "%s") if store.dialect == "postgres" else query, (row.number, past.after, past.until)
        ).fetchone()
    return int(found[0])


def _begun(store: Store, study: int, first: PolicyRow, longest: float) -> int:
    """A sequence up to which everything is too old: that of the last policy that was published before the look-back."""
    low, high = 1, first.version
    since = first.published_at - longest
    while low < high:
        middle = (low + high + 1) // 2
        if _policy(store, study, middle).published_at <= since:
            low = middle
        else:
            high = middle - 1
    return _policy(store, study, low).after_sequence


def _sticky(policy: PolicyRow) -> bool:
    return bool(json.loads(policy.document)["mode"] == "sticky")


def _policy(store: Store, study: int, version: int) -> PolicyRow:
    found = store.read_policy(study, version)
    if found is None:
        raise StoreError(f"policy {version} of study number {study} is missing; run `pasto store check`")
    return found
