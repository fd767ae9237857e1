"""Study state: the part of a study's present state that its row stores as JSON, such as its maturing rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pasto.blend import Blend, Certificate, Outlook
from pasto.report.records import (
    ArmVerdict,
    BlendRecord,
    CertificateRecord,
    GainRecord,
    LearningForecastRecord,
    MoveRecord,
    OutlookRecord,
    PauseRecord,
    RoundShortage,
    finite,
    read_record,
)
from pasto.report.summary import write_advice
from pasto.service.ramp import RampState
from pasto.service.study_file.edit import FieldChange, StudyEdit
from pasto.store import StudyRow
from pasto_sdk.policy_document import RENAMED_ARMS, current_arm

MAX_LISTED_EDITS = 50
"""Edits that the state of a study lists."""
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
    answer: BlendRecord | None = None
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
    edits: tuple[StudyEdit, ...] = ()
    """Latest edits of the running study, oldest first; the audit log has all."""
    first_edited: int | None = None
    """Round whose close recorded the first edit, and with it the study file until then."""
    slices_since: int | None = None
    """First version whose policy fixes the units that take part by slices of the hash, with a salt without a version.

    None in studies that earlier releases started: each of their policies draws the units outside again, as an arm.
    """
    ramp: RampState | None = None
    """Step of the enrolment; None in a study without a ramp."""

    holdout: int = 0
    """Part of the hash line that the served policy leaves out for the holdout, in millionths."""
    holdout_since: float | None = None
    """Time at which the first policy with this holdout was published."""

    @property
    def held_rounds(self) -> set[int]:
        """Numbers of the rounds that are held because events seem to be missing."""
        return {entry.round for entry in self.waiting if entry.is_held}

    def with_holdout(self, holdout: int, version: int, now: float) -> StudyState:
        """Return the state if the policy of a version leaves out this holdout.

        A holdout needs slices: a study of an earlier release gets them with the first one.
        """
        if holdout == self.holdout:
            return self
        since = version if self.slices_since is None else self.slices_since
        return replace(self, holdout=holdout, holdout_since=now, slices_since=since)

    def with_edit(self, edit: StudyEdit) -> StudyState:
        """Return the state after an edit."""
        first = edit.round if self.first_edited is None else self.first_edited
        return replace(self, edits=(*self.edits, edit)[-MAX_LISTED_EDITS:], first_edited=first)

    def frozen_answer(self, hard: Sequence[str]) -> BlendRecord | None:
        """Return the frozen blend as a report shows it, with a bound for all hard guardrails; None without one."""
        if self.frozen is None or self.frozen.answer is None:
            return None
        return with_joint_bound(self.frozen.answer, hard)

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
            parts = tuple((int(k), float(share)) for k, share in frozen["blend"])
            answer = read_record(frozen["answer"], BlendRecord) if frozen.get("answer") else None
            frozen = FrozenBlend(**{**frozen, "blend": parts, "answer": answer})
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
            edits=tuple(
                StudyEdit(**{**edit, "changes": tuple(FieldChange(**change) for change in edit["changes"])})
                for edit in saved.get("edits", ())
            ),
            first_edited=saved.get("first_edited"),
            slices_since=saved.get("slices_since"),
            ramp=None if saved.get("ramp") is None else RampState(**saved["ramp"]),
            holdout=saved.get("holdout", 0),
            holdout_since=saved.get("holdout_since"),
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


def describe_blend(blend: Blend, round_seconds: float | None = None) -> BlendRecord:
    """Return a blend with candidates by name, and with the advice of its outlook in words.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> record = describe_blend(blend)
    >>> record.probabilities, record.prices, record.best_single
    ({'0': 0.5, '1': 0.5}, {'y': 0.5}, '1')
    """
    names, gain = blend.names, blend.gain
    return BlendRecord(
        probabilities={names[k]: blend.probabilities[k] for k in blend.support},
        value=finite(blend.value),
        metrics=_finite_numbers(blend.metrics),
        lifts=_finite_numbers(blend.lifts),
        prices=_finite_numbers(blend.prices),
        feasible=blend.feasible,
        shortfalls=_finite_numbers(blend.shortfalls),
        best_single=None if blend.best_single is None else names[blend.best_single],
        best_single_value=finite(blend.best_single_value),
        gain=GainRecord(names[gain.candidate], finite(gain.value), finite(gain.goal), _finite_numbers(gain.violations)),
        certificate=None if blend.certificate is None else _describe_certificate(blend.certificate),
        outlook=None if blend.outlook is None else _describe_outlook(blend.outlook, blend, round_seconds),
    )


def with_joint_bound(blend: BlendRecord, hard: Sequence[str]) -> BlendRecord:
    """Return a blend whose certificate also lists the hard guardrails, with a bound for all of them together.

    It also upgrades blends that were frozen without this bound.

    >>> certificate = CertificateRecord(0.95, True, {"a": 0.97, "b": 0.96})
    >>> blend = BlendRecord({}, 0.0, {}, {}, {}, True, {}, None, None, GainRecord("a", 0.0, 0.0), certificate)
    >>> certificate = with_joint_bound(blend, ["a", "b"]).certificate
    >>> certificate.hard, round(certificate.joint_lower_bound, 12)
    (('a', 'b'), 0.93)
    """
    certificate = blend.certificate
    if certificate is None:
        return blend
    holds = {name: chance or 0.0 for name, chance in certificate.holds.items()}
    named = tuple(name for name in hard if name in holds)
    bound = Certificate(certificate.confidence, certificate.certified, holds, {}).joint_lower_bound(named)
    return replace(blend, certificate=replace(certificate, hard=named, joint_lower_bound=bound if named else None))


def _describe_certificate(certificate: Certificate) -> CertificateRecord:
    return CertificateRecord(
        certificate.confidence,
        certificate.certified,
        _finite_numbers(certificate.holds),
        {name: (finite(low), finite(high)) for name, (low, high) in certificate.intervals.items()},
        dict(certificate.understated_errors),
    )


def _describe_outlook(outlook: Outlook, blend: Blend, round_seconds: float | None) -> OutlookRecord:
    names = blend.names
    moves = tuple(
        MoveRecord(names[move.candidate], finite(move.change), _finite_numbers(move.metrics)) for move in outlook.moves
    )
    return OutlookRecord(
        gain=finite(outlook.gain),
        worth=finite(outlook.worth),
        advice=write_advice(blend, round_seconds),
        decision=outlook.decision,
        deploy_rounds=outlook.deploy_rounds,
        round_cost=finite(outlook.round_cost),
        forecasts=tuple(
            LearningForecastRecord(each.rounds, finite(each.gain), finite(each.cost), finite(each.net))
            for each in outlook.forecasts
        ),
        equal_single=None if outlook.equal_single is None else names[outlook.equal_single],
        moves=moves,
    )


def _finite_numbers(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite(number) for name, number in numbers.items()}
