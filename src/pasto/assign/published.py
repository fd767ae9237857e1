"""A published policy, ready to draw from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import groupby
from math import log
from types import MappingProxyType
from typing import Literal, NoReturn

from pasto.assign.cell import WHOLE, Cell
from pasto.assign.document import Document, read
from pasto.errors import BadInput

LONGEST = 256
"""Characters in a unit."""

_Entry = tuple[bytes, int, Cell]


class Published:
    """An immutable policy: which candidate each unit gets, and with what probability.

    Shuffled: the top 53 bits of SHA-256(salt ‖ 0x00 ‖ unit), both in UTF-8, are the unit's place on the line
    [0, 2^53), and the cell it falls into is its own. Another salt is another, independent, shuffle.

    Sticky: the place chooses the arm only. Within an arm each candidate gets a place of its own, h, from
    SHA-256(salt ‖ 0x00 ‖ name ‖ 0x00 ‖ unit), and the smallest −ln((h + ½)/2^53)/width wins, the earlier cell on a
    tie: a unit moves only where its own candidate shrank or another one grew.

    >>> from pasto.assign import publish
    >>> policy = publish(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.125), ("learner", 0, 0.375), ("learner", 1, 0.5)],
    ...                  valid_from=0, expires_after=86400)
    >>> cell = policy.draw("user 7")
    >>> cell.arm, cell.name, dict(cell.values), cell.propensity
    ('learner', 'b', {'weight': 2}, 0.5)
    >>> Published.from_text(policy.text, policy.checksum).draw("user 7") == cell
    True
    """

    __slots__ = (
        "_arms",
        "_cuts",
        "_start",
        "baseline",
        "cells",
        "checksum",
        "expires_after",
        "mode",
        "named",
        "round",
        "salt",
        "state",
        "study",
        "text",
        "valid_from",
        "version",
    )

    study: str
    version: int
    round: int
    state: str
    """Of the study's life when it was published."""
    mode: Literal["shuffled", "sticky"]
    salt: str
    cells: tuple[Cell, ...]
    """Their widths sum to WHOLE; those of one arm are neighbours."""
    baseline: Cell
    """What to serve where nothing else may be: arm "none", propensity 0."""
    named: Mapping[str, Cell]
    """Every candidate of the document by its name, as an override would serve it: arm "none", propensity 0."""
    valid_from: float
    """In seconds since 1970."""
    expires_after: float
    """Seconds that a holder may go on drawing from it after its last contact with the service."""
    text: str
    """The document as published."""
    checksum: str
    """SHA-256 of the text, in hexadecimal."""
    _start: bytes
    _cuts: list[int]
    _arms: tuple[Cell | tuple[_Entry, ...], ...]
    """When sticky: what to draw from in each arm. Empty when shuffled."""

    def __init__(self, document: Document) -> None:
        for field in ("study", "version", "round", "state", "mode", "salt", "cells", "valid_from", "expires_after"):
            object.__setattr__(self, field, getattr(document, field))
        named = {
            name: Cell("none", index, name, values, 0, 0.0) for index, (name, values) in document.candidates.items()
        }
        start = self.salt.encode() + b"\0"
        cuts = list(document.cuts)
        arms: list[Cell | tuple[_Entry, ...]] = []
        if self.mode == "sticky":
            cuts = []
            for _, group in groupby(document.cells, lambda cell: cell.arm):
                own = tuple(group)
                cuts.append((cuts[-1] if cuts else 0) + sum(cell.width for cell in own))
                entries = tuple((start + cell.name.encode() + b"\0", cell.width, cell) for cell in own)
                arms.append(own[0] if len(own) == 1 else entries)
        object.__setattr__(self, "named", MappingProxyType(named))
        object.__setattr__(self, "baseline", named[document.candidates[document.baseline][0]])
        object.__setattr__(self, "text", document.text)
        object.__setattr__(self, "checksum", document.checksum)
        object.__setattr__(self, "_start", start)
        object.__setattr__(self, "_cuts", cuts)
        object.__setattr__(self, "_arms", tuple(arms))

    @classmethod
    def from_text(cls, text: str | bytes, checksum: str | None = None) -> Published:
        """Read a document, checking all of it; a checksum, where given, must be that of the text."""
        return cls(read(text, checksum))

    def draw(self, unit: str) -> Cell:
        """The unit's cell: the same for the same unit, wherever and whenever it is asked."""
        try:
            encoded = unit.encode()
            if not 0 < len(unit) <= LONGEST:
                _refuse(unit)
            place = int.from_bytes(sha256(self._start + encoded).digest()[:7], "big") >> 3
        except (AttributeError, TypeError, UnicodeEncodeError):
            _refuse(unit)
        chosen = bisect_right(self._cuts, place)
        if self._arms:
            arm = self._arms[chosen]
            return arm if isinstance(arm, Cell) else _rendezvous(arm, encoded)
        return self.cells[chosen]

    def draw_many(self, units: Iterable[str]) -> list[Cell]:
        """The cell of each unit, in their order."""
        draw = self.draw
        return [draw(unit) for unit in units]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a published policy never changes: {name} cannot be set; publish another version")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a published policy never changes: {name} cannot be deleted; publish another version")

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Published) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __reduce__(self) -> tuple[object, ...]:
        return Published.from_text, (self.text, self.checksum)

    def __repr__(self) -> str:
        return f"<Published {self.study!r} version {self.version}: {self.state}, {self.mode}, {len(self.cells)} cells>"


def _rendezvous(entries: tuple[_Entry, ...], unit: bytes) -> Cell:
    """Who wins the unit within an arm: each candidate's chance is its width's part of the arm's."""
    best, winner = float("inf"), entries[0][2]
    for start, width, cell in entries:
        place = int.from_bytes(sha256(start + unit).digest()[:7], "big") >> 3
        score = -log((place + 0.5) / WHOLE) / width
        if score < best:
            best, winner = score, cell
    return winner


def _refuse(unit: object) -> NoReturn:
    """Say why a unit cannot be drawn for."""
    if not isinstance(unit, str):
        raise BadInput(f"a unit must be a string, got {unit!r} ({type(unit).__name__}); use str(...) on a number")
    if not unit:
        raise BadInput("a unit must have at least one character, got ''; leave out units that nobody can name")
    if len(unit) > LONGEST:
        raise BadInput(
            f"a unit may have {LONGEST} characters, got {len(unit)} ({unit[:20]!r}...); use a hash of it instead"
        )
    raise BadInput(f"the unit {unit!r} holds half a surrogate pair, which no text may; decode it as UTF-8 first")
