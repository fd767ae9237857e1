"""Learner step: a pure function from a learner's state and measured rounds to its next state and policy."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import fsum
from typing import Any

import numpy as np
from scipy import special
from scipy.linalg import lapack

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError, PastoError
from pasto.metrics import Moments
from pasto.metrics.moments import Matrix
from pasto.observation import Observation
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound
from pasto.study import Study
from pasto.study.state import write_format_2

NUMERIC_PACKAGES = ("numpy", "scipy", "scikit-learn", "clarabel")
"""Packages that compute what a learner learns."""
PROBE_SIZES = (3, 17, 160)
"""Sizes of the probe's matrices: kernels of linear algebra differ by size."""


@dataclass(frozen=True, slots=True)
class RoundObservations:
    """Observations of one round."""

    round: int
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Correction:
    """Changes of a step to rounds that were learned before it and are not final."""

    again: tuple[RoundObservations, ...] = ()
    """All of these rounds in order with their latest observations, if any is corrected; otherwise none."""
    settled: tuple[RoundObservations, ...] = ()
    """The oldest ones, which are final from now on while others are not."""
    ended: bool = True
    """True if no round stays correctable."""
    final: int | None = None
    """Number of the step's first rounds that are final at once; None means all."""


NOTHING = Correction()


@dataclass(frozen=True, slots=True)
class LearnerUpdate:
    """The study after a step, and the text of its state."""

    study: Study
    text: str
    problems: tuple[str, ...] = ()
    """Sentences about rounds that could not be learned."""

    @property
    def checksum(self) -> str:
        """SHA-256 of the state."""
        return sha256(self.text.encode()).hexdigest()

    def has_checksum(self, checksum: str) -> bool:
        """Return whether a checksum is that of the state, in the form of today or of an older version."""
        if checksum == self.checksum:
            return True
        older = _write_state(write_format_2(json.loads(self.text)))
        return checksum == sha256(older.encode()).hexdigest()


@cache
def identify_arithmetic() -> str:
    """Return the kind of arithmetic that this process computes with.

    Two processes with equal texts compute equal bits. Others may differ in the last digits of a number: OpenBLAS and
    NumPy choose their code by the processor, and other versions compute in another order. So the text names machine and
    versions, and ends with a hash of fixed computations, which no list of processors could replace.
    """
    versions = [f"{package} {_find_version(package)}" for package in NUMERIC_PACKAGES]
    probe = b"".join(np.ascontiguousarray(part).tobytes() for part in _compute_probe())
    return ", ".join([platform.machine(), *versions, f"probe {sha256(probe).hexdigest()[:16]}"])


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _compute_probe() -> list[FloatArray]:
    """Return results of the operations that learners are made of, about 20 milliseconds of work."""
    points = np.arange(1.0, 1538.0) / 512.0
    waves = np.cos(np.outer(np.arange(1.0, 10.0), points))
    few = points[::16].tolist()
    parts: list[Any] = [np.exp(-points), np.log(points), np.power(points, 1.7), np.tanh(points)]
    parts += [points.sum(), points @ points, waves @ waves.T, [point**1.7 for point in few]]
    parts += [special.ndtr(points - 1.5), special.ndtri(points / 3.1), special.erfcx(points), special.log_ndtr(-points)]
    parts += [list(map(function, few)) for function in (math.exp, math.log, math.sin, math.lgamma, math.erf)]
    for size in PROBE_SIZES:
        some = points[:: len(points) // size][:size]
        matrix = np.exp(-np.abs(some[:, None] - some)) + np.eye(size)
        parts += [matrix @ matrix, matrix @ some, np.einsum("ij,jk,k->i", matrix, matrix, some, optimize=True)]
        parts += [np.linalg.cholesky(matrix), np.linalg.inv(matrix), np.linalg.solve(matrix, some)]
        parts += [*np.linalg.eigh(matrix), lapack.dgesv(matrix, some)[2]]
    return [np.asarray(part, dtype=np.float64) for part in parts]


def initial_update(study: Study) -> LearnerUpdate:
    """Return a study with the text of its state, before a step."""
    return LearnerUpdate(study, _state_text(study))


def update_learner(
    before: LearnerUpdate, lessons: Sequence[RoundObservations], correction: Correction = NOTHING
) -> LearnerUpdate:
    """Learn from each round in turn and propose a policy of a new version; the study `before` does not change.

    Equal arguments give an equal state, bit for bit. A round without units of the learner is skipped. Corrected rounds
    are learned again first, under the policies that were served in them. If the learner fails on a round, its state
    stays as it was before the round. If it cannot propose a policy, the last probabilities get the new version, so
    that one round never stops a study.

    >>> import pasto
    >>> from pasto.observation import Observation
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
    >>> cells = [Observation(0, k, units=100, mean=(float(k),), covariance=((0.01,),)) for k in (0, 1)]
    >>> rounds = [RoundObservations(1, tuple(cells)), RoundObservations(2, ())]
    >>> after = update_learner(initial_update(study), rounds)
    >>> after.study.rounds, after.problems
    (1, ('round 2 had no units of the learner, so it taught nothing',))
    """
    problems: list[str] = []
    study, text = before.study.copy(), before.text
    if correction != NOTHING or study.correctable:
        study, text = _correct(study, text, correction, problems)
    final = len(lessons) if correction.final is None else correction.final
    for place, lesson in enumerate(lessons):
        if all(cell.control for cell in lesson.observations):
            problems.append(f"round {lesson.round} had no units of the learner, so it taught nothing")
            continue
        try:
            study.observe(lesson.observations, final=place < final)
            text = _state_text(study)
        except (MemoryError, OSError):  # a failure of the machine, not of the learner: the close is tried again
            raise
        except Exception as error:  # the study must go on serving
            problems.append(f"round {lesson.round} could not be learned: {_describe_error(error)}")
            study = Study.from_state(json.loads(text))
    if study.policy.version == before.study.policy.version:
        try:
            study.publish()
            text = _state_text(study)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            problems.append(f"no new policy could be proposed: {_describe_error(error)}; the last one is kept")
            text = _write_state(_republish(json.loads(text)))
            study = Study.from_state(json.loads(text))
    return LearnerUpdate(study, text, tuple(problems))


def _correct(study: Study, text: str, correction: Correction, problems: list[str]) -> tuple[Study, str]:
    """Return the study after its corrections and final rounds; without corrections if its learner fails."""
    try:
        if correction.again:
            study.rewind()
        for lesson in correction.again:
            _relearn(study, lesson, problems)
        for lesson in correction.settled:
            if lesson.observations and study.correctable[:1] == (lesson.observations[0].version,):
                study.settle(lesson.observations)
        if correction.ended:
            study.settle_all()
        return study, _state_text(study)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        problems.append(f"learned rounds could not be corrected: {_describe_error(error)}; they are final now")
        study = Study.from_state(json.loads(text))
        study.settle_all()
        return study, _state_text(study)


def _relearn(study: Study, lesson: RoundObservations, problems: list[str]) -> None:
    if all(cell.control for cell in lesson.observations):
        return
    try:
        study.observe(lesson.observations, final=False, publish=False)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # the others are still learned
        problems.append(f"round {lesson.round} could not be learned again: {_describe_error(error)}")


def round_observations(
    spec: StudySpec, entry: MaturingRound, cells: Sequence[Moments], *, uses_covariates: bool = True
) -> RoundObservations:
    """Return a round as the learner reads it: the learner's units by candidate, and the control's.

    The metrics are those of the objective; the covariates are measured after all metrics of the study.
    """
    observed = [cell for cell in cells if cell.arm in ("learner", "control")]
    width = len(spec.objective.metrics)
    learned = [*range(width), *(range(len(spec.columns), len(spec.measured_columns)) if uses_covariates else ())]
    observations = []
    for cell, covariance in zip(observed, covariances(observed), strict=True):
        observations.append(
            Observation(
                version=entry.learned,
                candidate=cell.candidate,
                units=cell.units,
                mean=cell.mean[:width],
                covariance=None
                if covariance is None
                else tuple(tuple(covariance[i][j] for j in learned) for i in learned),
                control=cell.arm == "control",
                covariates=() if covariance is None else tuple(cell.mean[i] for i in learned[width:]),
            )
        )
    return RoundObservations(entry.round, tuple(observations))


def covariances(measured: Sequence[Moments]) -> tuple[Matrix | None, ...]:
    """Return the covariance (C, C) of each cell's mean: cross / (n − 1) / n.

    A cell of one unit takes the pooled covariance of a unit of the round: Σ cross / Σ (n − 1) over cells. None for
    every cell if no cell has two units.

    >>> pair = Moments("learner", 0, 2, (2.0,), ((2.0,),), (0,))
    >>> covariances([pair, Moments("learner", 1, 1, (5.0,), ((0.0,),), (0,))])
    (((1.0,),), ((2.0,),))
    """
    freedom = sum(cell.units - 1 for cell in measured)
    if not freedom:
        return (None,) * len(measured)
    pooled = np.sum([cell.cross for cell in measured], axis=0) / freedom
    return tuple(
        tuple(
            map(tuple, (pooled if cell.units == 1 else np.array(cell.cross) / (cell.units - 1) / cell.units).tolist())
        )
        for cell in measured
    )


def _describe_error(error: Exception) -> str:
    """Return the sentence of an error of this package; for other errors, the class as well."""
    return str(error) if isinstance(error, PastoError) else f"{type(error).__name__}: {error}"


def _state_text(study: Study) -> str:
    """Return the text of a study's state; MeasurementError if its policy is not a distribution."""
    shares = study.policy.probabilities
    if not all(share >= 0 for share in shares) or not abs(fsum(shares) - 1.0) <= 1e-9:
        raise MeasurementError(f"the learner's policy is not a distribution: it sums to {fsum(shares)!r}")
    return _write_state(study.state())


def _write_state(state: dict[str, Any]) -> str:
    return json.dumps(state, separators=(",", ":"), allow_nan=False)


def _republish(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state in which the current policy has the next version too."""
    shares = dict(state["policies"])[state["version"]]
    version = state["version"] + 1
    return {**state, "version": version, "policies": [*state["policies"], [version, shares]]}
