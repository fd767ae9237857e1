"""State of a study: the options that it starts from, and the JSON document of everything that it knows later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.errors import InputError, OptionError, StateError, UnsupportedError
from pasto.objective import Objective, objective_document, read_objective_document
from pasto.optimize.learners import FORMER_NAMES, LEARNERS, Learner, Thompson, current_name, make_learner
from pasto.optimize.learners.base import ExplorationLimits, LearningProblem
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import choose_first_points
from pasto.study.history_table import History
from pasto.study.pending_rounds import CorrectableRounds, PendingRounds, PolicyHistory
from pasto.study.warm_start import WarmStart
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    from narwhals.stable.v2.typing import IntoDataFrame

    from pasto.optimize.learners.segmented_thompson import SegmentedThompson
    from pasto.study.study import Study

NEW_NAMES = {
    "control": "control_share",
    "budget": "loss_budget",
    "cap": "max_share",
    "entry": "new_candidate_share",
}
"""Options of older versions, and their names now."""

FORMAT = 3
"""The number of the document's form. Raise it whenever the document changes, the learners' part of it included."""

OLDEST_FORMAT = 2
"""Documents of this form and later ones are read. Form 2 has the same content under other names."""

LIMIT_NAMES_2 = {"max_share": "cap", "new_candidate_share": "entry", "loss_budget": "budget"}
"""Names of the exploration limits, and their names in form 2."""


@dataclass(frozen=True, slots=True)
class SavedStudy:
    """Everything that a study knows, as typed values; the learner's own part stays JSON until the learner reads it."""

    candidates: Candidates
    space: Space | None
    objective: dict[str, Any]
    """The document of the objective, which does not hold a custom utility."""
    learner: Learner[Any]
    seed: int
    baseline: int | None
    control_share: float
    limits: ExplorationLimits
    retired: frozenset[int]
    learned_rounds: int
    learned: dict[str, Any]
    """The learner's state, as `Learner.save` writes it."""
    policies: PolicyHistory
    rounds: PendingRounds
    correctable: dict[str, Any] | None
    """The rounds that are not final, as `CorrectableRounds.to_saved` writes them."""
    history: dict[str, Any] | None
    """The results that the study started from, as `WarmStart.to_saved` writes them."""
    segments: list[str] | dict[str, float] | None = None
    """The segments' names, with their shares if those are stated; None without segments."""

    @classmethod
    def of(cls, study: Study) -> SavedStudy:
        """Return what a study knows now."""
        learner, correctable = study._learner, study._correctable
        return cls(
            candidates=study.candidates,
            space=study.space,
            objective=objective_document(study.objective),
            learner=learner,
            seed=study.seed,
            baseline=study.baseline,
            control_share=study.control_share,
            limits=study._limits,
            retired=study._retired,
            learned_rounds=study._learned_rounds,
            learned=learner.save(study._state),
            policies=study._policies,
            rounds=study._rounds,
            correctable=None if correctable is None else correctable.to_saved(learner.save),
            history=None if study._warm_start is None else study._warm_start.to_saved(),
            segments=describe_segments(study._problem),
        )

    def restore(self, study: Study) -> None:
        """Give everything learned and served back to a new study with the same options."""
        study.space, study._retired = self.space, self.retired
        if self.history is not None:
            study._warm_start = WarmStart.from_saved(self.history, study.objective.metrics)
        study._problem = study._describe_problem()

        def load(learned: dict[str, Any]) -> Any:
            return study._learner.load(study._problem, learned)

        try:
            study._state = load(self.learned)
            study._learned_rounds = self.learned_rounds
            study._policies, study._rounds = self.policies, self.rounds
            if self.correctable is not None:
                study._correctable = CorrectableRounds.from_saved(self.correctable, load)
        except (KeyError, TypeError, IndexError) as error:
            raise StateError(f"the saved state cannot be read: {error!r}") from error

    def to_document(self) -> dict[str, Any]:
        """Return the plain JSON value; equal studies give equal documents, in the same order of keys."""
        return {
            "format": FORMAT,
            "candidates": self.candidates.to_saved(),
            "space": None if self.space is None else self.space.to_saved(),
            "objective": self.objective,
            "learner": {"name": self.learner.name, "settings": self.learner.settings()},
            "seed": self.seed,
            "baseline": self.baseline,
            "control_share": self.control_share,
            "limits": asdict(self.limits),
            "retired": sorted(self.retired),
            "learned_rounds": self.learned_rounds,
            "version": self.policies.current.version,
            "asked": self.rounds.asked,
            "learned": self.learned,
            "policies": self.policies.to_saved(),
            "rounds": self.rounds.to_saved(),
            **({} if self.correctable is None else {"correctable": self.correctable}),
            **({} if self.history is None else {"history": self.history}),
            **({} if self.segments is None else {"segments": self.segments}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SavedStudy:
        """Read a document of this form or of an older one; raise StateError if it cannot be read."""
        document = _upgrade(document)
        try:
            name = document["learner"]["name"]
            if name not in LEARNERS:
                raise StateError(f"the saved learner {name!r} does not exist here; there are {', '.join(LEARNERS)}")
            kind = _segmented_learner() if document.get("segments") else LEARNERS[name]
            return cls(
                candidates=Candidates.from_saved(document["candidates"]),
                space=None if document["space"] is None else Space.from_saved(document["space"]),
                objective=document["objective"],
                learner=kind.from_settings(document["learner"]["settings"]),
                seed=document["seed"],
                baseline=document["baseline"],
                control_share=document["control_share"],
                limits=ExplorationLimits(**document["limits"]),
                retired=frozenset(document["retired"]),
                learned_rounds=document["learned_rounds"],
                learned=document["learned"],
                policies=PolicyHistory.from_saved(document["policies"], document["version"]),
                rounds=PendingRounds.from_saved(document["rounds"], document["asked"]),
                correctable=document.get("correctable"),
                history=document.get("history"),
                segments=document.get("segments"),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise StateError(f"the saved state cannot be read: {error!r}") from error

    def read_objective(self, given: Objective | None) -> Objective:
        """Return the objective of the document; a custom utility is not in it and has to be given."""
        objective = read_objective_document(self.objective) if given is None else given
        if objective_document(objective) != self.objective:
            raise StateError(f"the objective passed in ({objective}) is not the one this state was saved with")
        return objective


def write_format_2(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as form 2 wrote it, so that a checksum from then can be compared.

    >>> import pasto
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=7, max_share=0.6)
    >>> write_format_2(study.state())["limits"]
    {'confidence': 0.95, 'cap': 0.6, 'entry': None, 'budget': {}}
    """
    former = {current: old for old, current in FORMER_NAMES.items()}
    learner = document["learner"]
    return {
        {"control_share": "control"}.get(key, key): value
        for key, value in {
            **document,
            "format": 2,
            "learner": {**learner, "name": former.get(learner["name"], learner["name"])},
            "limits": {LIMIT_NAMES_2.get(name, name): limit for name, limit in document["limits"].items()},
        }.items()
    }


def _upgrade(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document in the form of today."""
    if _check_format(document) == FORMAT:
        return document
    new_names = {old: new for new, old in LIMIT_NAMES_2.items()}
    try:
        learner = document["learner"]
        return {
            **document,
            "format": FORMAT,
            "control_share": document["control"],
            "learner": {**learner, "name": current_name(learner["name"])},
            "limits": {new_names.get(name, name): limit for name, limit in document["limits"].items()},
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"the saved state cannot be read: {error!r}") from error


def _check_format(document: object) -> int:
    """Return the form of a document; raise StateError if this version cannot read it."""
    number = document.get("format") if isinstance(document, Mapping) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise StateError(f"a study's state is what state() returned, with a format of {FORMAT}, got {document!r:.80}")
    if number > FORMAT:
        raise StateError(
            f"the state has format {number}, from a newer version of PASTO; this one reads {OLDEST_FORMAT} to "
            f"{FORMAT}. Upgrade PASTO."
        )
    if number < OLDEST_FORMAT:
        raise StateError(
            f"the state has format {number}, from an older version of PASTO; this one reads {OLDEST_FORMAT} to "
            f"{FORMAT}, because learners store other sums now. Finish the study with the version that saved it, or "
            "create it again, in a store under another name, and let it learn from new measurements."
        )
    return number


def describe_segments(problem: LearningProblem) -> list[str] | dict[str, float] | None:
    """Return the segments of a problem as `Study(segments=)` takes them; None without segments."""
    if not problem.segments:
        return None
    if problem.segment_shares is None:
        return list(problem.segments)
    return dict(zip(problem.segments, problem.segment_shares, strict=True))


def _segmented_learner() -> type[SegmentedThompson]:
    from pasto.optimize.learners.segmented_thompson import SegmentedThompson  # a study without segments needs none

    return SegmentedThompson


def choose_learner(choice: str | Learner[Any], space: Space | None, *, segments: bool = False) -> Learner[Any]:
    """Return the learner; a continuous space needs one that shares strength and takes in new points."""
    if segments:
        if space is not None:
            raise UnsupportedError(
                "segments= does not go with a continuous space yet; draw candidates from it first, with space.grid() "
                "or space.sobol(64)"
            )
        return _segmented_learner().of(choice)
    if space is None:
        return make_learner(choice)
    if choice == "thompson":
        return Thompson(structure="process")
    if isinstance(choice, Thompson) and choice.structure == "process" and choice.contrast is None:
        return choice
    raise UnsupportedError(
        "a continuous space needs learner='thompson' (or Thompson(structure='process') without contrast); for other "
        "learners draw candidates from it first, with space.grid() or space.sobol(64)"
    )


def choose_candidates(
    given: Candidates | Space | Sequence[Mapping[str, Value]] | IntoDataFrame, baseline: object, seed: int
) -> Candidates:
    """Return the candidates to begin with; of a space, a spread of points with the baseline first."""
    if isinstance(given, Candidates):
        return given
    if not isinstance(given, Space):
        return Candidates.from_rows(given)
    points = choose_first_points(given, seed)
    if not isinstance(baseline, Mapping):
        return points
    if not given.contains(baseline):
        raise InputError(f"the baseline {dict(baseline)!r} does not lie in the space {given!r}")
    rows = [row for row in points if row != dict(baseline)]
    return Candidates.from_rows([dict(baseline), *rows])


def check_natural(value: object, name: str) -> int:
    """Return a whole number that is not negative; `name` is the option that it was given for."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise OptionError(f"{name} must be a whole number that is not negative, got {value!r}")
    return int(value)


def check_control_share(share: float, baseline: int | None) -> float:
    """Return the share of traffic that stays on the baseline."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise OptionError(f"control_share is a share of traffic from 0 to below 1, got {share!r}")
    if share and baseline is None:
        raise OptionError("control_share= keeps a share of traffic on the baseline; name one with baseline=")
    return float(share)


def spread_loss_budget(budget: float | Mapping[str, float] | None, objective: Objective) -> dict[str, float]:
    """Return the loss budget of each guardrail, from one number for all or from one for each."""
    if budget is None:
        return {}
    if isinstance(budget, Mapping):
        return {name: float(loss) for name, loss in budget.items()}
    return dict.fromkeys(objective.names, float(budget))


def find_candidate(candidates: Candidates, given: int | str | Mapping[str, Value] | None) -> int | None:
    """Return the index of the baseline, given by its index, its name or its values."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return candidates.find(given)
    if isinstance(given, str):
        return candidates.index(given)
    index = check_natural(given, "baseline")
    if index >= len(candidates):
        raise InputError(f"baseline {index} is not a candidate; this study has 0 to {len(candidates) - 1}")
    return index


def choose_warm_start(
    history: Any, candidates: Candidates, objective: Objective, learner: Learner[Any], space: Space | None
) -> WarmStart | None:
    """Return the warm start from the results that `history` holds; None without any."""
    if history is None:
        return None
    if not isinstance(learner, Thompson):
        raise UnsupportedError(f"learner {learner.name!r} cannot start from a history; 'thompson' can")
    if space is not None:
        raise UnsupportedError(
            "a continuous space cannot start from a history; draw candidates from it first, with space.grid() or "
            "space.sobol(64)"
        )
    table = History.read(history, objective.metrics, candidates.parameters)
    return WarmStart.fit(table, candidates, objective.metrics, share=learner.structure != "independent")
