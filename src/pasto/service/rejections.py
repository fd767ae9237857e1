"""Rejected events: counted by reason and by sender, so that they are not mistaken for lost ones."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from pasto.service.event_decoder import RejectedEvent
from pasto.store import RejectedPositions, RejectionReason, Rejections, Store

MAX_REASONS = 50
"""Different reasons of a study that one process keeps apart; further ones are counted together."""
MAX_TEXTS = 1_000
"""Different texts of one batch that are looked at, so that none takes long; further ones are counted together."""
MAX_REASON_CHARACTERS = 300
REMEMBERED_REJECTIONS = 50_000
"""Rejected events that one process remembers, so that a batch that is sent again does not count them again."""
SHOWN_REASONS = 5
OTHER_REASONS = "other reasons"


class RejectionCounter:
    """Counts rejected events for the store.

    >>> counter = RejectionCounter()
    >>> counted = counter.count(
    ...     1, [RejectedEvent(0, "a", "version is 7", "web-1", 3), RejectedEvent(1, "b", "version is 8")]
    ... )
    >>> [(row.reason, row.events) for row in counted.reasons], counted.numbers
    ([('version is 7', 2)], (RejectedPositions(source='web-1', events=1, first=3, last=3),))
    >>> again = [RejectedEvent(0, "a", "version is 7")]
    >>> counter.take_new(1, again) == again, counter.take_new(1, again)
    (True, [])
    """

    def __init__(self) -> None:
        self._kinds: defaultdict[int, set[str]] = defaultdict(set)
        self._counted: OrderedDict[tuple[int, str | None, str], None] = OrderedDict()
        self._lock = Lock()

    def take_new(self, study: int, refused: Sequence[RejectedEvent]) -> list[RejectedEvent]:
        """Return the rejections that are to be counted: each sender and id once, and every one without an id."""
        new: list[RejectedEvent] = []
        with self._lock:
            for refusal in refused:
                if refusal.id is not None:
                    key = (study, refusal.source, refusal.id)
                    if key in self._counted:
                        continue
                    self._counted[key] = None
                new.append(refusal)
            while len(self._counted) > REMEMBERED_REJECTIONS:
                self._counted.popitem(last=False)
        return new

    def forget(self, study: int, refused: Sequence[RejectedEvent]) -> None:
        """Forget a batch whose counts were not written, so that it counts when it is sent again."""
        with self._lock:
            for refusal in refused:
                if refusal.id is not None:
                    self._counted.pop((study, refusal.source, refusal.id), None)

    def count(self, study: int, refused: Sequence[RejectedEvent]) -> Rejections:
        """Return the counts of one batch; reasons that differ only in numbers count as one."""
        by_text = Counter(refusal.reason for refusal in refused)
        reasons: dict[str, RejectionReason] = {}
        for place, (text, events) in enumerate(by_text.items()):
            kind, reason = self._kind(study, text) if place < MAX_TEXTS else (OTHER_REASONS, OTHER_REASONS)
            known = reasons.get(kind, RejectionReason(kind, reason, 0))
            reasons[kind] = RejectionReason(kind, known.reason, known.events + events)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for refusal in refused:
            if refusal.source is not None and refusal.sequence is not None:
                places[refusal.source].append(refusal.sequence)
        numbers = (RejectedPositions(source, len(found), min(found), max(found)) for source, found in places.items())
        return Rejections(tuple(reasons.values()), tuple(numbers))

    def _kind(self, study: int, reason: str) -> tuple[str, str]:
        """Return what a reason is counted under, and the reason as it can be stored."""
        reason = reason[:MAX_REASON_CHARACTERS]
        if not reason.isprintable():
            reason = "".join(letter if letter.isprintable() else "?" for letter in reason)
        kind = re.sub(r"\d+", "#", reason)
        known = self._kinds[study]
        if kind not in known:
            if len(known) >= MAX_REASONS:
                return OTHER_REASONS, OTHER_REASONS
            known.add(kind)
        return kind, reason


def rejected_events(store: Store, study: int) -> dict[str, Any]:
    """Return how many events of a study were rejected, with the commonest reasons, each in its first wording."""
    rows = sorted(store.list_rejections_by_reason(study), key=lambda row: (-row.events, row.first_at))
    return {
        "events": sum(row.events for row in rows),
        "reasons": [
            {"reason": row.reason, "events": row.events, "first_at": row.first_at} for row in rows[:SHOWN_REASONS]
        ],
    }
