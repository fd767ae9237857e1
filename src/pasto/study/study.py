"""Study: ask for assignments, `tell` their metrics, and read the policy and the blend."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend, HistoryUse
from pasto.errors import (
    MeasurementError,
    NotFittedError,
    OptionError,
    PastoError,
    UnsupportedError,
    refuse_renamed_options,
)
from pasto.objective import Objective
from pasto.objective.goals import warn_useless_bounds
from pasto.objective.objective import check_objective
from pasto.observation import Observation
from pasto.optimize.learners import Learner, LearningProblem, RoundResult, Thompson
from pasto.optimize.learners.base import DEPLOY_ROUNDS, ExplorationLimits, TrafficPlan
from pasto.optimize.learners.mirror_ascent import MirrorAscent
from pasto.optimize.learners.thompson import MAX_JOINT_CANDIDATES
from pasto.space import Candidates, Space
from pasto.study.assignment import Assignment, Policy
from pasto.study.candidate_growth import MAX_GROWN_CANDIDATES, find_new_points, merge_neighbours
from pasto.study.history_table import History
from pasto.study.observation_validation import (
    build_round,
    check_observations,
    read_identities,
    read_measurements,
    read_observations,
)
from pasto.study.pending_rounds import CorrectableRounds, PendingRounds, PolicyHistory, draw_round
from pasto.study.state import (
    NEW_NAMES,
    SavedStudy,
    check_control_share,
    check_natural,
    choose_candidates,
    choose_learner,
    choose_warm_start,
    find_candidate,
    spread_loss_budget,
)
from pasto.study.unit_table import average_units
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame


class Study:
    """Learner of a blend, round by round: `ask` for assignments, then `tell` their metrics.

    One ask is one round. It is learned as soon as each of its assignments is measured or dropped. Rounds may overlap;
    each is learned with the probabilities that its assignments were drawn with. A study is a pure value: it has no
    clock, no disk and no hidden randomness.

    >>> import numpy as np, pasto
    >>> candidates = pasto.Candidates.from_rows([{"weight": 0}, {"weight": 1}])
    >>> objective = pasto.maximize("x").keep("y", at_least=0)
    >>> study = pasto.Study(candidates, objective, seed=7)
    >>> means, traffic = np.array([[2.0, 0.0], [-2.0, 2.0]]), np.random.default_rng(7)
    >>> for _ in range(30):
    ...     assignments = study.ask(parallel=10)
    ...     metrics = [traffic.normal(means[:, a.candidate], 1.0) for a in assignments]
    ...     study.tell(assignments, metrics, standard_errors=np.ones((10, 2)))
    >>> blend = study.blend()
    >>> blend.metrics["x"] > 0.7                          # the best single candidate with y >= 0 has x = 0
    True
    >>> round(blend.certificate.holds["y"], 3)
    0.95
    """

    def __new__(cls, *_: Any, segments: Sequence[str] | Mapping[str, float] | None = None, **__: Any) -> Study:
        """Return a study; with segments it is a `SegmentedStudy`, which learns a blend for each of them."""
        if cls is not Study or segments is None:
            return super().__new__(cls)
        from pasto.study.segmented_study import SegmentedStudy  # a study without segments needs none

        return super().__new__(SegmentedStudy)

    def __init__(
        self,
        candidates: Candidates | Space | Sequence[Mapping[str, Value]] | IntoDataFrame,
        objective: Objective,
        *,
        learner: str | Learner[Any] = "thompson",
        seed: int | None = None,
        baseline: int | str | Mapping[str, Value] | None = None,
        control_share: float = 0.0,
        loss_budget: float | Mapping[str, float] | None = None,
        confidence: float = 0.95,
        max_share: float | None = None,
        new_candidate_share: float | None = None,
        history: History | Sequence[Mapping[str, Any]] | Mapping[str, Any] | IntoDataFrame | None = None,
        segments: Sequence[str] | Mapping[str, float] | None = None,
        **renamed: Never,
    ) -> None:
        refuse_renamed_options("Study", renamed, NEW_NAMES)
        segmented = segments is not None
        self.seed = secrets.randbits(63) if seed is None else check_natural(seed, "seed")
        self.space = candidates if isinstance(candidates, Space) else None
        self.candidates = choose_candidates(candidates, baseline, self.seed)
        self.objective = check_objective(objective, segments=segmented)
        self.baseline = find_candidate(self.candidates, baseline)
        self.control_share = check_control_share(control_share, self.baseline)
        self._learner = choose_learner(learner, self.space, segments=segmented)
        self._retired: frozenset[int] = frozenset()
        losses = spread_loss_budget(loss_budget, objective)
        self._limits = ExplorationLimits(confidence, max_share, new_candidate_share, losses)
        self._warm_start = choose_warm_start(history, self.candidates, self.objective, self._learner, self.space)
        self._problem = self._describe_problem()
        self._learner.check(self._problem)
        self._state = self._learner.start(self._problem)
        self._learned_rounds = 0
        self._rounds = PendingRounds()
        self._correctable: CorrectableRounds | None = None
        self._order = self._problem.order
        self._policies = PolicyHistory(self._propose(0))

    @property
    def policy(self) -> Policy:
        """The policy that is served now: probabilities and version."""
        return self._policies.current

    @property
    def learner(self) -> str:
        """The learner's name."""
        return self._learner.name

    @property
    def rounds(self) -> int:
        """The number of rounds that have been learned."""
        return self._learned_rounds

    @property
    def retired(self) -> frozenset[int]:
        """The candidates that are neither drawn nor part of the answer any more."""
        return self._retired

    @property
    def pending(self) -> tuple[Assignment, ...]:
        """The assignments that are neither measured nor dropped, oldest first."""
        return tuple(self._rounds.open_assignments(self.candidates))

    @property
    def history(self) -> HistoryUse | None:
        """The use of the results that the study started from; None without any.

        >>> import pasto
        >>> past = [{"w": 0, "x": 1.0, "x_se": 0.1}, {"w": 1, "x": 2.0, "x_se": 0.1}]
        >>> pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], pasto.maximize("x"), seed=7, history=past).history.listed
        2
        """
        known, learner = self._problem.history, self._learner
        if known is None or not isinstance(learner, Thompson):
            return None
        explained: dict[str, float] = {}
        if self.rounds:
            shares = zip(self.objective.metrics, learner.explained_by_history(self._state).tolist(), strict=True)
            explained = {name: share for (name, share), has in zip(shares, known.has_metric, strict=True) if has}
        active = self._problem.active
        return HistoryUse(int((known.listed & active).sum()), int(active.sum()), explained)

    def ask(self, parallel: int = 1) -> list[Assignment]:
        """Draw the next round: `parallel` assignments, each candidate with the policy's probability.

        With control_share=, that share of the round, and at least one assignment, gets the baseline instead.

        Asking never learns: a second ask before `tell` opens another round under the same policy.
        """
        if check_natural(parallel, "parallel") < 1:
            raise OptionError(f"parallel must be at least 1, got {parallel}")
        if self.control_share and parallel < 2:
            raise OptionError("a round with a control needs parallel of at least 2: one for the control, one to learn")
        control = (0, 0)
        if self.control_share and self.baseline is not None:
            control = (self.baseline, min(max(1, round(self.control_share * parallel)), parallel - 1))
        rng = np.random.default_rng([self.seed, self._rounds.asked])
        drawn = draw_round(self.policy, parallel, order=self._order, even=self._learner.even, control=control, rng=rng)
        return self._rounds.add(drawn, self.candidates)

    def tell(
        self,
        assignments: Assignment | str | Sequence[Assignment | str],
        metrics: Any,
        standard_errors: Any = None,
        units: Any = None,
        covariates: Any = None,
        **renamed: Never,
    ) -> None:
        """Record the metrics of assignments: of all of them, or, if anything is wrong, of none.

        `metrics` is an array (assignments, metrics) in the order of `objective.metrics`, a list of dicts, or a data
        frame or dict with a column for each metric; `standard_errors` have the same shape. A data frame whose rows are
        labelled with assignment ids is put in order; without labels the rows are in the order of the assignments.
        Assignments may be given by their ids, in any order, some now and some later.

        `units` is the number of units of each assignment, one number for all or (assignments,): evidence is weighted
        by them. They count only if every assignment of the round has them. Without units, assignments count alike,
        unless their variances are more than ten times apart: they are then taken to be of different size.

        `covariates` are what the units of each assignment did before it, (assignments, covariates) or as `metrics`: the
        part of the noise that they explain is removed (CUPED). They count only if every assignment of the round has
        them, and stand in the place of standard errors. Only the learner "thompson" uses them.

        A standard error is an estimate: it is pooled with those of other rounds and candidates, so an error of 0 (an
        event that did not happen) is not exact.
        """
        refuse_renamed_options("tell", renamed, {"errors": "standard_errors"})
        identities = read_identities(assignments)
        slots = self._rounds.find(identities)
        names = self.candidates.names
        labels = [
            (identity, names[slot.candidate], str(slot.candidate))
            for identity, (_, slot) in zip(identities, slots, strict=True)
        ]
        measured = read_measurements(metrics, standard_errors, units, covariates, self.objective.metrics, labels)
        if not self.rounds:
            warn_useless_bounds(self.objective, np.array([row.metrics for row in measured]).T, "in this round")
        for row, (_, slot) in zip(measured, slots, strict=True):
            slot.measurement = row
        try:
            self._learn_complete_rounds({number for number, _ in slots})
        except MeasurementError:  # the learner cannot use the round: nothing of this call was recorded
            for _, slot in slots:
                slot.measurement = None
            raise

    def drop(self, assignments: Assignment | str | Sequence[Assignment | str]) -> None:
        """Give assignments up: they are never measured, and their round does not wait for them."""
        slots = self._rounds.find(read_identities(assignments))
        for _, slot in slots:
            slot.dropped = True
        self._learn_complete_rounds({number for number, _ in slots})

    def observe(
        self,
        observations: Sequence[Observation] | Mapping[str, Any] | IntoDataFrame,
        *,
        standard_errors: IntoDataFrame | None = None,
        covariates: Sequence[str] = (),
        final: bool = True,
        publish: bool = True,
    ) -> None:
        """Learn a complete round at once, from each candidate's mean over its units.

        A data frame has a row for each candidate, named in its index or in the column `candidate`, the columns
        `version` and `units`, and a column for each metric; `control` marks units of the control. `standard_errors` is
        then a data frame of the same rows and metrics.

        `covariates` names columns with what units did before the round, which takes noise out of the metrics (CUPED).
        The data frame, or mapping of columns, then has a row for each unit: `version` and `candidate`, the metrics and
        those columns, and `control` as above. An Observation has its own covariates. Only "thompson" uses them.

        Every unit is a draw here: a candidate's share of the round is its units over all units not in control. Evidence
        is weighted by units; covariances are pooled over rounds and candidates. The observations name the policy
        version they were drawn under; each version is observed once. A round that is not `final` may be corrected:
        `rewind` takes it back, and `settle` ends that. With publish=False no policy follows from it.
        """
        metrics = self.objective.metrics
        rows: Sequence[Observation]
        if covariates:
            rows = average_units(observations, standard_errors, metrics, covariates, self.candidates)
        else:
            rows = read_observations(observations, standard_errors, metrics, self.candidates)
        check_observations(rows, metrics, len(self.candidates), self._problem.segments)
        if rows is not observations and not self.rounds:  # a data frame: the service warns when a study is created
            warn_useless_bounds(self.objective, np.array([row.mean for row in rows]).T, "in this round")
        policy = self._policies.find(rows[0].version)
        if final and self._correctable is not None:
            raise OptionError("a round is not final while one before it may be corrected; settle those first")
        before = self._correctable or CorrectableRounds(self._state, self._learned_rounds, {})
        result = self._build_round(rows, policy)
        if not final:  # before it is learned, because new candidates must reach it too
            self._correctable = before.with_round(policy)
        try:
            self._learn(result, publish=publish)
        except BaseException:
            self._correctable = before if before.policies else None
            raise
        self._policies.forget(policy.version)

    @property
    def correctable(self) -> tuple[int, ...]:
        """The policy versions whose rounds were observed and are not final, in the order they were learned."""
        return () if self._correctable is None else tuple(self._correctable.policies)

    def rewind(self) -> None:
        """Take back every round that is not final, so that each can be observed with its present data.

        Published policies and their versions stay.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        >>> def measured(shift): return [pasto.Observation(0, k, 100, (k + shift,), ((0.01,),)) for k in (0, 1)]
        >>> study.observe(measured(0.0), final=False)
        >>> study.rewind()
        >>> study.rounds, study.policy.version
        (0, 1)
        >>> study.observe(measured(0.5), final=False)
        >>> study.posterior_samples()[0].round(1).tolist()
        [[0.5, 1.5]]
        """
        if self._correctable is None:
            return
        if self._learned_rounds != self._correctable.rounds + len(self._correctable.policies):
            raise OptionError(
                "a round of ask and tell was learned among those to take back; call settle_all() instead of rewind()"
            )
        self._state, self._learned_rounds = self._correctable.learned, self._correctable.rounds
        self._policies.restore(self._correctable.policies)
        self._correctable = None

    def settle(self, observations: Sequence[Observation]) -> None:
        """Make the oldest round that is not final so, with its last observations."""
        check_observations(observations, self.objective.metrics, len(self.candidates), self._problem.segments)
        version, correctable = observations[0].version, self._correctable
        if correctable is None or version != next(iter(correctable.policies)):
            raise OptionError(
                f"policy version {version!r} is not the oldest one that may be corrected; those are, in order: "
                f"{', '.join(map(str, self.correctable)) or 'none'}"
            )
        if len(correctable.policies) == 1:
            self._correctable = None
            return
        result = self._build_round(observations, correctable.policies[version])
        learned = self._learner.learn(self._problem, correctable.learned, result)
        self._correctable = correctable.without_oldest(version, learned)

    def settle_all(self) -> None:
        """Make every round final as it was learned."""
        self._correctable = None

    def publish(self) -> Policy:
        """Publish a new policy from the present state, for a round that begins before the last one is observed.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
        >>> study.policy.version, study.publish().version
        (0, 1)
        """
        self._policies.add(self._propose(self.policy.version + 1))
        return self.policy

    def add(
        self, rows: Sequence[Mapping[str, Value]] | IntoDataFrame, names: Sequence[str] | None = None
    ) -> tuple[int, ...]:
        """Add candidates in mid-study, and return their indices; each starts with at most new_candidate_share.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
        >>> study.add([{"w": 2}])
        (2,)
        >>> len(study.policy.probabilities)
        3
        """
        before = self.candidates
        self._grow(before.add(rows, names))
        self.publish()
        return tuple(range(len(before), len(self.candidates)))

    def retire(self, *candidates: int | str) -> None:
        """Take candidates out of service: they are neither drawn nor part of the answer any more."""
        indices = {find_candidate(self.candidates, candidate) for candidate in candidates}
        retired = self._retired | {index for index in indices if index is not None}
        if self.baseline in retired:
            raise OptionError("the baseline cannot be retired; everything is compared with it")
        if len(retired) == len(self.candidates):
            raise OptionError("the last candidate in service cannot be retired")
        problem = replace(self._problem, retired=retired)
        self._learner.check(problem)
        self._retired = retired
        self._problem = problem
        self.publish()

    def revise(
        self,
        *,
        objective: Objective | None = None,
        learner: Learner[Any] | None = None,
        control_share: float | None = None,
        limits: ExplorationLimits | None = None,
        add: Candidates | None = None,
        retire: Iterable[str] = (),
        restore: Iterable[str] = (),
    ) -> Study:
        """Return the same study, everything learned included, with other options and candidates, and a new policy.

        What is not given stays. The objective keeps its goal and the metrics of its guardrails, whose levels and
        penalties may change. The learner keeps its method; what it explores may change. `add` holds new candidates.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}, {"w": 2}], pasto.maximize("x"), seed=1, baseline=0)
        >>> revised = study.revise(limits=ExplorationLimits(max_share=0.3), retire=["w=1"])
        >>> [round(share, 3) for share in revised.policy.probabilities], study.policy.version, revised.policy.version
        ([0.7, 0.0, 0.3], 0, 1)
        """
        study = self.copy()
        if objective is not None:
            study.objective = _check_same_aims(self.objective, objective, segments=bool(self._problem.segments))
        if learner is not None:
            study._learner = learner
        if control_share is not None:
            study.control_share = check_control_share(control_share, study.baseline)
        study._limits = study._limits if limits is None else limits
        retired = study._retired | {study.candidates.index(name) for name in retire}
        study._retired = frozenset(retired - {study.candidates.index(name) for name in restore})
        if study.baseline in study._retired:
            raise OptionError("the baseline cannot be retired; everything is compared with it")
        if add is not None and len(add):
            study._grow(study.candidates.add([dict(row) for row in add], add.names))
        if len(study._retired) == len(study.candidates):
            raise OptionError("the last candidate in service cannot be retired")
        study._problem = study._describe_problem()
        study._learner.check(study._problem)
        study.publish()
        return study

    def with_confidence(self, confidence: float) -> Study:
        """Return the same study, everything learned included, that answers with another confidence."""
        study = self.copy()
        study._limits = replace(study._limits, confidence=confidence)
        study._problem = study._describe_problem()
        return study

    def blend(self, *, deploy_rounds: float | None = DEPLOY_ROUNDS, explore_share: float = 1.0) -> Blend:
        """Return the answer so far, with an outlook on further rounds.

        `deploy_rounds` is the number of rounds for which the blend will be served after learning: the gain of more
        rounds counts for so long, their cost only while they last. None leaves the outlook out, which is faster.
        `explore_share` is the part of all units that take part, if the others get the baseline.
        """
        self._check_fitted()
        shares, horizon = np.array(self.policy.probabilities), DEPLOY_ROUNDS if deploy_rounds is None else deploy_rounds
        traffic = TrafficPlan(shares, self.control_share, explore_share, horizon)
        if self.space is None:
            problem = self._problem if deploy_rounds is None else replace(self._problem, traffic=traffic)
            found: Blend = self._learner.answer(problem, self._state)
            return found
        answer = self._learner.answer(replace(self._problem, traffic=traffic), self._state)
        merged = merge_neighbours(self.space, self.candidates, self._learner, self._problem, self._state, answer)
        return merged if deploy_rounds is not None else replace(merged, outlook=None)

    def posterior_samples(self, draws: int = 0) -> FloatArray:
        """Return the expected means of every candidate and posterior draws of them, (1 + draws, metrics, candidates).

        The metrics are in the order of `objective.metrics`; the draws are the same ones each time. A learner without
        a posterior has no draws.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
        >>> assignments = study.ask(parallel=20)
        >>> study.tell(assignments, [[float(a.candidate)] for a in assignments], standard_errors=[[0.1]] * 20)
        >>> study.posterior_samples(draws=8).shape
        (9, 1, 2)
        """
        self._check_fitted()
        if isinstance(self._learner, MirrorAscent):
            return self._learner.means(self._state)[None]
        if not isinstance(self._learner, Thompson):
            raise UnsupportedError(f"learner {self.learner!r} has no posterior of the means; 'thompson' has one")
        posterior = self._learner.posterior(self._problem, self._state)
        noise = np.empty((draws, *self._problem.shape))
        noise[:, :, self._order] = np.random.default_rng([self.seed, 3]).standard_normal(noise.shape)
        return np.concatenate([posterior.mean[None], posterior.draw(noise)]) if draws else posterior.mean[None]

    def copy(self) -> Study:
        """Return an independent study that knows the same: the one that `from_state` reads from `state`, bit for bit.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        >>> copy = study.copy()
        >>> copy.publish().version, study.policy.version
        (1, 0)
        """

        def reread(learned: Any) -> Any:
            # As after a restart: arrays in another order of memory may give other last digits.
            return self._learner.load(self._problem, self._learner.save(learned))

        copied = copy(self)
        copied._state = reread(self._state)
        copied._policies, copied._rounds = self._policies.copy(), self._rounds.copy()
        if self._correctable is not None:
            copied._correctable = replace(self._correctable, learned=reread(self._correctable.learned))
        return copied

    def state(self) -> dict[str, Any]:
        """Return everything the study knows, as a plain JSON value; `Study.from_state` continues it bit for bit."""
        return SavedStudy.of(self).to_document()

    @classmethod
    def from_state(cls, state: Mapping[str, Any], objective: Objective | None = None) -> Study:
        """Return the study that `state` was taken from; a custom utility is passed in again as `objective`.

        >>> import json, pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        >>> copy = pasto.Study.from_state(json.loads(json.dumps(study.state())))
        >>> study.ask() == copy.ask()
        True
        """
        saved = SavedStudy.from_document(state)
        study = cls(
            saved.candidates,
            saved.read_objective(objective),
            learner=saved.learner,
            seed=saved.seed,
            baseline=saved.baseline,
            control_share=saved.control_share,
            segments=saved.segments,
            **asdict(saved.limits),
        )
        saved.restore(study)
        return study

    def __repr__(self) -> str:
        return f"Study({len(self.candidates)} candidates, {self.objective}, {self.learner!r}, {self.rounds} rounds)"

    def _check_fitted(self) -> None:
        if not self.rounds:
            raise NotFittedError("no round has been learned yet; ask(), and tell() the metrics of the assignments")

    def _learn_complete_rounds(self, numbers: set[int]) -> None:
        """Learn the rounds in which no assignment is open, oldest first."""
        for number in sorted(numbers):
            if self._rounds.is_complete(number):
                result = self._rounds.result(number)
                if result is not None:
                    self._learn(result)
                self._rounds.remove(number)

    def _learn(self, result: RoundResult, *, publish: bool = True) -> None:
        self._state = self._learner.learn(self._problem, self._state, result)
        self._learned_rounds += 1
        if publish:
            self._add_new_points()
            self.publish()

    def _add_new_points(self) -> None:
        """Over a continuous space, add the points that would enter the blend."""
        free = MAX_GROWN_CANDIDATES - len(self.candidates)
        if self.space is None or free <= 0 or not isinstance(self._learner, Thompson):
            return
        rng = np.random.default_rng([self.seed, self.policy.version, 2])
        prospects = self._learner.prospects(self._problem, self._state, rng)[:free]
        points = find_new_points(self.space, prospects, self.candidates, self.policy.probabilities, rng)
        if points:
            self._grow(self.candidates.add(points))

    def _describe_problem(self) -> LearningProblem:
        features = None
        if len(self.candidates) <= MAX_JOINT_CANDIDATES:
            features = self.candidates.features() if self.space is None else self.space.features(self.candidates)
        history = None if self._warm_start is None else self._warm_start.of_candidates(self.candidates)
        return LearningProblem(
            self.objective, self.candidates.names, self.baseline, features, self._retired, self._limits, history
        )

    def _grow(self, candidates: Candidates) -> None:
        """Continue with more candidates: everything learned and served is described over them, or nothing changes."""
        before, self.candidates = self.candidates, candidates
        try:
            problem = self._describe_problem()
            self._learner.check(problem)
            state, correctable = self._learner.grow(problem, self._state), self._correctable
            if correctable is not None:
                learned = self._learner.grow(problem, correctable.learned)
                correctable = correctable.with_candidates(learned, len(candidates))
        except PastoError:
            self.candidates = before
            raise
        self._problem, self._order, self._state, self._correctable = problem, problem.order, state, correctable
        self._policies.pad(len(candidates))
        self._rounds.pad(len(candidates))

    def _build_round(self, observations: Sequence[Observation], policy: Policy) -> RoundResult:
        return build_round(observations, policy)

    def _propose(self, version: int) -> Policy:
        shares = self._learner.propose(self._problem, self._state, np.random.default_rng([self.seed, version, 1]))
        return Policy(version, tuple(shares.tolist()))


def _check_same_aims(before: Objective, after: Objective, *, segments: bool) -> Objective:
    """Return an objective with other levels; raise if what was learned does not fit it."""

    def aims(objective: Objective) -> tuple[Any, ...]:
        return objective.target, objective.sign, objective.metrics, objective.names, objective.relative_metrics

    if aims(before) != aims(after):
        raise OptionError(
            f"a study that has learned keeps its goal, its metrics and the kind of its guardrails; it has {before}, "
            f"got {after}"
        )
    return check_objective(after, segments=segments)
