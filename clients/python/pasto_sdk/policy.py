"""A published policy, ready to draw from."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate, groupby
from math import inf, log
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from pasto_sdk.errors import InputError, PolicyError
from pasto_sdk.policy_document import (
    BUCKET_TOTAL,
    FORMAT,
    Bucket,
    Candidates,
    PolicyDocument,
    read_policy,
    write_policy,
)

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

LONGEST = 256
"""Characters in a unit."""

_first_64_bits = Struct(">Q").unpack_from

_SPARE = 64 - 53

_WHOLE = float(BUCKET_TOTAL)


@dataclass(frozen=True, slots=True)
class StickyCandidate:
    """A candidate that competes for the units of its arm."""

    start: Hash
    """Has taken in salt and name; each draw goes on from a copy."""
    width: float
    cell: Bucket


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublishedPolicy:
    """An immutable policy: which candidate each unit gets, and with what probability.

    Shuffled: the top 53 bits of SHA-256(salt ‖ 0x00 ‖ unit), both in UTF-8, are the unit's place on the line
    [0, 2^53), and the cell it falls into is its own. Another salt is another, independent, shuffle.

    Sticky: the place chooses the arm only. Within an arm each candidate gets a place of its own, h, from
    SHA-256(salt ‖ 0x00 ‖ name ‖ 0x00 ‖ unit), and the smallest −ln((h + ½)/2^53)/width wins, the earlier cell on a
    tie: a unit moves only where its own candidate shrank or another one grew.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.125), ("learner", 0, 0.375), ("learner", 1, 0.5)],
    ...                  valid_from=0, expires_after=86400)
    >>> cell = policy.draw("user 7")
    >>> cell.arm, cell.name, dict(cell.values), cell.propensity
    ('learner', 'b', {'weight': 2}, 0.5)
    >>> PublishedPolicy.from_text(policy.text, policy.checksum).draw("user 7") == cell
    True
    """

    study: str
    version: int
    round: int
    state: str
    """Of the study's life when it was published."""
    mode: Literal["shuffled", "sticky"]
    salt: str
    baseline: Bucket
    """What to serve where nothing else may be: arm "none", propensity 0."""
    named: Mapping[str, Bucket]
    """Every candidate of the document by its name, as an override would serve it: arm "none", propensity 0."""
    cells: tuple[Bucket, ...]
    """Their widths sum to WHOLE; those of one arm are neighbours."""
    valid_from: float
    """In seconds since 1970."""
    expires_after: float
    """Seconds that a holder may go on drawing from it after its last contact with the service."""
    signed: bool
    """Whether the study takes signed exposures only."""
    text: str
    """The document as published."""
    checksum: str
    """SHA-256 of the text, in hexadecimal."""
    _start: Hash = field(init=False)
    """Has taken in the salt; each draw goes on from a copy."""
    _cuts: tuple[int, ...] = field(init=False)
    """Where each entry of `_entries` ends."""
    _entries: tuple[Bucket | tuple[StickyCandidate, ...], ...] = field(init=False)
    """What a place on the line leads to: a cell, or the runners of an arm."""

    def __post_init__(self) -> None:
        start = sha256(self.salt.encode() + b"\0")
        entries = self.cells if self.mode == "shuffled" else _arms(self.cells, start)
        ends = accumulate(_width(entry) for entry in entries)
        for name, value in (("_start", start), ("_cuts", tuple(ends)), ("_entries", entries)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_text(cls, text: str | bytes, checksum: str | None = None) -> PublishedPolicy:
        """Read a document, checking all of it; a checksum, where given, must be that of the text.

        >>> PublishedPolicy.from_text('{"format": 2}')
        Traceback (most recent call last):
        pasto_sdk.errors.PolicyError: format is 2 and only 1 can be read here; upgrade pasto to read a newer one
        """
        return cls._of(read_policy(text, checksum))

    @classmethod
    def _of(cls, document: PolicyDocument) -> PublishedPolicy:
        named = {
            name: Bucket("none", index, name, values, 0, 0.0) for index, (name, values) in document.candidates.items()
        }
        return cls(
            study=document.study,
            version=document.version,
            round=document.round,
            state=document.state,
            mode=document.mode,
            salt=document.salt,
            baseline=named[document.candidates[document.baseline][0]],
            named=MappingProxyType(named),
            cells=document.cells,
            valid_from=document.valid_from,
            expires_after=document.expires_after,
            signed=document.signed,
            text=document.text,
            checksum=document.checksum,
        )

    def draw(self, unit: str) -> Bucket:
        """The unit's cell: the same for the same unit, wherever and whenever it is asked.

        A unit is a string of 1 to 256 characters.
        """
        try:
            encoded = unit.encode()
            hashed = self._start.copy()
            hashed.update(encoded)
            if not 0 < len(unit) <= LONGEST:
                raise _refusal(unit)
        except (AttributeError, TypeError, UnicodeEncodeError):
            raise _refusal(unit) from None
        entry = self._entries[bisect_right(self._cuts, _first_64_bits(hashed.digest())[0] >> _SPARE)]
        return entry if isinstance(entry, Bucket) else _winner(entry, encoded)

    def draw_many(self, units: Iterable[str]) -> list[Bucket]:
        """The cell of each unit, in their order."""
        draw = self.draw
        return [draw(unit) for unit in units]

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, PublishedPolicy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __reduce__(self) -> tuple[object, ...]:
        return PublishedPolicy.from_text, (self.text, self.checksum)

    def __repr__(self) -> str:
        return f"<Published {self.study!r} version {self.version}: {self.state}, {self.mode}, {len(self.cells)} cells>"


def _arms(cells: Iterable[Bucket], start: Hash) -> tuple[Bucket | tuple[StickyCandidate, ...], ...]:
    """Each arm as its runners, or as its cell where it has but one."""
    arms: list[Bucket | tuple[StickyCandidate, ...]] = []
    for _, group in groupby(cells, lambda cell: cell.arm):
        own = tuple(group)
        arms.append(own[0] if len(own) == 1 else tuple(_runner(cell, start) for cell in own))
    return tuple(arms)


def _runner(cell: Bucket, start: Hash) -> StickyCandidate:
    hashed = start.copy()
    hashed.update(cell.name.encode() + b"\0")
    return StickyCandidate(hashed, float(cell.width), cell)


def _width(entry: Bucket | tuple[StickyCandidate, ...]) -> int:
    return entry.width if isinstance(entry, Bucket) else sum(runner.cell.width for runner in entry)


def _winner(runners: tuple[StickyCandidate, ...], unit: bytes) -> Bucket:
    """Who wins the unit within an arm: each candidate's chance is its width's part of the arm's."""
    best, winner = inf, runners[0]
    for runner in runners:
        hashed = runner.start.copy()
        hashed.update(unit)
        score = -log(((_first_64_bits(hashed.digest())[0] >> _SPARE) + 0.5) / _WHOLE) / runner.width
        if score < best:
            best, winner = score, runner
    return winner.cell


def _refusal(unit: object) -> InputError:
    """Why a unit cannot be drawn for."""
    if not isinstance(unit, str):
        return InputError(f"a unit must be a string, got {unit!r} ({type(unit).__name__}); use str(...) on a number")
    if not unit:
        return InputError("a unit must have at least one character, got ''; leave out units that nobody can name")
    if len(unit) > LONGEST:
        return InputError(
            f"a unit may have {LONGEST} characters, got {len(unit)} ({unit[:20]!r}...); use a hash of it instead"
        )
    return InputError(f"the unit {unit!r} holds half a surrogate pair, which no text may; decode it as UTF-8 first")


TOLERANCE = 1e-9
"""How far from one the shares may sum."""

_SCALE = 1074
"""Every float is a whole multiple of 2^−1074."""


def publish_policy(
    *,
    study: str,
    version: int,
    round: int,
    state: str,
    mode: Literal["shuffled", "sticky"],
    salt: str,
    candidates: Candidates,
    baseline: int,
    shares: Sequence[tuple[str, int, float]],
    valid_from: float,
    expires_after: float,
    signed: bool = False,
) -> PublishedPolicy:
    """Publish shares of traffic, (arm, candidate, share) each, as an immutable policy.

    Shares sum to one; zero shares are left out, and any positive one is given at least one part of 2^53. The document
    holds the candidates that are served, and the baseline. With `signed`, it asks for signed exposures.

    >>> policy = publish_policy(study="feed", version=3, round=3, state="deployed", mode="sticky", salt="feed",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("blend", 0, 0.5), ("blend", 1, 0.25)],
    ...                  valid_from=0, expires_after=86400)
    >>> [(cell.arm, cell.name, cell.propensity) for cell in policy.cells]
    [('control', 'a', 0.25), ('blend', 'a', 0.5), ('blend', 'b', 0.25)]
    """
    for arm, candidate, share in shares:
        _check(arm, candidate, share, candidates)
    served = [(arm, candidate, share) for arm, candidate, share in shares if share > 0]
    total = math.fsum(share for _, _, share in served)
    if not abs(total - 1) <= TOLERANCE:
        raise PolicyError(f"the shares must sum to one, and these {len(served)} sum to {total!r}; divide them by it")
    if baseline not in candidates:
        raise PolicyError(f"baseline is {baseline!r}, which is not among the candidates")
    until = 0
    cells = []
    for (arm, candidate, _), width in zip(served, bucket_widths([share for _, _, share in served]), strict=True):
        until += width
        cells.append({"arm": arm, "candidate": int(candidate), "until": until})
    kept = sorted({baseline, *(candidate for _, candidate, _ in served)})
    document = {
        "format": FORMAT,
        "study": study,
        "version": version,
        "round": round,
        "state": state,
        "mode": mode,
        "salt": salt,
        "baseline": baseline,
        "candidates": [
            {"index": index, "name": candidates[index][0], "values": dict(candidates[index][1])} for index in kept
        ],
        "cells": cells,
        "valid_from": valid_from,
        "expires_after": expires_after,
        **({"signed": True} if signed else {}),
    }
    try:
        text = write_policy(document)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"the policy cannot be written as JSON: {error}") from error
    return PublishedPolicy.from_text(text)


def bucket_widths(shares: Sequence[float]) -> list[int]:
    """Whole numbers that sum to 2^53, each at least 1 and within one of its share of it: largest remainders first.

    Exact and the same everywhere, for it counts in whole numbers only; equal remainders go in the order given. Only
    shares below 2^−53, which are raised to one part each, can cost the others more than one.

    >>> [width / BUCKET_TOTAL for width in bucket_widths([0.5, 0.25, 0.25])]
    [0.5, 0.25, 0.25]
    >>> sum(bucket_widths([1 / 3, 1 / 3, 1 / 3])) == BUCKET_TOTAL
    True
    """
    exact = []
    for share in shares:
        numerator, denominator = float(share).as_integer_ratio()
        exact.append(numerator * (2**_SCALE // denominator))
    total = sum(exact)
    parts = [max(1, part * BUCKET_TOTAL // total) for part in exact]
    # By how much each falls short of what it should have, in units of 1/total: below zero where it was raised to 1.
    short = [part * BUCKET_TOTAL - width * total for part, width in zip(exact, parts, strict=True)]
    missing = BUCKET_TOTAL - sum(parts)
    if missing >= 0:
        for place in sorted(range(len(parts)), key=lambda place: -short[place])[:missing]:
            parts[place] += 1
        return parts
    while missing:
        givers = sorted((place for place in range(len(parts)) if parts[place] > 1), key=lambda place: short[place])
        for place in givers[:-missing]:
            parts[place] -= 1
            missing += 1
    return parts


def _check(arm: object, candidate: object, share: object, candidates: Mapping[int, object]) -> None:
    place = f"the share of candidate {candidate!r} in arm {arm!r}"
    if candidate not in candidates:
        raise PolicyError(f"{place} names a candidate that is not among the {len(candidates)} given")
    if isinstance(share, bool) or not isinstance(share, (int, float)):
        raise PolicyError(f"{place} must be a number, got {share!r}")
    if not 0 <= share <= 1 + TOLERANCE:
        raise PolicyError(f"{place} must lie between 0 and 1, got {share!r}")
