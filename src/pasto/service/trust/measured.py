"""A study's rounds as its closes recorded them, each read once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from pasto.assign import WHOLE
from pasto.report.measured import Key, MeasuredRound
from pasto.service.trust.breaker import judged_round
from pasto.store import CloseRow, Store

PAGE = 200
FEW = 20
"""Closes that are read at a time where none of them is kept."""
MOST_NUMBERS = 5_000_000
"""Numbers that one report goes through; of a study with more, it reads the latest rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One cell of a round as a close recorded it, in arrays: a long study has many."""

    arm: str
    candidate: int
    units: int
    mean: Any
    """(columns,)."""
    cross: Any
    """(columns, columns)."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a phase in which units keep their arm had measured by one of its looks: a unit is one row."""

    round: int
    version: int
    """Of the policy that the phase serves."""
    state: str
    elapsed: float
    """How long the phase had run, in rounds."""
    at: float
    measured: MeasuredRound


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that closes have measured of one study."""

    rounds: tuple[MeasuredRound, ...]
    """Learning rounds in order; of very many, the latest ones."""
    looks: tuple[Look, ...]
    """At confirming and deployed phases, in order."""


class Reader:
    """Reads what closes measured, and remembers it: a close is written once and never changes."""

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self._after = 0
        self._rounds: list[MeasuredRound] = []
        self._looks: list[Look] = []
        self._lock = Lock()

    def read(self) -> Measured:
        """What has been measured so far."""
        with self._lock:
            while closes := self._store.closes(self._study, after=self._after, limit=PAGE):
                for close in closes:
                    self._take(close)
                    self._after = close.round
                self._rounds = list(latest(self._rounds))
            return Measured(tuple(self._rounds), tuple(self._looks))

    def _take(self, close: CloseRow) -> None:
        told = json.loads(close.observed)
        for one in told["rounds"]:
            found = cells(one["moments"])
            self._rounds.append(MeasuredRound(one["round"], self._shares(one["round"]), found))
        if look := told.get("look"):
            measured = MeasuredRound(close.version, self._shares(close.version), cells(look["moments"]))
            self._looks.append(
                Look(close.round, close.version, told["state"], look["elapsed"], close.closed_at, measured)
            )

    def _shares(self, version: int) -> Mapping[Key, float]:
        policy = self._store.policy(self._study, version)
        return {} if policy is None else shares(json.loads(policy.text))


def judged_rounds(store: Store, study: int) -> list[MeasuredRound]:
    """All learning rounds as the breaker sees them, each with what was last measured of it, in order."""
    found: dict[int, MeasuredRound] = {}
    after = 0
    while closes := store.closes(study, after=after, limit=FEW):
        for close in closes:
            told = json.loads(close.observed)
            for one in (*told["rounds"], *told.get("corrected", ())):
                found[one["round"]] = judged_round(one["round"], cells(one["moments"]))
        after = closes[-1].round
    return [found[number] for number in sorted(found)]


def shares(document: Mapping[str, Any]) -> dict[Key, float]:
    """A published policy's shares by arm and candidate.

    >>> half = 2**52
    >>> shares({"cells": [{"arm": "control", "candidate": 4, "until": half},
    ...                   {"arm": "learner", "candidate": 4, "until": 2 * half}]})
    {('control', 4): 0.5, ('learner', 4): 0.5}
    """
    found: dict[Key, float] = {}
    before = 0
    for cell in document["cells"]:
        key = cell["arm"], cell["candidate"]
        found[key] = found.get(key, 0.0) + (cell["until"] - before) / WHOLE
        before = cell["until"]
    return found


def cells(written: Sequence[Mapping[str, Any]]) -> tuple[Cell, ...]:
    """Cells as a close wrote them down."""
    return tuple(
        Cell(one["arm"], one["candidate"], one["units"], np.array(one["mean"]), np.array(one["cross"]))
        for one in written
    )


def latest(rounds: Sequence[MeasuredRound]) -> Sequence[MeasuredRound]:
    """The rounds from the end that are not too many numbers together."""
    keys: set[Key] = set()
    width = max((len(cell.mean) for one in rounds for cell in one.cells), default=1)
    for count, one in enumerate(reversed(rounds)):
        keys |= set(one.shares)
        if count and (count + 1) * len(keys) * width * (width + 1) > MOST_NUMBERS:
            return rounds[len(rounds) - count :]
    return rounds
