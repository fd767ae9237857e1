"""The demonstration from an empty service to a confirmed blend, told while it happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.demo.checks import CONFIDENCE, Check, Limit, build_checks
from pasto.demo.environment import Environment, read_line
from pasto.demo.users import SimulatedUsers
from pasto.inference.lift import Lift, LiftTarget, estimate_lifts
from pasto.inference.round_data import MeasuredRound, record_rounds
from pasto.metrics import measure
from pasto.report.records import Report, write_report
from pasto.service.round_history import shares
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.quantities import quantities
from pasto.sim.application import USERS, Application, Conditions, KnownMeans, known_means
from pasto.store import Store

ARMS = {"single": "best single", "blend": "probabilistic"}


def confirm_blend(store: Store, spec: StudySpec, *, confidence: float, together: bool = True) -> tuple[Lift, ...]:
    """Return every arm's lifts in the confirmation that a study is in.

    All the intervals hold together with that confidence, or each of them by itself. The horizon of the confirmation was
    set before it began, and this is the one look at it.
    """
    row = store.read_study(spec.name)
    policy = None if row is None else store.read_policy(row.number, row.version)
    assert row is not None and policy is not None  # noqa: S101, PT018 -- it has just been confirming
    with store.read_transaction() as connection:
        cells = measure(
            connection,
            store.dialect,
            study=row.number,
            version=row.version,
            after=policy.after_sequence,
            until=store.read_high_water(row.number),
            columns=spec.columns,
        )
    served = shares(json.loads(policy.document))
    record = record_rounds([MeasuredRound(row.version, served, cells)])
    present = {arm for arm, _ in served}
    targets = [LiftTarget(name, arm) for arm, name in ARMS.items() if arm in present]
    asked = quantities(spec)
    each = 1.0 - (1.0 - confidence) / (len(targets) * len(asked) if together else 1)
    return estimate_lifts(record, asked, targets, confidence=each, sequential=False)


CERTAIN = 0.99999
"""The confidence with which each guardrail is to hold in the answer; it is demonstrated often."""

CONTROL = 0.2
"""The share of users held on the baseline, against which everything is counted."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """How long it plays."""

    rounds: int = 30
    users: int = 5_000
    """In each round of learning."""
    confirming: int = 30_000
    """In the confirmation."""
    truth: int = USERS
    """Simulated under every candidate, for the truth."""


PLANS: Mapping[str, DemoPlan] = {
    "feed": DemoPlan(),
    "ads": DemoPlan(),
    "shop": DemoPlan(rounds=12, users=15_000, confirming=90_000),  # revenue needs many users in each round's control
}
"""The usual length, by application."""


@dataclass(frozen=True, slots=True)
class DemoUpdate:
    """How far it has come."""

    phase: str
    """learning or confirming."""
    round: int
    rounds: int
    users: int
    events: int
    shares: Mapping[str, float]
    """Of all traffic, by candidate."""
    served: Mapping[str, float]
    """Lifts over the control of what was served so far, by metric."""
    blend: Mapping[str, Any] | None
    """The answer so far, as a report shows it."""
    ahead: float | None
    """How far its goal truly lies above that of the best single candidate, as a share."""


@dataclass(frozen=True, slots=True)
class DemoState:
    """How one way of serving does in truth."""

    label: str
    setting: str
    lifts: Mapping[str, float]
    """Over the baseline, as shares."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What was learned, what was confirmed, and whether it is true."""

    application: str
    seed: int
    users: int
    events: int
    shares: Mapping[str, float]
    """The blend, largest share first."""
    single: str | None
    """The setting confirmed beside it; None where that is the baseline."""
    certificate: Mapping[str, Any] | None
    lifts: tuple[Lift, ...]
    """Of the confirmation."""
    standings: tuple[DemoState, ...]
    """In truth: baseline, best single setting, the blend, and the best blend there is."""
    checks: tuple[Check, ...]
    report: Report = field(repr=False)
    """The service's own."""

    @property
    def won(self) -> bool:
        """Whether all that was to be shown is so."""
        return all(check.held for check in self.checks)


def study_file(application: Application, **fields: Any) -> dict[str, Any]:
    """Return the application's study file, for rounds that are closed by hand when enough users have come.

    Fields given here replace those of the file.
    """
    return {
        "traffic": {"control": CONTROL},
        "rounds": {"every": "1d"},
        "confidence": CERTAIN,
        "learner": {"name": "thompson", "structure": "independent"},  # the same whatever else is installed
        **application.document,
        **fields,
    }


def limits(application: Application) -> dict[str, Limit]:
    """Return the lifts over the baseline that the guardrails allow, by metric.

    >>> from pasto.sim import shop
    >>> {metric: str(limit) for metric, limit in limits(shop()).items()}
    {'revenue': 'above -2%', 'hides': 'below +5%'}
    """
    rails = parse_spec(study_file(application)).guardrails
    return {rail.metric: Limit(rail.at.number / 100.0, rail.lower) for rail in rails}


def run_demo(
    application: Application,
    stage: Environment,
    *,
    plan: DemoPlan | None = None,
    seed: int = 1,
    conditions: Conditions | None = None,
    report: Callable[[DemoUpdate], None] | None = None,
) -> DemoResult:
    """Learn the application's blend on a stage, confirm it, and hold both against the truth."""
    plan = plan or DemoPlan()
    spec = parse_spec(study_file(application))
    name = spec.name
    truth = known_means(application, plan.truth)
    stage.create(study_file(application), seed)
    crowd = SimulatedUsers(application, seed, conditions or Conditions(night=application.night))
    with stage.client(name) as client:
        read_line(client, 1)
        for round in range(1, plan.rounds + 1):
            crowd.come(client, plan.users, round)
            read_line(client, stage.close_round(name))
            if report is not None:
                report(_update(stage, crowd, truth, "learning", round, plan.rounds))
        read_line(client, stage.confirm(name))
        crowd.forget()
        crowd.come(client, plan.confirming, plan.rounds + 1)
        stage.close_round(name)  # a look at the confirmation, for the service's own report
        if report is not None:
            report(_update(stage, crowd, truth, "confirming", plan.rounds, plan.rounds))
    told, frozen = stage.report(name), stage.show(name)["frozen"]
    with stage.books() as store:
        lifts = confirm_blend(store, spec, confidence=CONFIDENCE)
    return _result(application, seed, crowd, frozen, lifts, truth, told)


def _update(
    stage: Environment, crowd: SimulatedUsers, truth: KnownMeans, phase: str, round: int, rounds: int
) -> DemoUpdate:
    name = crowd.application.name
    shown = stage.show(name)
    blend = shown.get("frozen") or write_report(stage.report(name))["blend"]
    return DemoUpdate(
        phase=phase,
        round=round,
        rounds=rounds,
        users=crowd.users,
        events=crowd.events,
        shares={share["name"]: share["share"] for share in shown["policy"]["shares"]},
        served=crowd.lifts("learner" if phase == "learning" else "blend"),
        blend=blend,
        ahead=None if blend is None else _ahead(truth, blend["probabilities"]),
    )


def _result(
    application: Application,
    seed: int,
    crowd: SimulatedUsers,
    frozen: Mapping[str, Any],
    lifts: tuple[Lift, ...],
    truth: KnownMeans,
    told: Report,
) -> DemoResult:
    names = application.candidates.names
    shares = _shares(application, frozen["probabilities"])
    confirmed_single = any(lift.target == "best single" for lift in lifts)
    single = names.index(frozen["single"]) if confirmed_single else None
    best = truth.best()
    ways = (
        ("baseline", names[application.baseline], truth.alone(application.baseline)),
        ("best single", names[best.gain.candidate], truth.alone(best.gain.candidate)),
        ("the blend", "", shares),
        ("best possible", "", np.array(best.probabilities)),
    )
    return DemoResult(
        application=application.name,
        seed=seed,
        users=crowd.users,
        events=crowd.events,
        shares={names[k]: float(shares[k]) for k in np.argsort(-shares, kind="stable").tolist() if shares[k] > 0},
        single=None if single is None else names[single],
        certificate=frozen["certificate"],
        lifts=lifts,
        standings=tuple(
            DemoState(label, setting, {metric: figure.value for metric, figure in truth.lifts(way).items()})
            for label, setting, way in ways
        ),
        checks=build_checks(truth, shares, single, lifts, limits(application)),
        report=told,
    )


def _ahead(truth: KnownMeans, probabilities: Mapping[str, float]) -> float:
    application = truth.application
    goal = next(iter(application.measures))
    single = truth.alone(truth.best().gain.candidate)
    return truth.lift(goal, _shares(application, probabilities), single).value


def _shares(application: Application, probabilities: Mapping[str, float]) -> FloatArray:
    """A blend by the candidates' places."""
    shares = np.array([probabilities.get(name, 0.0) for name in application.candidates.names])
    return np.asarray(shares / shares.sum())
