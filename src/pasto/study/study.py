"""The study: ask for assignments, tell what they measured, and read off the policy and the blend."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import (
    AlreadyAnsweredError,
    MeasurementError,
    NotFittedError,
    OptionError,
    PastoError,
    StateError,
    UnsupportedError,
)
from pasto.objective import Objective, objective_document, read_objective_document
from pasto.objective.objective import check_objective
from pasto.objective.useless_bounds import warn_useless_bounds
from pasto.optimize.exploration_limits import ExplorationLimits
from pasto.optimize.learners import LEARNERS, Learner, LearningProblem, RoundResult, Thompson
from pasto.optimize.learners.mirror_ascent import MirrorAscent
from pasto.optimize.learners.thompson import LARGEST_JOINT
from pasto.records import Assignment, Blend, Observation, Policy, Value
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import LEADING, apart, best_point, leaders
from pasto.study.observations import observed, observed_round, read_observations, unit_counts, vectors
from pasto.study.options import control_share, first_candidates, learner_over, losses, natural, place_of
from pasto.study.pending_rounds import CorrectableRounds, PendingAssignment, PendingRound, find_assignment

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

KEPT = 32
"""How many past policies a study remembers at least, for rounds that are observed late."""
KEPT_SHARES = 50_000
"""Shares of past policies that a state can well carry: with few candidates it keeps more policies."""
KEPT_MOST = 500
MOST_POINTS = 200
"""How far the candidates of a continuous space may grow."""
FORMAT = 2
"""The number of the saved state's form. Raise it whenever the state changes, the learners' part of it included."""


class Study:
    """Learns a blend by asking for assignments and being told their metrics.

    One ask is one round. The round is learned when its last assignment is told or dropped; rounds may overlap, and
    each is learned with the probabilities its assignments were drawn with. A study is a pure value: no clock, no disk,
    no hidden randomness.

    >>> import numpy as np, pasto
    >>> candidates = pasto.Candidates.from_rows([{"weight": 0}, {"weight": 1}])
    >>> objective = pasto.maximize("x").keep("y", at_least=0)
    >>> study = pasto.Study(candidates, objective, seed=7)
    >>> truth, traffic = np.array([[2.0, 0.0], [-2.0, 2.0]]), np.random.default_rng(7)
    >>> for _ in range(30):
    ...     assignments = study.ask(parallel=10)
    ...     metrics = [traffic.normal(truth[:, a.candidate], 1.0) for a in assignments]
    ...     study.tell(assignments, metrics, errors=np.ones((10, 2)))
    >>> blend = study.blend()
    >>> blend.metrics["x"] > 0.7                          # the best single candidate that keeps y has x = 0
    True
    >>> round(blend.certificate.holds["y"], 3)
    0.95
    """

    def __init__(
        self,
        candidates: Candidates | Space | Sequence[Mapping[str, Value]] | IntoDataFrame,
        objective: Objective,
        *,
        learner: str | Learner[Any] = "thompson",
        seed: int | None = None,
        baseline: int | str | Mapping[str, Value] | None = None,
        control: float = 0.0,
        budget: float | Mapping[str, float] | None = None,
        confidence: float = 0.95,
        cap: float | None = None,
        entry: float | None = None,
    ) -> None:
        self.seed = secrets.randbits(63) if seed is None else natural(seed, "seed")
        self.space = candidates if isinstance(candidates, Space) else None
        self.candidates = first_candidates(candidates, baseline, self.seed)
        self.objective = check_objective(objective)
        self.baseline = place_of(self.candidates, baseline)
        self.control = control_share(control, self.baseline)
        self._learner = learner_over(learner, self.space)
        self._retired: frozenset[int] = frozenset()
        self._limits = ExplorationLimits(confidence, cap, entry, losses(budget, objective))
        self._problem = self._described()
        self._learner.check(self._problem)
        self._state = self._learner.start(self._problem)
        self._asked = 0
        self._learned_rounds = 0
        self._rounds: dict[int, PendingRound] = {}
        self._policies: dict[int, Policy] = {}
        self._open: CorrectableRounds | None = None
        self._order = self._problem.order
        self._publish(0)

    @property
    def policy(self) -> Policy:
        """What is served now: probabilities and version."""
        return self._policy

    @property
    def learner(self) -> str:
        """The learner's name."""
        return self._learner.name

    @property
    def rounds(self) -> int:
        """How many rounds have been learned."""
        return self._learned_rounds

    @property
    def pending(self) -> tuple[Assignment, ...]:
        """The assignments that were asked and neither told nor dropped, oldest first."""
        return tuple(
            self._assignment(number, place, held)
            for number, held in self._rounds.items()
            for place, slot in enumerate(held.slots)
            if slot.open
        )

    def ask(self, parallel: int = 1) -> list[Assignment]:
        """Draw the next round: `parallel` assignments, each candidate with the policy's probability.

        Of a study with control=, that share of the round (one assignment at least) is held on the baseline instead.

        Asking never learns: asking again before telling opens another round under the same policy.
        """
        if natural(parallel, "parallel") < 1:
            raise OptionError(f"parallel must be at least 1, got {parallel}")
        if self.control and parallel < 2:
            raise OptionError("a round with a control needs parallel of at least 2: one for the control, one to learn")
        # Draws run over the candidates in the order of their names, so that relabelling changes nothing.
        edges = np.cumsum(np.array(self._policy.probabilities)[self._order])
        rng = np.random.default_rng([self.seed, self._asked])
        held_back = min(max(1, round(self.control * parallel)), parallel - 1) if self.control else 0
        count = parallel - held_back
        # Evenly spaced points behind one random start, handed out in random order, give every slot the policy's own
        # probabilities while the round's counts stay within one of their expectation.
        points = (rng.permutation(count) + rng.random()) / count if self._learner.even else rng.random(count)
        drawn = self._order[np.searchsorted(edges, points * edges[-1], side="right").clip(max=len(edges) - 1)]
        learning = count / parallel
        slots = [PendingAssignment(int(k), learning * self._policy.probabilities[k]) for k in drawn]
        for place in sorted(rng.permutation(parallel)[:held_back]):
            assert self.baseline is not None  # noqa: S101 -- a control has a baseline
            slots.insert(int(place), PendingAssignment(self.baseline, held_back / parallel, control=True))
        held = PendingRound(self._policy, slots)
        number, self._asked = self._asked, self._asked + 1
        self._rounds[number] = held
        return [self._assignment(number, place, held) for place in range(parallel)]

    def tell(
        self,
        assignments: Assignment | str | Sequence[Assignment | str],
        metrics: Any,
        standard_errors: Any = None,
        units: Any = None,
        *,
        errors: Any = None,
    ) -> None:
        """Record what assignments measured: all of them, or, if anything is wrong, none.

        `metrics` is an array (assignments, metrics) in the order of `objective.metrics`, a list of dicts, or a data
        frame or dict with a column for each metric; `standard_errors` have the same shape. A data frame whose rows are
        labelled with assignment ids is put in order; without labels the rows are in the order of the assignments.
        Assignments may be given by their ids, in any order, some now and some later.

        `units` says how many units are behind each assignment, one number for all or (assignments,): evidence is
        weighted by them. They count only if every assignment of the round has them. Without units, assignments count
        alike, unless their variances are more than ten times apart: they are then taken to be of different size.

        A standard error is an estimate: it is pooled with those of other rounds and candidates, so an error of 0 (an
        event that did not happen) is not exact. `errors` is an older name of `standard_errors`.
        """
        if errors is not None:
            if standard_errors is not None:
                raise MeasurementError("errors= is the older name of standard_errors=; give one of them")
            standard_errors = errors
        identities = _identities(assignments)
        found = self._find(identities)
        names = self.candidates.names
        labels = [
            (identity, names[slot.candidate], str(slot.candidate))
            for identity, (_, slot) in zip(identities, found, strict=True)
        ]
        values = vectors(metrics, self.objective.metrics, len(identities), "metrics", labels)
        deviations = None
        if standard_errors is not None:
            deviations = vectors(standard_errors, self.objective.metrics, len(identities), "standard_errors", labels)
            if (deviations < 0).any():
                raise MeasurementError("standard_errors cannot be negative")
        counts = None if units is None else unit_counts(units, len(identities), labels)
        if not self.rounds:
            warn_useless_bounds(self.objective, values.T, "in this round")
        for row, (_, slot) in enumerate(found):
            slot.metrics = values[row].tolist()
            slot.errors = None if deviations is None else deviations[row].tolist()
            slot.units = None if counts is None else float(counts[row])
        try:
            self._settle({number for number, _ in found})
        except MeasurementError:  # the learner cannot use the round: nothing of this call was recorded
            for _, slot in found:
                slot.metrics = slot.errors = slot.units = None
            raise

    def drop(self, assignments: Assignment | str | Sequence[Assignment | str]) -> None:
        """Give assignments up: they will never be told, and their round need not wait for them."""
        found = self._find(_identities(assignments))
        for _, slot in found:
            slot.dropped = True
        self._settle({number for number, _ in found})

    def observe(
        self,
        observations: Sequence[Observation] | IntoDataFrame,
        *,
        standard_errors: IntoDataFrame | None = None,
        final: bool = True,
        publish: bool = True,
    ) -> None:
        """Learn a whole round at once, from each candidate's mean over its units.

        A data frame has a row for each candidate, named in its index or in the column `candidate`, the columns
        `version` and `units`, and a column for each metric; `control` marks units of the control. `standard_errors` is
        then a data frame of the same rows and metrics.

        Every unit is a draw here: a candidate's share of the round is its units over all units not in control. Evidence
        is weighted by units; covariances are pooled over rounds and candidates. The observations name the policy
        version they were drawn under; each version is observed once. A round that is not `final` may be corrected:
        `rewind` takes it back, and `settle` ends that. With publish=False no policy follows from it.
        """
        metrics = self.objective.metrics
        given = read_observations(observations, standard_errors, metrics, self.candidates)
        seen = observed(given, metrics, len(self.candidates))
        if given is not observations and not self.rounds:  # of a data frame: the service warns when a study is created
            warn_useless_bounds(self.objective, np.array([row.mean for row in seen]).T, "in this round")
        version = seen[0].version
        policy = self._policies.get(version)
        if policy is None:
            if 0 <= version <= self._policy.version:
                raise AlreadyAnsweredError(
                    f"policy version {version} was observed before, or is older than the {self.kept} versions that "
                    "this study keeps"
                )
            raise MeasurementError(
                f"policy version {version!r} was never served; the current one is {self._policy.version}"
            )
        if final and self._open is not None:
            raise OptionError("a round is not final while one before it may be corrected; settle those first")
        before = self._open or CorrectableRounds(self._state, self._learned_rounds, {})
        round_ = observed_round(seen, policy)
        if not final:  # before it is learned, since taking in new candidates must reach it too
            self._open = before.with_round(policy)
        try:
            self._learn(round_, publish=publish)
        except BaseException:
            self._open = before if before.policies else None
            raise
        del self._policies[version]

    @property
    def correctable(self) -> tuple[int, ...]:
        """The policy versions whose rounds were observed and are not final, in the order they were learned."""
        return () if self._open is None else tuple(self._open.policies)

    def rewind(self) -> None:
        """Take back every round that is not final, so that each can be observed as it is known now.

        What was served stays: policies and versions are those of before.

        >>> import pasto
        >>> from pasto.records import Observation
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        >>> def seen(shift): return [Observation(0, k, 100, (k + shift,), ((0.01,),)) for k in (0, 1)]
        >>> study.observe(seen(0.0), final=False)
        >>> study.rewind()
        >>> study.rounds, study.policy.version
        (0, 1)
        >>> study.observe(seen(0.5), final=False)
        >>> study.truths()[0].round(1).tolist()
        [[0.5, 1.5]]
        """
        if self._open is None:
            return
        if self._learned_rounds != self._open.rounds + len(self._open.policies):
            raise OptionError(
                "a round that was asked and told was learned among those to take back; settle all instead"
            )
        self._state, self._learned_rounds = self._open.learned, self._open.rounds
        self._policies = dict(sorted({**self._policies, **self._open.policies}.items()))
        self._open = None

    def settle(self, observations: Sequence[Observation]) -> None:
        """Make the oldest round that is not final so, with what was observed of it in the end."""
        seen = observed(observations, self.objective.metrics, len(self.candidates))
        version, known = seen[0].version, self._open
        if known is None or version != next(iter(known.policies)):
            raise OptionError(
                f"policy version {version!r} is not the oldest one that may be corrected; those are, in order: "
                f"{', '.join(map(str, self.correctable)) or 'none'}"
            )
        if len(known.policies) == 1:
            self._open = None
            return
        learned = self._learner.learn(self._problem, known.learned, observed_round(seen, known.policies[version]))
        self._open = known.settled(version, learned)

    def settle_all(self) -> None:
        """Make every round final as it was learned."""
        self._open = None

    def publish(self) -> Policy:
        """A new policy on what is known already, for a round that begins before the last one can be observed.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
        >>> study.policy.version, study.publish().version
        (0, 1)
        """
        self._publish(self._policy.version + 1)
        return self._policy

    @property
    def kept(self) -> int:
        """How many policies may be waiting for their observations at once."""
        return max(KEPT, min(KEPT_MOST, KEPT_SHARES // len(self.candidates)))

    def add(
        self, rows: Sequence[Mapping[str, Value]] | IntoDataFrame, names: Sequence[str] | None = None
    ) -> tuple[int, ...]:
        """Take in new candidates in mid-study, and return their indices; they enter with at most the `entry` share.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), learner="thompson", seed=1)
        >>> study.add([{"w": 2}])
        (2,)
        >>> len(study.policy.probabilities)
        3
        """
        grown = self.candidates.add(rows, names)
        before, candidates = len(self.candidates), self.candidates
        self.candidates = grown
        try:
            problem = self._described()
            self._learner.check(problem)
            state, known = self._grown(problem)
        except PastoError:
            self.candidates = candidates
            raise
        self._open = known
        self._extend(problem, state)
        self._publish(self._policy.version + 1)
        return tuple(range(before, len(grown)))

    def retire(self, *candidates: int | str) -> None:
        """Take candidates out of service: they are neither drawn nor part of the answer any more."""
        places = {place_of(self.candidates, candidate) for candidate in candidates}
        retired = self._retired | {place for place in places if place is not None}
        if self.baseline in retired:
            raise OptionError("the baseline cannot be retired; it is what everything is compared with")
        if len(retired) == len(self.candidates):
            raise OptionError("the last candidate in service cannot be retired")
        problem = replace(self._problem, retired=retired)
        self._learner.check(problem)
        self._retired = retired
        self._extend(problem, self._state)
        self._publish(self._policy.version + 1)

    def restated(self, *, confidence: float) -> Study:
        """The same study, everything learned included, that answers with another confidence."""
        again = Study.from_state(self.state(), None if _saveable(self.objective) else self.objective)
        again._limits = replace(again._limits, confidence=confidence)
        again._problem = again._described()
        return again

    def blend(self) -> Blend:
        """The answer so far."""
        if not self.rounds:
            raise NotFittedError("no round has been learned yet; ask, and tell what the assignments measured")
        answer = self._learner.answer(self._problem, self._state)
        return answer if self.space is None else self._gathered(self.space, answer)

    def truths(self, draws: int = 0) -> FloatArray:
        """What is believed of every candidate's means, (1 + draws, metrics, candidates).

        First the expected means, in the order of `objective.metrics`; then draws of what else they may be, the same
        ones each time. A learner without beliefs about its errors has none of those.

        >>> import pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
        >>> assignments = study.ask(parallel=20)
        >>> study.tell(assignments, [[float(a.candidate)] for a in assignments], errors=[[0.1]] * 20)
        >>> study.truths(draws=8).shape
        (9, 1, 2)
        """
        if not self.rounds:
            raise NotFittedError("no round has been learned yet; ask, and tell what the assignments measured")
        if isinstance(self._learner, MirrorAscent):
            return self._learner.means(self._state)[None]
        if not isinstance(self._learner, Thompson):
            raise UnsupportedError(
                f"learner {self.learner!r} does not say what it believes of the means; 'thompson' does"
            )
        belief = self._learner.belief(self._problem, self._state)
        noise = np.empty((draws, *self._problem.shape))
        noise[:, :, self._order] = np.random.default_rng([self.seed, 3]).standard_normal(noise.shape)
        return np.concatenate([belief.mean[None], belief.draw(noise)]) if draws else belief.mean[None]

    def state(self) -> dict[str, Any]:
        """Everything the study knows, as a plain JSON value; `Study.from_state` goes on bit for bit."""
        return {
            "format": FORMAT,
            "candidates": self.candidates.to_saved(),
            "space": None if self.space is None else self.space.to_saved(),
            "objective": objective_document(self.objective),
            "learner": {"name": self._learner.name, "settings": self._learner.settings()},
            "seed": self.seed,
            "baseline": self.baseline,
            "control": self.control,
            "limits": asdict(self._limits),
            "retired": sorted(self._retired),
            "learned_rounds": self._learned_rounds,
            "version": self._policy.version,
            "asked": self._asked,
            "learned": self._learner.save(self._state),
            "policies": [[version, list(policy.probabilities)] for version, policy in self._policies.items()],
            "rounds": [[number, held.to_saved()] for number, held in self._rounds.items()],
            **({} if self._open is None else {"correctable": self._open.to_saved(self._learner.save)}),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], objective: Objective | None = None) -> Study:
        """The study that `state` was taken from; a custom utility is passed back in as `objective`.

        >>> import json, pasto
        >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7)
        >>> again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
        >>> study.ask() == again.ask()
        True
        """
        _check_format(state)
        try:
            goal = read_objective_document(state["objective"]) if objective is None else objective
            if objective_document(goal) != state["objective"]:
                raise StateError(f"the objective passed in ({goal}) is not the one this state was saved with")
            kind = LEARNERS.get(state["learner"]["name"])
            if kind is None:
                raise StateError(f"the saved learner {state['learner']['name']!r} does not exist here")
            study = cls(
                Candidates.from_saved(state["candidates"]),
                goal,
                learner=kind.from_settings(state["learner"]["settings"]),
                seed=state["seed"],
                baseline=state["baseline"],
                control=state["control"],
                **state["limits"],
            )
            study.space = None if state["space"] is None else Space.from_saved(state["space"])
            study._retired = frozenset(state["retired"])
            study._learned_rounds = state["learned_rounds"]
            study._problem = study._described()
            study._state = study._learner.load(study._problem, state["learned"])
            study._asked = state["asked"]
            study._rounds = {number: PendingRound.from_saved(held) for number, held in state["rounds"]}
            study._policies = {version: Policy(version, tuple(shares)) for version, shares in state["policies"]}
            study._policy = study._policies[state["version"]]
            if "correctable" in state:
                study._open = CorrectableRounds.from_saved(
                    state["correctable"], lambda saved: study._learner.load(study._problem, saved)
                )
        except (KeyError, TypeError, IndexError) as error:
            raise StateError(f"the saved state cannot be read: {error!r}") from error
        return study

    def __repr__(self) -> str:
        return f"Study({len(self.candidates)} candidates, {self.objective}, {self.learner!r}, {self.rounds} rounds)"

    def _assignment(self, number: int, place: int, held: PendingRound) -> Assignment:
        slot = held.slots[place]
        return Assignment(
            id=f"{number}/{place}",
            round=number,
            version=held.policy.version,
            candidate=slot.candidate,
            name=self.candidates.names[slot.candidate],
            values=self.candidates[slot.candidate],
            probability=slot.probability,
            control=slot.control,
        )

    def _find(self, identities: list[str]) -> list[tuple[int, PendingAssignment]]:
        if len(set(identities)) < len(identities):
            twice = next(identity for identity in identities if identities.count(identity) > 1)
            raise AlreadyAnsweredError(f"assignment {twice!r} appears twice in one call; tell each assignment once")
        return [find_assignment(self._rounds, identity, self._asked) for identity in identities]

    def _settle(self, numbers: set[int]) -> None:
        """Learn the rounds that are now complete, oldest first."""
        for number in sorted(numbers):
            if self._rounds[number].complete:
                round_ = self._rounds[number].learned()
                if round_ is not None:
                    self._learn(round_)
                del self._rounds[number]

    def _learn(self, round_: RoundResult, *, publish: bool = True) -> None:
        self._state = self._learner.learn(self._problem, self._state, round_)
        self._learned_rounds += 1
        if not publish:
            return
        self._widen()
        self._publish(self._policy.version + 1)

    def _widen(self) -> None:
        """Over a continuous space, take in the points that would enter the blend."""
        room = MOST_POINTS - len(self.candidates)
        if self.space is None or room <= 0 or not isinstance(self._learner, Thompson):
            return
        rng = np.random.default_rng([self.seed, self._policy.version, 2])
        shares = np.array(self._policy.probabilities)
        leading = [self.candidates[int(k)] for k in np.argsort(-shares, kind="stable")[:LEADING]]
        found: list[dict[str, Value]] = []
        for prospect in self._learner.prospects(self._problem, self._state, rng)[:room]:
            row, worth = best_point(self.space, prospect.worth, leading, rng)
            if worth > prospect.bar and apart(self.space, row, [*self.candidates, *found]):
                found.append(row)
        if found:
            self.candidates = self.candidates.add(found)
            problem = self._described()
            state, self._open = self._grown(problem)
            self._extend(problem, state)

    def _gathered(self, space: Space, answer: Blend) -> Blend:
        """Over a continuous space, the same answer from one point in each place, where that is nearly as good.

        A cautious answer spreads over neighbours to average out what is not known of each.
        """
        held = sorted(answer.support, key=lambda k: -answer.probabilities[k])
        kept = {held[place] for place in leaders(space, [self.candidates[k] for k in held])}
        if len(kept) == len(held) or answer.outlook is None:
            return answer
        kept |= set() if self.baseline is None else {self.baseline}
        problem = replace(self._problem, retired=frozenset(range(len(self.candidates))) - kept)
        fewer = self._learner.answer(problem, self._state)
        sure = fewer.certificate is not None and fewer.certificate.certified
        if (sure or not answer.feasible) and fewer.value >= answer.value - 10.0 * answer.outlook.worth:
            return replace(fewer, outlook=answer.outlook)
        return answer

    def _described(self) -> LearningProblem:
        features = None
        if len(self.candidates) <= LARGEST_JOINT:
            features = self.candidates.features() if self.space is None else self.space.features(self.candidates)
        return LearningProblem(
            self.objective, self.candidates.names, self.baseline, features, self._retired, self._limits
        )

    def _grown(self, problem: LearningProblem) -> tuple[Any, CorrectableRounds | None]:
        """What is known, over the candidates of a problem with more of them."""
        known = self._open
        if known is not None:
            known = known.widened(self._learner.grow(problem, known.learned), len(problem.names))
        return self._learner.grow(problem, self._state), known

    def _extend(self, problem: LearningProblem, state: Any) -> None:
        """Describe old policies over the candidates of now."""
        self._problem, self._state, self._order = problem, state, problem.order
        for version, old in self._policies.items():
            missing = len(problem.names) - len(old.probabilities)
            self._policies[version] = replace(old, probabilities=(*old.probabilities, *([0.0] * missing)))
        for held in self._rounds.values():
            missing = len(problem.names) - len(held.policy.probabilities)
            held.policy = replace(held.policy, probabilities=(*held.policy.probabilities, *([0.0] * missing)))

    def _publish(self, version: int) -> None:
        shares = self._learner.propose(self._problem, self._state, np.random.default_rng([self.seed, version, 1]))
        self._policy = Policy(version, tuple(shares.tolist()))
        self._policies[version] = self._policy
        while len(self._policies) > self.kept:
            del self._policies[min(self._policies)]


def _check_format(state: object) -> None:
    """Refuse a saved state that this version cannot read, and say what to do with it."""
    written = state.get("format") if isinstance(state, Mapping) else None
    if isinstance(written, bool) or not isinstance(written, int):
        raise StateError(f"a study's state is what state() returned, with a format of {FORMAT}, got {state!r:.80}")
    if written > FORMAT:
        raise StateError(
            f"the state has format {written}, from a newer version of PASTO; this one reads {FORMAT}. Upgrade."
        )
    if written < FORMAT:
        raise StateError(
            f"the state has format {written}, from an older version of PASTO; this one reads {FORMAT}, because "
            "learners keep other sums now. Finish the study with the version that saved it, or create it again, in a "
            "store under another name, and let it learn from new measurements."
        )


def _saveable(objective: Objective) -> bool:
    return "utility" not in objective_document(objective)


def _identities(assignments: Assignment | str | Sequence[Assignment | str]) -> list[str]:
    several = [assignments] if isinstance(assignments, (Assignment, str)) else list(assignments)
    if not several:
        raise MeasurementError("no assignment was given")
    return [given.id if isinstance(given, Assignment) else given for given in several]
