"""Study state: the part of a study's present state that its row stores as JSON, such as its maturing rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pasto.records import Blend, Certificate
from pasto.report.records import ArmVerdict, PauseRecord, RoundShortage
from pasto.store import StudyRow
from pasto_sdk.policy_document import RENAMED_ARMS, current_arm

FORMAT = 3
"""Format of the JSON that is written; texts without a number have format 1."""


@dataclass(frozen=True, slots=True)
class MissingData:
    """Reason why a round is held instead of learned, with the decision of a person about it."""

    findings: tuple[RoundShortage, ...]
    until: int
    """Last event in the log at the time of the check."""
    resolution: str | None = None
    """Decision that the next close applies: "learn" or "discard"; None until a person decides."""


@dataclass(frozen=True, slots=True)
class MaturingRound:
    """A learning round that has ended and is not learned yet: some of its events may still arrive."""

    round: int
    """Also the version of the policy that the round served."""
    learned: int
    """Version of the learner's own policy."""
    after: int
    """Sequence number before the round's first event."""
    closed_at: float
    seconds: float | None = None
    """Time that the round was served; None in states without it."""
    missing: MissingData | None = None
    """Set while the round is held because events seem to be missing."""

    @property
    def is_held(self) -> bool:
        """True if only late events or a person's decision make the round learnable."""
        return self.missing is not None and self.missing.resolution is None

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> MaturingRound:
        """Decode a round from the JSON of a study state."""
        missing = saved.get("missing")
        if missing is not None:
            findings = tuple(RoundShortage(**finding) for finding in missing["findings"])
            missing = MissingData(**{**missing, "findings": findings})
        return cls(**{**saved, "missing": missing})


@dataclass(frozen=True, slots=True)
class CorrectableRound:
    """A learning round that was learned, and is learned again if late events arrive."""

    waiting: MaturingRound
    """The round before it was learned."""
    until: int
    """Last event that its measurement may contain."""
    recorded_by: int
    """Round whose close recorded the latest measurement."""


@dataclass(frozen=True, slots=True)
class FrozenBlend:
    """The blend that is being confirmed or deployed."""

    blend: tuple[tuple[int, float], ...]
    """Candidates and their probabilities."""
    best_single: int | None
    """The best single candidate; None if it has no arm."""
    certified: bool
    split: Mapping[str, float]
    """Shares of the arms in the confirmation."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The blend as a report shows it."""


@dataclass(frozen=True, slots=True)
class GuardrailStatus:
    """State of a study's guardrail monitor after its last close."""

    since: int = 0
    """First round that counts as evidence: a person re-armed the monitor before it."""
    verdicts: tuple[ArmVerdict, ...] = ()
    """Latest verdict on each guardrail."""
    tripped: PauseRecord | None = None
    """Pause that the monitor caused; None after a person resumes the study."""
    carried: Mapping[str, Any] | None = None
    """Evidence for the next close to continue from; None in states older than this field."""


@dataclass(frozen=True, slots=True)
class StudyState:
    """Present state of a study besides the columns of its row.

    >>> state = StudyState(waiting=(MaturingRound(round=3, learned=2, after=90, closed_at=7200.0),))
    >>> StudyState.from_text(state.to_text()) == state
    True
    """

    waiting: tuple[MaturingRound, ...] = ()
    paused_from: str | None = None
    frozen: FrozenBlend | None = None
    horizon: float | None = None
    """Time at which a confirmation is judged, in seconds since 1970; None judges it at any look."""
    guardrail_monitor: GuardrailStatus = GuardrailStatus()
    correctable: tuple[CorrectableRound, ...] = ()
    identity: str | None = None
    """Name in the policies' salts and in the archive's folder; None for the name in the study file.

    It never changes, and it distinguishes studies that had the same name one after another.
    """

    @property
    def held_rounds(self) -> set[int]:
        """Numbers of the rounds that are held because events seem to be missing."""
        return {entry.round for entry in self.waiting if entry.is_held}

    def to_text(self) -> str:
        """Encode the state as the JSON that the store holds."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> StudyState:
        """Decode a state that any release wrote; an empty object is a study without any."""
        saved = json.loads(text)
        if (format_ := saved.get("format", 1)) == 1:
            saved["correctable"] = [_rename(entry, {"told": "recorded_by"}) for entry in saved.get("correctable", ())]
        if format_ < 3:
            saved = _upgrade_format_2(saved)
        frozen = saved.get("frozen")
        if frozen is not None:
            frozen = FrozenBlend(**{**frozen, "blend": tuple((int(k), float(share)) for k, share in frozen["blend"])})
        status = saved.get("guardrail_monitor") or {}
        verdicts = tuple(ArmVerdict(**verdict) for verdict in status.get("verdicts", ()))
        tripped = status.get("tripped")
        return cls(
            waiting=tuple(map(MaturingRound.from_saved, saved.get("waiting", ()))),
            paused_from=saved.get("paused_from"),
            frozen=frozen,
            horizon=saved.get("horizon"),
            guardrail_monitor=GuardrailStatus(
                **{**status, "verdicts": verdicts, "tripped": None if tripped is None else PauseRecord(**tripped)}
            ),
            correctable=tuple(
                CorrectableRound(**{**entry, "waiting": MaturingRound.from_saved(entry["waiting"])})
                for entry in saved["correctable"]
            ),
            identity=saved.get("identity"),
        )


def _upgrade_format_2(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of format 2 with the names of format 3."""
    upgraded = _rename(saved, {"breaker": "guardrail_monitor"})
    if (frozen := upgraded.get("frozen")) is not None:
        frozen = _rename(frozen, {"single": "best_single"})
        answer = _rename(frozen.get("answer", {}), {"single": "best_single", "single_value": "best_single_value"})
        upgraded["frozen"] = {**frozen, "split": _rename(frozen["split"], RENAMED_ARMS), "answer": answer}
    if status := upgraded.get("guardrail_monitor"):
        verdicts = [{**verdict, "arm": current_arm(verdict["arm"])} for verdict in status.get("verdicts", ())]
        upgraded["guardrail_monitor"] = {**status, "verdicts": verdicts}
    return upgraded


def _rename(saved: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): part for name, part in saved.items()}


def identity_of(row: StudyRow) -> str:
    """Return the name in a study's salts and archive folder, which stays if the study is renamed.

    >>> identity_of(StudyRow("feed@1", 1, 9, "archived", '{"name":"feed"}', 7, 3, 3, 0.0, 0.0))
    'feed'
    """
    return StudyState.from_text(row.details).identity or str(json.loads(row.study_file)["name"])


def blend_document(blend: Blend) -> dict[str, Any]:
    """Return a blend in JSON, with candidates by name.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> answer = blend_document(blend)
    >>> answer["probabilities"], answer["prices"], answer["best_single"]
    ({'0': 0.5, '1': 0.5}, {'y': 0.5}, '1')
    """
    names = blend.names
    document: dict[str, Any] = {
        "probabilities": {names[k]: blend.probabilities[k] for k in blend.support},
        "value": blend.value,
        "metrics": blend.metrics,
        "lifts": blend.lifts,
        "prices": blend.prices,
        "feasible": blend.feasible,
        "shortfalls": blend.shortfalls,
        "best_single": None if blend.best_single is None else names[blend.best_single],
        "best_single_value": blend.best_single_value,
        "gain": {**asdict(blend.gain), "candidate": names[blend.gain.candidate]},
        "certificate": None if blend.certificate is None else asdict(blend.certificate),
        "outlook": None,
    }
    if blend.outlook is not None:
        moves = [{**asdict(move), "candidate": names[move.candidate]} for move in blend.outlook.moves]
        document["outlook"] = {**asdict(blend.outlook), "moves": moves}
    plain: dict[str, Any] = _plain(document)
    return plain


def with_joint_bound(answer: Mapping[str, Any] | None, hard: Sequence[str]) -> dict[str, Any] | None:
    """Return an answer whose certificate also lists the hard guardrails, with a bound for all of them together.

    It also upgrades answers that were frozen without this bound.

    >>> answer = {"certificate": {"confidence": 0.95, "certified": True, "holds": {"a": 0.97, "b": 0.96}}}
    >>> certificate = with_joint_bound(answer, ["a", "b"])["certificate"]
    >>> certificate["hard"], round(certificate["joint_lower_bound"], 12)
    (['a', 'b'], 0.93)
    """
    if answer is None or not answer.get("certificate"):
        return None if answer is None else dict(answer)
    certificate = answer["certificate"]
    holds = {name: chance or 0.0 for name, chance in certificate["holds"].items()}
    named = [name for name in hard if name in holds]
    bound = Certificate(certificate["confidence"], certificate["certified"], holds, {}).joint_lower_bound(named)
    return {
        **answer,
        "certificate": {**certificate, "hard": named, "joint_lower_bound": bound if named else None},
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: lists for tuples, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
