"""Study with segments: a policy and a blend for each of them, under guardrails on all traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError, UnsupportedError
from pasto.objective import EACH_SEGMENT
from pasto.observation import Observation
from pasto.optimize.learners.base import DEPLOY_ROUNDS, LearningProblem, RoundResult
from pasto.optimize.learners.segmented_thompson import SegmentedThompson
from pasto.optimize.solve_segments import read_shares
from pasto.segmented_blend import SegmentedBlend
from pasto.study.assignment import Policy
from pasto.study.observation_validation import build_round
from pasto.study.study import Study

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

    from pasto.objective import Objective
    from pasto.space import Candidates
    from pasto_sdk.policy_document import Value


class SegmentedStudy(Study):
    """Learner of a blend for each segment, which `Study(..., segments=...)` returns.

    Rounds are observed, with the segment of each observation. `study.policy.segments` has the distribution of each
    segment, and `study.policy.probabilities` that of all traffic.

    >>> import numpy as np, pasto
    >>> objective = pasto.maximize("x").keep("y", at_least=0)
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], objective, seed=7, segments=["new", "heavy"])
    >>> means = {"new": [(2.0, -2.0), (0.0, 2.0)], "heavy": [(3.0, 1.0), (1.0, 0.0)]}
    >>> rng, error = np.random.default_rng(7), ((0.01, 0.0), (0.0, 0.01))
    >>> for _ in range(10):
    ...     version, rows = study.policy.version, []
    ...     for name, shares in study.policy.segments.items():
    ...         for k, share in enumerate(shares):
    ...             mean = tuple(rng.normal(means[name][k], 0.1))
    ...             rows.append(pasto.Observation(version, k, 1000 * share, mean, error, segment=name))
    ...     study.observe(rows)
    >>> blend = study.blend()
    >>> {name: [round(p, 1) for p in part.probabilities] for name, part in blend.segments.items()}
    {'new': [0.7, 0.3], 'heavy': [1.0, 0.0]}
    >>> blend.certificate.certified
    True
    """

    _learner: SegmentedThompson

    def __init__(
        self,
        candidates: Candidates | Sequence[Mapping[str, Value]] | IntoDataFrame,
        objective: Objective,
        *,
        segments: Sequence[str] | Mapping[str, float],
        **options: Any,
    ) -> None:
        self._segments, self._segment_shares = read_segments_option(segments)
        super().__init__(candidates, objective, segments=segments, **options)

    @property
    def segments(self) -> dict[str, float]:
        """The segments with their shares of traffic: those stated, or those learned so far."""
        return dict(zip(self._segments, self._traffic_shares().tolist(), strict=True))

    def ask(self, parallel: int = 1) -> NoReturn:
        """Refuse: the segment of an assignment is not known before its unit arrives."""
        raise UnsupportedError(
            "a study with segments does not draw assignments, because it does not know the segment of a unit; draw "
            "them from study.policy.segments, and learn the round with observe()"
        )

    def observe(
        self,
        observations: Sequence[Observation] | Mapping[str, Any] | IntoDataFrame,
        *,
        standard_errors: IntoDataFrame | None = None,
        covariates: Sequence[str] = (),
        final: bool = True,
        publish: bool = True,
    ) -> None:
        """Learn a complete round at once, from the mean of each candidate in each segment.

        As `Study.observe`, and each Observation names its segment; a data frame has the column `segment`. The shares of
        traffic are learned from the units of all rounds, if none were stated. A segment without units is left out.
        """
        if covariates:
            raise UnsupportedError("a study with segments does not use covariates= yet; leave them out")
        super().observe(observations, standard_errors=standard_errors, final=final, publish=publish)

    def blend(  # type: ignore[override] # the answer for segments is a record of its own
        self, *, deploy_rounds: float | None = DEPLOY_ROUNDS, explore_share: float = 1.0
    ) -> SegmentedBlend:
        """Return the answer so far, with a certificate on all traffic and one for each segment.

        It has no outlook on further rounds yet, so `deploy_rounds` does not count.
        """
        if explore_share != 1.0:
            raise UnsupportedError("explore_share= is for the outlook, which a study with segments does not have yet")
        self._check_fitted()
        return self._learner.answer(self._problem, self._state)

    def posterior_samples(self, draws: int = 0) -> FloatArray:
        """Return the expected means of every cell and posterior draws, (1 + draws, segments, metrics, candidates)."""
        self._check_fitted()
        return self._learner.samples(self._problem, self._state, draws, np.random.default_rng([self.seed, 3]))

    def _traffic_shares(self) -> FloatArray:
        return self._learner.traffic_shares(self._problem, self._state)

    def _describe_problem(self) -> LearningProblem:
        return replace(super()._describe_problem(), segments=self._segments, segment_shares=self._segment_shares)

    def _build_round(self, observations: Sequence[Observation], policy: Policy) -> RoundResult:
        """Return the round of all traffic, with the round of each segment that has units of the policy's own."""
        parts = []
        for name in self._segments:
            rows = [row for row in observations if row.segment == name]
            served = Policy(policy.version, policy.segments[name])
            parts.append(build_round(rows, served) if any(not row.control for row in rows) else None)
        if any(parts):
            return replace(next(part for part in parts if part is not None), segments=tuple(parts))
        return build_round(observations, policy)  # raises an error: all of them are control

    def _propose(self, version: int) -> Policy:
        shares = self._learner.propose(self._problem, self._state, np.random.default_rng([self.seed, version, 1]))
        total = self._traffic_shares() @ shares
        segments = dict(zip(self._segments, map(tuple, shares.tolist()), strict=True))
        return Policy(version, tuple((total / total.sum()).tolist()), segments)


def read_segments_option(
    segments: Sequence[str] | Mapping[str, float],
) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """Return the names of segments, and their shares of traffic if those are stated.

    >>> read_segments_option(["new", "heavy"]), read_segments_option({"new": 0.25, "heavy": 0.75})
    ((('new', 'heavy'), None), (('new', 'heavy'), (0.25, 0.75)))
    """
    if isinstance(segments, Mapping):
        shares = read_shares(segments)
        return tuple(shares), tuple(shares.values())
    if isinstance(segments, str) or not isinstance(segments, Sequence) or not segments:
        raise OptionError(f"segments must be a list of names, or a share of traffic for each, got {segments!r}")
    for name in segments:
        if not isinstance(name, str) or not name or name == EACH_SEGMENT:
            raise OptionError(
                f"segments has the name {name!r}; a segment's name is a text other than {EACH_SEGMENT!r}, which stands "
                "for all segments in within="
            )
    if len(set(segments)) < len(segments):
        raise OptionError(f"segments names one twice: {', '.join(map(repr, segments))}")
    return tuple(segments), None
