"""The pure step: a learner's state and what rounds measured give the next state and its policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import fsum
from typing import Any

from pasto.errors import MeasurementError, PastoError
from pasto.records import Observation
from pasto.study import Study
from pasto.study.state import write_format_2


@dataclass(frozen=True, slots=True)
class RoundObservations:
    """What one round measured."""

    round: int
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Correction:
    """What a step does about rounds that were learned before it and are not final."""

    again: tuple[RoundObservations, ...] = ()
    """All of them in order, as they are known now, where any of them is corrected; none where nothing is."""
    settled: tuple[RoundObservations, ...] = ()
    """The oldest of them, which are final from now on while others are not."""
    ended: bool = True
    """Whether none of them stays open."""
    final: int | None = None
    """How many of the step's own lessons nothing can correct, the first ones; None means all."""


NOTHING = Correction()


@dataclass(frozen=True, slots=True)
class LearnerUpdate:
    """A study after a step."""

    study: Study
    text: str
    """Its state."""
    problems: tuple[str, ...] = ()
    """What could not be learned, in sentences."""

    @property
    def checksum(self) -> str:
        """SHA-256 of the state."""
        return sha256(self.text.encode()).hexdigest()

    def has_checksum(self, checksum: str) -> bool:
        """Return whether a checksum is that of the state, in the form of today or of an older version."""
        if checksum == self.checksum:
            return True
        older = _written(write_format_2(json.loads(self.text)))
        return checksum == sha256(older.encode()).hexdigest()


def initial_update(study: Study) -> LearnerUpdate:
    """A study before its first step."""
    return LearnerUpdate(study, _text(study))


def load_update(text: str) -> LearnerUpdate:
    """A study as it was saved."""
    return LearnerUpdate(Study.from_state(json.loads(text)), text)


def update_learner(text: str, lessons: Sequence[RoundObservations], revision: Correction = NOTHING) -> LearnerUpdate:
    """Learn from each round in turn; the study then has a policy of a new version, whatever happens.

    Equal arguments give an equal state, bit for bit. A round that no unit of the learner saw teaches nothing. Rounds
    that are corrected are learned anew first, under the policies that were served in them. Where the learner fails, its
    state stays what it was before, and where it cannot even propose, the last policy's probabilities are served under
    the new version: a study never stands still because of one round.

    >>> import json, pasto
    >>> from pasto.records import Observation
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
    >>> seen = [Observation(0, k, units=100, mean=(float(k),), covariance=((0.01,),)) for k in (0, 1)]
    >>> after = update_learner(json.dumps(study.state()), [RoundObservations(1, tuple(seen)), RoundObservations(2, ())])
    >>> after.study.rounds, after.problems
    (1, ('round 2 had no units of the learner, so it taught nothing',))
    """
    problems: list[str] = []
    before = json.loads(text)["version"]
    study = Study.from_state(json.loads(text))
    if revision != NOTHING or study.correctable:
        study, text = _revised(study, text, revision, problems)
    final = len(lessons) if revision.final is None else revision.final
    for place, lesson in enumerate(lessons):
        if all(seen.control for seen in lesson.observations):
            problems.append(f"round {lesson.round} had no units of the learner, so it taught nothing")
            continue
        try:
            study.observe(lesson.observations, final=place < final)
            text = _text(study)
        except (MemoryError, OSError):  # the machine's trouble, not the learner's: the close is tried again
            raise
        except Exception as error:  # whatever a learner does, the study must go on serving
            problems.append(f"round {lesson.round} could not be learned: {_told(error)}")
            study = Study.from_state(json.loads(text))
    if study.policy.version == before:
        try:
            study.publish()
            text = _text(study)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            problems.append(f"no new policy could be proposed: {_told(error)}; the last one is kept")
            text = _written(_republished(json.loads(text)))
            study = Study.from_state(json.loads(text))
    return LearnerUpdate(study, text, tuple(problems))


def _revised(study: Study, text: str, revision: Correction, problems: list[str]) -> tuple[Study, str]:
    """The study after corrections, without what can no longer be corrected; as it was, where its learner fails."""
    try:
        if revision.again:
            study.rewind()
        for lesson in revision.again:
            _relearn(study, lesson, problems)
        for lesson in revision.settled:
            if lesson.observations and study.correctable[:1] == (lesson.observations[0].version,):
                study.settle(lesson.observations)
        if revision.ended:
            study.settle_all()
        return study, _text(study)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        problems.append(f"learned rounds could not be corrected: {_told(error)}; they are final now")
        study = Study.from_state(json.loads(text))
        study.settle_all()
        return study, _text(study)


def _relearn(study: Study, lesson: RoundObservations, problems: list[str]) -> None:
    if all(seen.control for seen in lesson.observations):
        return
    try:
        study.observe(lesson.observations, final=False, publish=False)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # the others are still learned
        problems.append(f"round {lesson.round} could not be learned again: {_told(error)}")


def _told(error: Exception) -> str:
    """Our own errors are sentences for people; of others the kind says more than the text."""
    return str(error) if isinstance(error, PastoError) else f"{type(error).__name__}: {error}"


def _text(study: Study) -> str:
    """A study's state as text, if its policy can be served."""
    shares = study.policy.probabilities
    if not all(share >= 0 for share in shares) or not abs(fsum(shares) - 1.0) <= 1e-9:
        raise MeasurementError(f"the learner's policy is no distribution: it sums to {fsum(shares)!r}")
    return _written(study.state())


def _written(state: dict[str, Any]) -> str:
    return json.dumps(state, separators=(",", ":"), allow_nan=False)


def _republished(state: dict[str, Any]) -> dict[str, Any]:
    """The same state with its current policy once more, under the next version."""
    shares = dict(state["policies"])[state["version"]]
    version = state["version"] + 1
    return {**state, "version": version, "policies": [*state["policies"], [version, shares]]}
