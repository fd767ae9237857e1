"""Event counts of a study: by policy, by candidate and by sender, and their text for the store."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pasto_sdk.policy_document import current_arm

FORMAT = 2


@dataclass(slots=True)
class PolicyCounts:
    """Events of one policy so far, by candidate."""

    logged: Counter[int | None] = field(default_factory=Counter)
    """Exposures, including excluded ones."""
    excluded: Counter[int | None] = field(default_factory=Counter)
    """Exposures by fallback or override."""
    numbered: Counter[int | None] = field(default_factory=Counter)
    """Exposures of senders that number their events, and so send exposure counts."""
    arms: Counter[str] = field(default_factory=Counter)

    def add(self, other: PolicyCounts) -> None:
        """Add the counts of another policy."""
        self.logged.update(other.logged)
        self.excluded.update(other.excluded)
        self.numbered.update(other.numbered)
        self.arms.update(other.arms)

    def written(self) -> list[Any]:
        """Return the counts as plain JSON."""
        lines = [[k, self.logged[k], self.excluded[k], self.numbered[k]] for k in self.logged]
        return [lines, dict(self.arms)]

    @classmethod
    def read(cls, written: list[Any]) -> PolicyCounts:
        """Read the JSON of `written`.

        >>> PolicyCounts.read([[[3, 7, 1, 0], [None, 2, 2, 2]], {"learner": 9}]).excluded[None]
        2
        """
        lines, arms = written
        logged, excluded, numbered = (Counter({line[0]: line[place] for line in lines}) for place in (1, 2, 3))
        return cls(logged, excluded, numbered, Counter({current_arm(arm): count for arm, count in arms.items()}))


@dataclass(slots=True)
class SenderStream:
    """Numbered events of one sender.

    >>> SenderStream(events=9, first=1, last=12).missing
    3
    """

    events: int
    first: int
    last: int

    @property
    def missing(self) -> int:
        """Numbers up to the last one that never arrived: lost, or dropped by the sender; numbers start at 0 or 1."""
        return max(0, self.last - min(self.first, 1) + 1 - self.events)


@dataclass(slots=True)
class EventCounts:
    """All counts of one study."""

    until: int | None = None
    """Last counted event; None before the first refresh, which starts at the study's first event."""
    closed: int = 0
    """Last close that was read."""
    observed: dict[int, int] = field(default_factory=dict)
    """Last event of the learned measurement, by policy version."""
    unsettled: dict[int, int] = field(default_factory=dict)
    """Those versions whose late events are not counted yet."""
    events: Counter[str] = field(default_factory=Counter)
    candidates: PolicyCounts = field(default_factory=PolicyCounts)
    versions: dict[int, PolicyCounts] = field(default_factory=dict)
    senders: dict[str, SenderStream] = field(default_factory=dict)
    by_key: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Exposures and metric events by the prefix of an API key; empty without one."""
    by_source: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Exposures and metric events by the sender's own name."""
    late: dict[int, Counter[tuple[str, str]]] = field(default_factory=dict)
    """Events after the learned measurement of a round, by round, then by kind and arm."""
    clipped: Counter[int] = field(default_factory=Counter)
    """Units whose number was cut to the declared range, by column, in all learned rounds."""
    correctable: dict[int, Counter[int]] = field(default_factory=dict)
    """Clipped units of correctable rounds, by round: no event is too late for these yet."""

    def text(self) -> str:
        """Return the counts as text for a note in the store."""
        plain = {
            "format": FORMAT,
            "until": self.until,
            "closed": self.closed,
            "observed": list(self.observed.items()),
            "unsettled": list(self.unsettled.items()),
            "events": dict(self.events),
            "candidates": self.candidates.written(),
            "versions": [[version, book.written()] for version, book in self.versions.items()],
            "senders": {name: [stream.events, stream.first, stream.last] for name, stream in self.senders.items()},
            "by_key": self.by_key,
            "by_source": self.by_source,
            "late": [[round, [[*key, count] for key, count in counts.items()]] for round, counts in self.late.items()],
            "clipped": list(self.clipped.items()),
            "correctable": [[round, list(counts.items())] for round, counts in self.correctable.items()],
        }
        return b64encode(zlib.compress(json.dumps(plain, separators=(",", ":")).encode(), 1)).decode()

    @classmethod
    def from_text(cls, text: str) -> EventCounts | None:
        """Read the text of a note; None if it has another format, so that events must be counted again.

        >>> EventCounts.from_text(EventCounts(until=7, closed=2, clipped=Counter({0: 3})).text()).clipped[0]
        3
        """
        plain: Mapping[str, Any] = json.loads(zlib.decompress(b64decode(text)))
        if plain["format"] != FORMAT:
            return None
        return cls(
            plain["until"],
            plain["closed"],
            dict(plain["observed"]),
            dict(plain["unsettled"]),
            Counter(plain["events"]),
            PolicyCounts.read(plain["candidates"]),
            {version: PolicyCounts.read(book) for version, book in plain["versions"]},
            {name: SenderStream(*counts) for name, counts in plain["senders"].items()},
            {name: (counts[0], counts[1]) for name, counts in plain["by_key"].items()},
            {name: (counts[0], counts[1]) for name, counts in plain["by_source"].items()},
            {
                round: Counter({(kind, current_arm(arm)): count for kind, arm, count in counts})
                for round, counts in plain["late"]
            },
            Counter(dict(plain["clipped"])),
            {round: Counter(dict(counts)) for round, counts in plain["correctable"]},
        )
