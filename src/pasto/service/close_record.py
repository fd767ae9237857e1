"""Close record: everything that a round close stores besides its row, with one reader and one writer of its JSON.

A thousand candidates with ten columns are a hundred thousand numbers a round, and a replay needs each of them to the
last bit. `StoredCells` packs them if they are many: symmetric halves are stored once, and the result is compressed.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.inference.round_data import CellMoments, CellTable, join_cells
from pasto.inference.sender_departure import Departure, SenderEvidence
from pasto.metrics import Moments
from pasto.report.records import ArmVerdict, ClosedRoundRecord, RoundShortage
from pasto.service.ramp import RecordedRamp
from pasto.service.study_file.edit import RecordedEdit
from pasto.store import CloseRow
from pasto_sdk.policy_document import RENAMED_ARMS, current_arm

FORMAT = 3
"""Format of the JSON that is written; records without a number have format 1."""
MIN_PACKED_NUMBERS = 500
"""Numbers of a round from which on its cells are packed."""
TOTALED_ARMS = ("control", "learner")
"""Arms whose total stays readable in packed cells."""
OWN_TABLES = "own tables"
"""Engine of a close that measured a team's own tables."""
GROUPINGS = ("keys", "sources")
"""Ways to group senders: by API key, and by the name that they send."""

CellDocument = Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""Cells of a round in JSON: a list of cells, or one packed object."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredCells:
    """Cells of a round in the form that a close stores; each reading method decodes only its part.

    >>> cell = Moments("learner", 0, 2, (2.0,), ((2.0,),), (0,))
    >>> StoredCells.from_moments([cell]).document
    [{'arm': 'learner', 'candidate': 0, 'units': 2, 'mean': (2.0,), 'cross': ((2.0,),), 'clipped': (0,)}]
    >>> cells = StoredCells.from_moments([cell] * 2_000)
    >>> cells.moments() == (cell,) * 2_000, cells.count_units()
    (True, 4000)
    """

    document: CellDocument

    @classmethod
    def from_moments(cls, cells: Sequence[Moments]) -> StoredCells:
        """Encode cells; `moments` returns them bit for bit."""
        width = len(cells[0].mean) if cells else 0
        if len(cells) * width * (width + 1) < MIN_PACKED_NUMBERS:
            return cls(list(map(_write_cell, cells)))
        mean, cross = np.array([cell.mean for cell in cells]), np.array([cell.cross for cell in cells])
        members = [cell.member_cross for cell in cells if cell.member_cross is not None]
        products = [cross, np.array(members)] if len(members) == len(cells) else [cross]
        exact = np.isfinite(mean).all() and all(
            np.array_equal(part, part.transpose(0, 2, 1)) and np.isfinite(part).all() for part in products
        )
        if not exact:  # the JSON writer rejects a number that is not finite
            return cls(list(map(_write_cell, cells)))
        names = sorted({cell.arm for cell in cells})
        rows = [[names.index(cell.arm), cell.candidate, cell.units, *cell.clipped] for cell in cells]
        counts = np.array(rows, dtype="<i8").T
        upper = np.triu_indices(width)
        halves = [part[:, upper[0], upper[1]] for part in products]
        numbers = np.concatenate([mean, *halves], axis=1).T.astype("<f8")
        packed = zlib.compress(_split_bytes(counts) + _split_bytes(numbers), 1)
        table = CellTable(tuple(cell.arm for cell in cells), counts[1], counts[2].astype(float), mean, cross)
        totals = {arm: total for arm in TOTALED_ARMS if (total := table.join_arm(arm)) is not None}
        return cls(
            {
                "cells": len(cells),
                "columns": width,
                "names": names,
                "units": int(counts[2].sum()),
                "clipped": counts[3:].sum(axis=1).tolist(),
                "totals": {
                    arm: [total.candidate, total.units, list(total.mean), [list(line) for line in total.cross]]
                    for arm, total in totals.items()
                },
                "packed": b64encode(packed).decode(),
            }
        )

    def moments(self) -> tuple[Moments, ...]:
        """Return the cells as they were measured."""
        if not isinstance(self.document, Mapping):
            return tuple(map(_read_cell, self.document))
        arms, counts, mean, (cross, *members) = _unpack(self.document)
        return tuple(
            Moments(
                arm,
                candidate,
                units,
                tuple(cell_mean),
                tuple(map(tuple, cell_cross)),
                tuple(clipped),
                tuple(map(tuple, member_cross[0])) if member_cross else None,
            )
            for arm, candidate, units, cell_mean, cell_cross, clipped, *member_cross in zip(
                arms,
                counts[1].tolist(),
                counts[2].tolist(),
                mean.tolist(),
                cross.tolist(),
                counts[3:].T.tolist(),
                *(part.tolist() for part in members),
                strict=True,
            )
        )

    def table(self) -> CellTable:
        """Return the cells as arrays, for readers of many rounds."""
        if not isinstance(self.document, Mapping):
            return CellTable.from_cells(tuple(map(_read_cell, self.document)))
        arms, counts, mean, products = _unpack(self.document)
        return CellTable(arms, counts[1], counts[2].astype(float), mean, *products)

    def count_units(self) -> int:
        """Return the number of units in all cells."""
        if isinstance(self.document, Mapping):
            return int(self.document["units"])
        return sum(cell["units"] for cell in self.document)

    def count_clipped(self) -> list[int]:
        """Return by column the units whose number was cut to the declared range; [] without cells."""
        if isinstance(self.document, Mapping):
            return list(self.document["clipped"])
        return [sum(column) for column in zip(*(cell["clipped"] for cell in self.document), strict=True)]

    def total(self, arm: str) -> CellMoments | None:
        """Return all units of the arm "control" or "learner" as one cell; None if it had no units."""
        if not isinstance(self.document, Mapping):
            return join_cells(arm, list(map(_read_cell, self.document)))
        total = self.document["totals"].get(arm)
        if total is None:
            return None
        candidate, units, mean, cross = total
        return CellMoments(arm, candidate, units, tuple(mean), tuple(map(tuple, cross)))


@dataclass(frozen=True, slots=True)
class SenderTotals:
    """Units, sums and departure evidence of one sender."""

    units: int
    sums: tuple[float, ...]
    """Over units, by column."""
    evidence: SenderEvidence
    departed: int | None = None
    """Round whose close found that the sender departs from the others."""


@dataclass(frozen=True, slots=True)
class SenderRecord:
    """Totals of all senders of a study after a close, by key and by source."""

    groups: Mapping[str, Mapping[str, SenderTotals]] = field(default_factory=lambda: {kind: {} for kind in GROUPINGS})
    places: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPINGS, 0))
    """Number of senders so far, including removed ones, by kind."""
    is_phase: bool = False
    """True if the last look was at a phase in which units keep their arm."""

    @property
    def departed(self) -> set[tuple[str, str]]:
        """Senders that depart from the others, with their kind."""
        return {
            (kind, name)
            for kind, senders in self.groups.items()
            for name, totals in senders.items()
            if totals.departed is not None
        }


@dataclass(frozen=True, slots=True)
class NextPhase:
    """State of a study after a close, with the options of that state."""

    state: str
    split: Mapping[str, float] | None = None
    """Shares of the arms in a confirmation; None for equal shares."""
    hold: str = "blend"
    """Served policy of a paused study: "blend" or "baseline"."""
    horizon: float | None = None
    """Time at which a confirmation is judged, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round that a close measured: a matured one that it learned, or a corrected one."""

    round: int
    learner_version: int
    """Version of the learner's own policy that the round served."""
    after: int
    """Sequence number before the round's first event."""
    cells: StoredCells
    seconds: float | None = None
    """Time that the round was served; None in records without it."""
    is_correctable: bool = False
    """True if a later close may correct the round."""
    is_accepted: bool = False
    """True if a person had the round learned despite missing events."""


@dataclass(frozen=True, slots=True)
class HeldRound:
    """A matured round that a close did not learn because events seem to be missing."""

    round: int
    findings: tuple[RoundShortage, ...]


@dataclass(frozen=True, slots=True)
class FinalRound:
    """A round that no later close corrects, with the span of its events in the log."""

    round: int
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class RecordedLook:
    """Measurement of a phase in which units keep their arm, from its start to the close."""

    elapsed: float
    """Length of the phase so far, in rounds."""
    cells: StoredCells


@dataclass(frozen=True, slots=True)
class CloseRecord:
    """Inputs, measurements, guardrail verdicts and next phase of one round close.

    >>> record = CloseRecord("learning", learns=False, engine="sqlite", next_phase=NextPhase("paused"))
    >>> CloseRecord.from_text(record.to_text()) == record
    True
    """

    state: str
    """State of the study in the closed round."""
    learns: bool
    """True if the close asked the learner for a new policy."""
    engine: str
    """Database dialect that measured the rounds, or `OWN_TABLES`."""
    next_phase: NextPhase
    rounds: tuple[RecordedRound, ...] = ()
    """Matured rounds that the close learned."""
    corrected: tuple[RecordedRound, ...] = ()
    """Rounds that were learned before and are measured again because of late events."""
    held: tuple[HeldRound, ...] = ()
    final: tuple[FinalRound, ...] = ()
    """Rounds that are not correctable any more from this close on."""
    look: RecordedLook | None = None
    uses_covariates: bool = False
    """True if the learner used the covariates of the rounds; False in records older than that."""
    senders: SenderRecord | None = None
    verdicts: tuple[ArmVerdict, ...] | None = None
    """Verdict on each guardrail; None in records older than the guardrail monitor."""
    method: int | None = None
    """Number of the method that gathered the evidence for the verdicts."""
    problems: tuple[str, ...] = ()
    ramp: RecordedRamp | None = None
    """Ramp of the enrolment after the close; None in a study without one."""
    edit: RecordedEdit | None = None
    """Edit that ended the round; the next round ran under the edited study file."""
    holdout: int = 0
    """Holdout that the close read, in millionths of the hash line; the next policy leaves it out."""
    arithmetic: str | None = None
    """Kind of arithmetic that computed the close; None in records older than that."""

    @property
    def measured(self) -> tuple[RecordedRound, ...]:
        """Learned and corrected rounds; a later entry of the same round replaces an earlier one."""
        return (*self.rounds, *self.corrected)

    @property
    def correctable_rounds(self) -> set[int]:
        """Numbers of the learned rounds that a later close may correct."""
        return {entry.round for entry in self.rounds if entry.is_correctable}

    @property
    def final_rounds(self) -> set[int]:
        """Numbers of the rounds that are final from this close on."""
        return {entry.round for entry in self.final}

    def to_text(self) -> str:
        """Encode the record as JSON; empty parts are left out."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "state": self.state,
            "learns": self.learns,
            "engine": self.engine,
            "next_phase": asdict(self.next_phase),
            "problems": list(self.problems),
            "rounds": list(map(_write_round, self.rounds)),
        }
        if self.verdicts is not None:
            document |= {"verdicts": list(map(asdict, self.verdicts)), "method": self.method}
        if self.corrected:
            document["corrected"] = list(map(_write_round, self.corrected))
        if self.held:
            document["held"] = list(map(asdict, self.held))
        if self.final:
            document["final"] = list(map(asdict, self.final))
        if self.uses_covariates:
            document["uses_covariates"] = True
        if self.ramp is not None:
            document["ramp"] = asdict(self.ramp)
        if self.edit is not None:
            document["edit"] = asdict(self.edit)
        if self.holdout:
            document["holdout"] = self.holdout
        if self.arithmetic is not None:
            document["arithmetic"] = self.arithmetic
        if self.senders is not None:
            document["senders"] = _write_senders(self.senders)
        if self.look is not None:
            document["look"] = {"elapsed": self.look.elapsed, "cells": self.look.cells.document}
        return json.dumps(document, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> CloseRecord:
        """Decode a record that any release wrote."""
        document = json.loads(text)
        if (format_ := document.get("format", 1)) == 1:
            document = _upgrade_format_1(document)
        if format_ < 3:
            document = _upgrade_format_2(document)
        look, senders, verdicts = document.get("look"), document.get("senders"), document.get("verdicts")
        return cls(
            state=document["state"],
            learns=document["learns"],
            engine=document["engine"],
            next_phase=NextPhase(**document["next_phase"]),
            rounds=tuple(map(_read_round, document["rounds"])),
            corrected=tuple(map(_read_round, document.get("corrected", ()))),
            held=tuple(
                HeldRound(entry["round"], tuple(RoundShortage(**finding) for finding in entry["findings"]))
                for entry in document.get("held", ())
            ),
            final=tuple(FinalRound(**entry) for entry in document.get("final", ())),
            look=None if look is None else RecordedLook(look["elapsed"], StoredCells(look["cells"])),
            uses_covariates=document.get("uses_covariates", False),
            senders=None if senders is None else _read_senders(senders),
            verdicts=None if verdicts is None else tuple(ArmVerdict(**verdict) for verdict in verdicts),
            method=document.get("method"),
            problems=tuple(document["problems"]),
            ramp=None if "ramp" not in document else RecordedRamp.from_saved(document["ramp"]),
            edit=None if "edit" not in document else RecordedEdit.from_saved(document["edit"]),
            holdout=document.get("holdout", 0),
            arithmetic=document.get("arithmetic"),
        )


@dataclass(frozen=True, slots=True)
class CloseSummary(ClosedRoundRecord):
    """Answer to a request to close a round: the closed round of a study."""

    study: str
    closed: bool
    """False if another request closed the round before."""


def describe_closed_round(close: CloseRow) -> ClosedRoundRecord:
    """Return a closed round: its state, what it learned and the next policy."""
    record = CloseRecord.from_text(close.record)
    return ClosedRoundRecord(
        round=close.round,
        version=close.version,
        next_version=close.next_version,
        state=record.state,
        next_state=record.next_phase.state,
        learned_from=tuple(entry.round for entry in record.rounds),
        corrected=tuple(entry.round for entry in record.corrected),
        held=tuple(entry.round for entry in record.held),
        units=sum(entry.cells.count_units() for entry in record.rounds),
        interim_units=None if record.look is None else record.look.cells.count_units(),
        verdicts=record.verdicts or (),
        problems=record.problems,
        high_water=close.high_water,
        learner_checksum=close.learner_checksum,
        closed_at=close.closed_at,
    )


def summarize_close(study: str, close: CloseRow, *, closed: bool) -> CloseSummary:
    """Return the answer to a request to close a round."""
    closed_round = describe_closed_round(close)
    values = {part.name: getattr(closed_round, part.name) for part in fields(closed_round)}
    return CloseSummary(**values, study=study, closed=closed)


def _upgrade_format_1(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of format 1 with the names of format 2."""
    names = {"next": "next_phase", "settled": "final", "breaker": "verdicts"}
    upgraded = {names.get(name, name): part for name, part in document.items()}
    for kind in ("rounds", "corrected"):
        if kind in upgraded:
            upgraded[kind] = [_upgrade_round(entry) for entry in upgraded[kind]]
    if "look" in upgraded:
        look = upgraded["look"]
        upgraded["look"] = {"elapsed": look["elapsed"], "cells": _upgrade_cells(look["moments"])}
    return upgraded


def _upgrade_round(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = {"learned": "learner_version", "moments": "cells", "open": "is_correctable", "accepted": "is_accepted"}
    upgraded = {names.get(name, name): part for name, part in entry.items()}
    return {**upgraded, "cells": _upgrade_cells(upgraded["cells"])}


def _upgrade_cells(document: CellDocument) -> CellDocument:
    if not isinstance(document, Mapping):
        return document
    return {("totals" if name == "whole" else name): part for name, part in document.items()}


def _upgrade_format_2(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document of format 2 with the present names of arms."""
    upgraded = dict(document)
    for kind in ("rounds", "corrected"):
        if kind in upgraded:
            upgraded[kind] = [{**entry, "cells": _rename_arms(entry["cells"])} for entry in upgraded[kind]]
    if "look" in upgraded:
        upgraded["look"] = {**upgraded["look"], "cells": _rename_arms(upgraded["look"]["cells"])}
    if upgraded.get("verdicts") is not None:
        upgraded["verdicts"] = [{**verdict, "arm": current_arm(verdict["arm"])} for verdict in upgraded["verdicts"]]
    if (split := upgraded["next_phase"].get("split")) is not None:
        split = {current_arm(arm): share for arm, share in split.items()}
        upgraded["next_phase"] = {**upgraded["next_phase"], "split": split}
    if "senders" in upgraded:
        groups = {
            kind: {name: _rename_sender_arms(totals) for name, totals in senders.items()}
            for kind, senders in upgraded["senders"]["groups"].items()
        }
        upgraded["senders"] = {**upgraded["senders"], "groups": groups}
    return upgraded


def _rename_arms(document: CellDocument) -> CellDocument:
    """Return cells with the present names of arms, sorted by them as an engine sorts what it measures."""
    arms = document["names"] if isinstance(document, Mapping) else [cell["arm"] for cell in document]
    if RENAMED_ARMS.keys().isdisjoint(arms):
        return document
    cells = [replace(cell, arm=current_arm(cell.arm)) for cell in StoredCells(document).moments()]
    return StoredCells.from_moments(sorted(cells, key=lambda cell: (cell.arm, cell.candidate))).document


def _rename_sender_arms(totals: Mapping[str, Any]) -> dict[str, Any]:
    evidence = totals["evidence"]
    departure = evidence["departure"]
    if departure is not None and departure["cell"] is not None:
        departure = {**departure, "cell": _rename_cell(departure["cell"])}
    cells = [_rename_cell(cell) for cell in evidence["cells"]]
    return {**totals, "evidence": {**evidence, "cells": cells, "departure": departure}}


def _rename_cell(cell: Sequence[Any]) -> list[Any]:
    arm, candidate = cell
    return [current_arm(arm), candidate]


def _write_round(entry: RecordedRound) -> dict[str, Any]:
    document: dict[str, Any] = {
        "round": entry.round,
        "learner_version": entry.learner_version,
        "after": entry.after,
        "seconds": entry.seconds,
        "cells": entry.cells.document,
        "is_correctable": entry.is_correctable,
        "is_accepted": entry.is_accepted,
    }
    return {name: part for name, part in document.items() if part is not None and part is not False}


def _read_round(document: Mapping[str, Any]) -> RecordedRound:
    return RecordedRound(**{**document, "cells": StoredCells(document["cells"])})


def _write_senders(record: SenderRecord) -> dict[str, Any]:
    """Return the record as plain JSON; numbers have nine digits."""
    groups = {
        kind: {name: _round_numbers(asdict(totals)) for name, totals in senders.items()}
        for kind, senders in record.groups.items()
    }
    return {"groups": groups, "places": dict(record.places), "is_phase": record.is_phase}


def _read_senders(document: Mapping[str, Any]) -> SenderRecord:
    groups = {
        kind: {name: _read_totals(totals) for name, totals in senders.items()}
        for kind, senders in document["groups"].items()
    }
    return SenderRecord(groups, document["places"], document["is_phase"])


def _read_totals(document: Mapping[str, Any]) -> SenderTotals:
    saved = document["evidence"]
    departure = saved["departure"]
    if departure is not None:
        cell = departure["cell"]
        departure = Departure(**{**departure, "cell": None if cell is None else (cell[0], cell[1])})
    evidence = SenderEvidence(
        place=saved["place"],
        looks=saved["looks"],
        share_evidence=saved["share_evidence"],
        cells=tuple((arm, candidate) for arm, candidate in saved["cells"]),
        units=tuple(saved["units"]),
        sums=tuple(tuple(map(tuple, cell)) for cell in saved["sums"]),
        level=tuple(map(tuple, saved["level"])),
        # Records of earlier releases have no recent sums.
        recent_units=tuple(saved.get("recent_units", ())),
        recent_sums=tuple(tuple(map(tuple, cell)) for cell in saved.get("recent_sums", ())),
        recent_level=tuple(map(tuple, saved.get("recent_level", ()))),
        departure=departure,
    )
    return SenderTotals(document["units"], tuple(document["sums"]), evidence, document["departed"])


def _round_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _round_numbers(inner) for key, inner in value.items()}
    return [_round_numbers(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _write_cell(cell: Moments) -> dict[str, Any]:
    document = asdict(cell)
    if cell.member_cross is None:
        del document["member_cross"]
    return document


def _read_cell(document: Mapping[str, Any]) -> Moments:
    cross, member_cross = tuple(map(tuple, document["cross"])), document.get("member_cross")
    return Moments(
        document["arm"],
        document["candidate"],
        document["units"],
        tuple(document["mean"]),
        cross,
        tuple(document["clipped"]),
        None if member_cross is None else tuple(map(tuple, member_cross)),
    )


def _unpack(
    document: Mapping[str, Any],
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return arms (cells), counts (3 + columns, cells), means (cells, columns), products (cells, columns, columns).

    If the units are clusters, there are products of their members, too.
    """
    count, width = document["cells"], document["columns"]
    data = zlib.decompress(b64decode(document["packed"]))
    rows = 3 + width
    end = 8 * rows * count
    counts = _join_bytes(data[:end], "<i8").reshape(rows, count)
    numbers = _join_bytes(data[end:], "<f8").reshape(-1, count).T
    upper = np.triu_indices(width)
    products = []
    for half in np.split(numbers[:, width:], (numbers.shape[1] - width) // len(upper[0]), axis=1):
        cross = np.empty((count, width, width))
        cross[:, upper[0], upper[1]] = cross[:, upper[1], upper[0]] = half
        products.append(cross)
    names = document["names"]
    arms = tuple(names[code] for code in counts[0].tolist())
    return arms, counts.astype(np.int64), np.ascontiguousarray(numbers[:, :width]), products


def _split_bytes(values: NDArray[Any]) -> bytes:
    """Return all first bytes, then all second bytes, and so on: similar neighbours compress well."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T.tobytes()


def _join_bytes(data: bytes, kind: str) -> NDArray[Any]:
    return np.frombuffer(data, np.uint8).reshape(8, -1).T.copy().view(kind).ravel()
