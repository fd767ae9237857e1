"""Round history: the rounds and looks of a study as its closes recorded them, each read once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pasto.inference.round_data import CellKey, CellTable, MeasuredRound
from pasto.service.close_record import CloseRecord
from pasto.store import CloseRow, Store
from pasto_sdk.policy_document import BUCKET_TOTAL, current_arm

PAGE_CLOSES = 20
"""Closes that are read at a time: each holds all measurements of its rounds."""
MAX_NUMBERS = 1_500_000
"""Numbers that one report reads; of a study with more, it reads the latest rounds."""
MAX_ROUNDS = 1_000
"""Rounds that one report reads."""


@dataclass(frozen=True, slots=True)
class InterimLook:
    """Measurement of a phase in which units keep their arm, at one of its looks; each unit is one row."""

    round: int
    version: int
    """Version of the policy that the phase serves."""
    state: str
    elapsed: float
    """Length of the phase until the look, in rounds."""
    at: float
    measured: MeasuredRound


@dataclass(frozen=True, slots=True)
class RoundHistory:
    """Measurements of all closes of one study."""

    rounds: tuple[MeasuredRound, ...]
    """Learning rounds in order; the latest ones of a long study."""
    looks: tuple[InterimLook, ...]
    """Looks at confirming and deployed phases, in order."""


class RoundHistoryReader:
    """Reader that caches the measurements of closes: a close is written once and never changes.

    It starts at the last close and goes back only as far as a report needs, so that a page of a study with ten
    thousand rounds does not read all of them.
    """

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self._after: int | None = None
        """Last close that was read; None before the first read."""
        self._rounds: dict[int, MeasuredRound] = {}
        self._looks: list[InterimLook] = []
        self._lock = Lock()

    def read(self, last: int) -> RoundHistory:
        """Return the measurements so far; `last` is the study's open round."""
        with self._lock:
            if self._after is None:
                self._after = self._read_back(last)
            while closes := self._store.list_closes(self._study, after=self._after, limit=PAGE_CLOSES):
                for close in closes:
                    rounds, look = self._read_close(close)
                    self._rounds |= rounds
                    self._looks += look
                    self._after = close.round
                self._rounds = {measured.version: measured for measured in latest(self._in_order())}
            return RoundHistory(tuple(self._in_order()), tuple(self._looks))

    def _read_back(self, last: int) -> int:
        """Read closes from the last one back until a report has enough; return the round of the last one."""
        end = 0
        until = last
        while until > 0:
            first = max(1, until - PAGE_CLOSES + 1)
            closes = self._store.list_closes(self._study, after=first - 1, limit=until - first + 1)
            for close in reversed(closes):
                end = max(end, close.round)
                rounds, look = self._read_close(close)
                self._rounds = {**rounds, **self._rounds}  # a later measurement replaces an earlier one
                self._looks = [*look, *self._looks]
            ordered = self._in_order()
            if len(recent := latest(ordered)) < len(ordered):
                self._rounds = {measured.version: measured for measured in recent}
                break
            until = first - 1
        return end

    def _in_order(self) -> list[MeasuredRound]:
        return [self._rounds[number] for number in sorted(self._rounds)]

    def _read_close(self, close: CloseRow) -> tuple[dict[int, MeasuredRound], list[InterimLook]]:
        record = CloseRecord.from_text(close.record)
        rounds = {
            entry.round: MeasuredRound(entry.round, self._shares(entry.round), entry.cells.table())
            for entry in record.measured
            if entry.round not in self._rounds or self._after is not None
        }
        look = record.look
        if look is None:
            return rounds, []
        measured = MeasuredRound(close.version, self._shares(close.version), look.cells.table())
        return rounds, [InterimLook(close.round, close.version, record.state, look.elapsed, close.closed_at, measured)]

    def _shares(self, version: int) -> Mapping[CellKey, float]:
        policy = self._store.read_policy(self._study, version)
        return {} if policy is None else shares(json.loads(policy.document))


def shares(document: Mapping[str, Any]) -> dict[CellKey, float]:
    """Return the shares of a published policy by arm and candidate.

    >>> half = 2**52
    >>> shares({"cells": [{"arm": "control", "candidate": 4, "until": half},
    ...                   {"arm": "learner", "candidate": 4, "until": 2 * half}]})
    {('control', 4): 0.5, ('learner', 4): 0.5}
    """
    totals: dict[CellKey, float] = {}
    before = 0
    for cell in document["cells"]:
        key, until = (current_arm(cell["arm"]), cell["candidate"]), cell["until"]
        share = (until - before) / BUCKET_TOTAL
        totals[key] = totals[key] + share if key in totals else share
        before = until
    return totals


def latest(rounds: Sequence[MeasuredRound]) -> Sequence[MeasuredRound]:
    """Return the latest rounds that have at most `MAX_NUMBERS` numbers together."""
    keys: set[CellKey] = set()
    width = max((_width(measured) for measured in rounds), default=1)
    for count, measured in enumerate(reversed(rounds[-MAX_ROUNDS:])):
        keys.update(measured.shares)
        if count and (count + 1) * len(keys) * width * (width + 1) > MAX_NUMBERS:
            return rounds[len(rounds) - count :]
    return rounds[-MAX_ROUNDS:]


def _width(measured: MeasuredRound) -> int:
    if isinstance(measured.cells, CellTable):
        return int(measured.cells.mean.shape[1])
    return max((len(cell.mean) for cell in measured.cells), default=1)
