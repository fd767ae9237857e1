"""What a study's present state needs beside its row: rounds ripening or open to correction, and what was frozen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pasto.records import Blend, Certificate
from pasto.store import StudyRow


@dataclass(frozen=True, slots=True)
class MissingData:
    """Why a round is held back instead of learned, and what a person decided about it."""

    findings: tuple[Mapping[str, Any], ...]
    """What was expected of which metric, and what came."""
    until: int
    """The last event that was in the log when this was found."""
    resolution: str | None = None
    """"learn" it as it is or "discard" it, at the next close; None until a person says so."""


@dataclass(frozen=True, slots=True)
class MaturingRound:
    """A learning round that has ended and is not learned yet: its events may still be on their way."""

    round: int
    """Which is also the version of the policy that was served in it."""
    learned: int
    """The version of the learner's own policy."""
    after: int
    """None of its events has a smaller sequence."""
    closed_at: float
    seconds: float | None = None
    """How long it was served; None in a study that was last closed before this was recorded."""
    missing: MissingData | None = None
    """Set while it is held back because events seem to be missing."""

    @property
    def is_held(self) -> bool:
        """Whether only a person, or events that come late, let it be learned."""
        return self.missing is not None and self.missing.resolution is None

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> MaturingRound:
        """Return what a study's details hold."""
        missing = saved.get("missing")
        if missing is not None:
            missing = MissingData(**{**missing, "findings": tuple(missing["findings"])})
        return cls(**{**saved, "missing": missing})


@dataclass(frozen=True, slots=True)
class CorrectableRound:
    """A learning round that was learned, and is learned anew when late events come."""

    waiting: MaturingRound
    """As it was before."""
    until: int
    """The last event that may be in what is known of it."""
    told: int
    """The round whose close recorded what is known of it."""


@dataclass(frozen=True, slots=True)
class FrozenBlend:
    """The answer that is being confirmed or deployed."""

    blend: tuple[tuple[int, float], ...]
    """Candidates and their probabilities."""
    single: int | None
    """The best single candidate; None where no arm is given to one."""
    certified: bool
    split: Mapping[str, float]
    """The arms' shares of traffic while it is confirmed."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """The whole blend, to be shown."""


@dataclass(frozen=True, slots=True)
class GuardrailStatus:
    """What the breaker knows of a study."""

    since: int = 0
    """The first round that counts: those before a person re-armed it do not."""
    verdicts: tuple[Mapping[str, Any], ...] = ()
    """What it last said, guardrail by guardrail."""
    tripped: Mapping[str, Any] | None = None
    """When and why it pulled traffic, until a person resumes the study."""
    carried: Mapping[str, Any] | None = None
    """What it has gathered, to go on from; None in a study that was last closed before this was kept."""


@dataclass(frozen=True, slots=True)
class StudyState:
    """Everything beside the row.

    >>> details = StudyState(waiting=(MaturingRound(round=3, learned=2, after=90, closed_at=7200.0),))
    >>> StudyState.from_text(details.to_text()) == details
    True
    """

    waiting: tuple[MaturingRound, ...] = ()
    paused_from: str | None = None
    frozen: FrozenBlend | None = None
    horizon: float | None = None
    """When a confirmation is to be judged, in seconds since 1970; None judges it at any look."""
    breaker: GuardrailStatus = GuardrailStatus()
    correctable: tuple[CorrectableRound, ...] = ()
    identity: str | None = None
    """What the policies' salts and the archive's folder are named after; None for the name in the study file.

    Studies that have had one name, one after another, are told apart by it: it never changes.
    """

    def to_text(self) -> str:
        """As the store keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_text(cls, text: str) -> StudyState:
        """What `to_text` wrote; an empty object is a study without any."""
        saved = json.loads(text)
        frozen = saved.get("frozen")
        if frozen is not None:
            frozen = FrozenBlend(**{**frozen, "blend": tuple((int(k), float(share)) for k, share in frozen["blend"])})
        breaker = saved.get("breaker") or {}
        return cls(
            waiting=tuple(map(MaturingRound.from_saved, saved.get("waiting", ()))),
            paused_from=saved.get("paused_from"),
            frozen=frozen,
            horizon=saved.get("horizon"),
            breaker=GuardrailStatus(**{**breaker, "verdicts": tuple(breaker.get("verdicts", ()))}),
            correctable=tuple(
                CorrectableRound(**{**one, "waiting": MaturingRound.from_saved(one["waiting"])})
                for one in saved.get("correctable", ())
            ),
            identity=saved.get("identity"),
        )


def identity_of(row: StudyRow) -> str:
    """Return what a study's salts and its archive are named after, whatever its name is now.

    >>> identity_of(StudyRow("feed@1", 1, 9, "archived", '{"name":"feed"}', 7, 3, 3, 0.0, 0.0))
    'feed'
    """
    return StudyState.from_text(row.details).identity or str(json.loads(row.document)["name"])


def blend_document(blend: Blend) -> dict[str, Any]:
    """A blend with names for numbers.

    >>> import pasto
    >>> blend = pasto.solve({"x": [2, 0], "y": [-2, 2]}, pasto.maximize("x").keep("y", at_least=0))
    >>> answer = blend_document(blend)
    >>> answer["probabilities"], answer["prices"], answer["single"]
    ({'0': 0.5, '1': 0.5}, {'y': 0.5}, '1')
    """
    names = blend.names
    told = {
        "probabilities": {names[k]: blend.probabilities[k] for k in blend.support},
        "value": blend.value,
        "metrics": blend.metrics,
        "lifts": blend.lifts,
        "prices": blend.prices,
        "feasible": blend.feasible,
        "shortfalls": blend.shortfalls,
        "single": None if blend.best_single is None else names[blend.best_single],
        "single_value": blend.best_single_value,
        "gain": {**asdict(blend.gain), "candidate": names[blend.gain.candidate]},
        "certificate": None if blend.certificate is None else asdict(blend.certificate),
        "outlook": None,
    }
    if blend.outlook is not None:
        moves = [{**asdict(move), "candidate": names[move.candidate]} for move in blend.outlook.moves]
        told["outlook"] = {**asdict(blend.outlook), "moves": moves}
    plain: dict[str, Any] = _plain(told)
    return plain


def with_joint_bound(answer: Mapping[str, Any] | None, hard: Sequence[str]) -> dict[str, Any] | None:
    """Return an answer whose certificate also names the hard guardrails, with a bound for all of them together.

    An answer that was frozen before this was shown gets it too.

    >>> answer = {"certificate": {"confidence": 0.95, "certified": True, "holds": {"a": 0.97, "b": 0.96}}}
    >>> found = with_joint_bound(answer, ["a", "b"])["certificate"]
    >>> found["hard"], round(found["joint_lower_bound"], 12)
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
    """The same as JSON has it: lists for tuples, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
