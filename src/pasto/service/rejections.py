"""Rejected events: counted by reason and by sender, so that they are not mistaken for lost ones."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from threading import Lock

from pasto.report.data_quality_records import RejectedEvents, RejectionCount
from pasto.service.event_decoder import RejectedEvent
from pasto.store import RejectedPositions, RejectionReason, Rejections, Store

MAX_REASONS = 50
"""Most different reasons of a study in one process; further ones are counted together."""
MAX_TEXTS = 1_000
"""Most different texts of one batch that are grouped; further ones are counted together."""
MAX_REASON_CHARACTERS = 300
MAX_CACHED_REJECTIONS = 50_000
"""Latest rejected events that one process caches, so that a repeated batch does not count them again."""
MAX_REPORTED_REASONS = 5
OTHER_REASONS = "other reasons"


class RejectionCounter:
    """Counter of rejected events for the store.

    >>> counter = RejectionCounter()
    >>> counted = counter.count(
    ...     1, [RejectedEvent(0, "a", "version is 7", "web-1", 3), RejectedEvent(1, "b", "version is 8")]
    ... )
    >>> [(row.reason, row.events) for row in counted.reasons], counted.positions
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
        """Return the rejections to count: each sender and id once, and every event without an id."""
        new: list[RejectedEvent] = []
        with self._lock:
            for refusal in refused:
                if refusal.id is not None:
                    key = (study, refusal.source, refusal.id)
                    if key in self._counted:
                        continue
                    self._counted[key] = None
                new.append(refusal)
            while len(self._counted) > MAX_CACHED_REJECTIONS:
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
            first = reasons.get(kind, RejectionReason(kind, reason, 0))
            reasons[kind] = RejectionReason(kind, first.reason, first.events + events)
        sequences: defaultdict[str, list[int]] = defaultdict(list)
        for refusal in refused:
            if refusal.source is not None and refusal.sequence is not None:
                sequences[refusal.source].append(refusal.sequence)
        positions = [
            RejectedPositions(source, len(group), min(group), max(group)) for source, group in sequences.items()
        ]
        return Rejections(tuple(reasons.values()), tuple(positions))

    def _kind(self, study: int, reason: str) -> tuple[str, str]:
        """Return the group of a reason, and the reason in a form that can be stored."""
        reason = reason[:MAX_REASON_CHARACTERS]
        if not reason.isprintable():
            reason = "".join(letter if letter.isprintable() else "?" for letter in reason)
        kind = re.sub(r"\d+", "#", reason)
        kinds = self._kinds[study]
        if kind not in kinds:
            if len(kinds) >= MAX_REASONS:
                return OTHER_REASONS, OTHER_REASONS
            kinds.add(kind)
        return kind, reason


def read_rejected_events(store: Store, study: int) -> RejectedEvents:
    """Return the number of rejected events of a study and their most frequent reasons, each in its first wording."""
    rows = sorted(store.list_rejections_by_reason(study), key=lambda row: (-row.events, row.first_at))
    reasons = [RejectionCount(row.reason, row.events, row.first_at) for row in rows[:MAX_REPORTED_REASONS]]
    return RejectedEvents(sum(row.events for row in rows), tuple(reasons))
