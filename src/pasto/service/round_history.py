"""A study's rounds as its closes recorded them, each read once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pasto.inference.round_data import CellTable, Key, MeasuredRound
from pasto.service.close_record import table_of
from pasto.service.rounds.guardrail_check import judged_round
from pasto.store import CloseRow, Store
from pasto_sdk.policy_document import BUCKET_TOTAL

PAGE = 20
"""Closes that are read at a time: each holds all that its rounds measured."""
MOST_NUMBERS = 1_500_000
"""Numbers that one report goes through; of a study with more, it reads the latest rounds."""
MOST_ROUNDS = 1_000
"""Rounds that one report goes through."""


@dataclass(frozen=True, slots=True)
class InterimLook:
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
class RoundHistory:
    """Everything that closes have measured of one study."""

    rounds: tuple[MeasuredRound, ...]
    """Learning rounds in order; of very many, the latest ones."""
    looks: tuple[InterimLook, ...]
    """At confirming and deployed phases, in order."""


class RoundHistoryReader:
    """Reads what closes measured, and remembers it: a close is written once and never changes.

    It begins at the end, and goes back no further than a report looks: a study of ten thousand rounds is not read
    through because somebody opened its page.
    """

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self._after: int | None = None
        """The last close that was read; None before the first."""
        self._rounds: dict[int, MeasuredRound] = {}
        self._looks: list[InterimLook] = []
        self._lock = Lock()

    def read(self, last: int) -> RoundHistory:
        """What has been measured so far; `last` is the study's open round."""
        with self._lock:
            if self._after is None:
                self._after = self._read_back(last)
            while closes := self._store.list_closes(self._study, after=self._after, limit=PAGE):
                for close in closes:
                    rounds, look = self._told(close)
                    self._rounds |= rounds
                    self._looks += look
                    self._after = close.round
                self._rounds = {one.version: one for one in latest(self._in_order())}
            return RoundHistory(tuple(self._in_order()), tuple(self._looks))

    def _read_back(self, last: int) -> int:
        """Closes from the last one back to where a report has enough; which the last one was."""
        end = 0
        until = last
        while until > 0:
            first = max(1, until - PAGE + 1)
            closes = self._store.list_closes(self._study, after=first - 1, limit=until - first + 1)
            for close in reversed(closes):
                end = max(end, close.round)
                rounds, look = self._told(close)
                self._rounds = {**rounds, **self._rounds}  # what was measured later is what is known
                self._looks = [*look, *self._looks]
            ordered = self._in_order()
            if len(kept := latest(ordered)) < len(ordered):
                self._rounds = {one.version: one for one in kept}
                break
            until = first - 1
        return end

    def _in_order(self) -> list[MeasuredRound]:
        return [self._rounds[number] for number in sorted(self._rounds)]

    def _told(self, close: CloseRow) -> tuple[dict[int, MeasuredRound], list[InterimLook]]:
        told = json.loads(close.record)
        rounds = {
            one["round"]: MeasuredRound(one["round"], self._shares(one["round"]), table_of(one["moments"]))
            for one in (*told["rounds"], *told.get("corrected", ()))
            if one["round"] not in self._rounds or self._after is not None
        }
        look = told.get("look")
        if not look:
            return rounds, []
        measured = MeasuredRound(close.version, self._shares(close.version), table_of(look["moments"]))
        return rounds, [
            InterimLook(close.round, close.version, told["state"], look["elapsed"], close.closed_at, measured)
        ]

    def _shares(self, version: int) -> Mapping[Key, float]:
        policy = self._store.read_policy(self._study, version)
        return {} if policy is None else shares(json.loads(policy.document))


def judged_rounds(store: Store, study: int) -> list[MeasuredRound]:
    """All learning rounds as the breaker sees them, each with what was last measured of it, in order."""
    found: dict[int, MeasuredRound] = {}
    after = 0
    while closes := store.list_closes(study, after=after, limit=PAGE):
        for close in closes:
            told = json.loads(close.record)
            for one in (*told["rounds"], *told.get("corrected", ())):
                found[one["round"]] = judged_round(one["round"], table_of(one["moments"]), one.get("seconds"))
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
        key, until = (cell["arm"], cell["candidate"]), cell["until"]
        share = (until - before) / BUCKET_TOTAL
        found[key] = found[key] + share if key in found else share
        before = until
    return found


def latest(rounds: Sequence[MeasuredRound]) -> Sequence[MeasuredRound]:
    """The rounds from the end that are not too many numbers together."""
    keys: set[Key] = set()
    width = max((_width(one) for one in rounds), default=1)
    for count, one in enumerate(reversed(rounds[-MOST_ROUNDS:])):
        keys.update(one.shares)
        if count and (count + 1) * len(keys) * width * (width + 1) > MOST_NUMBERS:
            return rounds[len(rounds) - count :]
    return rounds[-MOST_ROUNDS:]


def _width(one: MeasuredRound) -> int:
    if isinstance(one.cells, CellTable):
        return int(one.cells.mean.shape[1])
    return max((len(cell.mean) for cell in one.cells), default=1)
