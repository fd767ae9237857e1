"""Scenario of the demonstration: from an empty service to a confirmed blend, with an update after each round."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.demo.checks import CONFIDENCE, Check, Limit, build_checks
from pasto.demo.environment import Environment, wait_for_policy
from pasto.demo.users import SimulatedUsers
from pasto.inference.lift import Lift, LiftTarget, estimate_lifts
from pasto.inference.round_data import MeasuredRound, record_rounds
from pasto.metrics import measure
from pasto.report.records import BlendRecord, CertificateRecord, Report
from pasto.service.round_history import shares
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.spec import build_quantities
from pasto.sim.application import SIMULATED_USERS, Conditions, KnownMeans, SimulatedApplication, known_means
from pasto.store import Store

ARMS = {"best_single": "best single", "blend": "probabilistic"}
"""Targets of the confirmed lifts, by arm."""


def confirm_blend(store: Store, spec: StudySpec, *, confidence: float, together: bool = True) -> tuple[Lift, ...]:
    """Return the lifts of every arm in the running confirmation of a study.

    With `together`, all intervals hold together with that confidence, otherwise each of them does. The end of the
    confirmation is fixed before it starts, and this is the only look, so the intervals are not sequential.
    """
    row = store.read_study(spec.name)
    policy = None if row is None else store.read_policy(row.number, row.version)
    assert row is not None and policy is not None  # noqa: S101, PT018 -- the study is confirming
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
    metrics = build_quantities(spec)
    confidence_each = 1.0 - (1.0 - confidence) / (len(targets) * len(metrics) if together else 1)
    return estimate_lifts(record, metrics, targets, confidence=confidence_each, sequential=False)


GUARDRAIL_CONFIDENCE = 0.99999
"""Confidence of each guardrail in the study; high, because the demonstration runs often."""

CONTROL_SHARE = 0.2
"""Share of users on the baseline, the concurrent control of all lifts."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Length of the demonstration."""

    rounds: int = 30
    users: int = 5_000
    """Users in each round of learning."""
    confirming: int = 30_000
    """Users in the confirmation."""
    truth: int = SIMULATED_USERS
    """Users that are simulated under every candidate, for the truth."""


PLANS: Mapping[str, DemoPlan] = {
    "feed": DemoPlan(),
    "ads": DemoPlan(),
    "shop": DemoPlan(rounds=12, users=15_000, confirming=90_000),  # revenue needs many users in each round's control
}
"""Default plans, by application."""


@dataclass(frozen=True, slots=True)
class DemoUpdate:
    """Progress of the demonstration after a round."""

    phase: str
    """`learning` or `confirming`."""
    round: int
    rounds: int
    users: int
    events: int
    shares: Mapping[str, float]
    """Shares of traffic, by candidate."""
    served: Mapping[str, float]
    """Lifts of the served traffic over the control so far, by metric."""
    blend: BlendRecord | None
    """Current blend, as in the report."""
    ahead: float | None
    """True lift of the current blend's goal over the best single candidate, as a share."""


@dataclass(frozen=True, slots=True)
class TrueLifts:
    """True lifts of one way of serving: a candidate or a blend."""

    label: str
    setting: str
    lifts: Mapping[str, float]
    """Lifts over the baseline as shares, by metric."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demonstration: the blend, its confirmed lifts, the true lifts, and the checks."""

    application: str
    seed: int
    users: int
    events: int
    shares: Mapping[str, float]
    """Blend by candidate, largest share first."""
    best_single: str | None
    """Best single setting of the confirmation; None if it is the baseline."""
    certificate: CertificateRecord | None
    lifts: tuple[Lift, ...]
    """Lifts of the confirmation."""
    standings: tuple[TrueLifts, ...]
    """True lifts of the baseline, the best single setting, the blend, and the best possible blend."""
    checks: tuple[Check, ...]
    report: Report = field(repr=False)
    """Report of the service."""

    @property
    def won(self) -> bool:
        """True if all checks hold."""
        return all(check.held for check in self.checks)


def study_file(application: SimulatedApplication, **fields: Any) -> dict[str, Any]:
    """Return the study file of an application, with rounds that the demonstration closes itself.

    `fields` replace those of the file.
    """
    return {
        "traffic": {"control": CONTROL_SHARE},
        "rounds": {"every": "1d"},
        "confidence": GUARDRAIL_CONFIDENCE,
        "learner": {"name": "thompson", "structure": "independent"},  # the same result with and without scikit-learn
        **application.document,
        **fields,
    }


def limits(application: SimulatedApplication) -> dict[str, Limit]:
    """Return the lifts over the baseline that the guardrails allow, by metric.

    >>> from pasto.sim import shop
    >>> {metric: str(limit) for metric, limit in limits(shop()).items()}
    {'revenue': 'above -2%', 'hides': 'below +5%'}
    """
    rails = parse_spec(study_file(application)).guardrails
    return {rail.metric: Limit(rail.at.number / 100.0, rail.lower) for rail in rails}


def run_demo(
    application: SimulatedApplication,
    environment: Environment,
    *,
    plan: DemoPlan | None = None,
    seed: int = 1,
    conditions: Conditions | None = None,
    report: Callable[[DemoUpdate], None] | None = None,
) -> DemoResult:
    """Learn the blend of an application, confirm it, and check both against the truth."""
    plan = plan or DemoPlan()
    spec = parse_spec(study_file(application))
    name = spec.name
    truth = known_means(application, plan.truth)
    environment.create(study_file(application), seed)
    users = SimulatedUsers(application, seed, conditions or Conditions(night=application.night))
    with environment.client(name) as client:
        wait_for_policy(client, 1)
        for round in range(1, plan.rounds + 1):
            users.visit(client, plan.users, round)
            wait_for_policy(client, environment.close_round(name))
            if report is not None:
                report(_update(environment, users, truth, "learning", round, plan.rounds))
        wait_for_policy(client, environment.confirm(name))
        users.reset_sums()
        users.visit(client, plan.confirming, plan.rounds + 1)
        environment.close_round(name)  # evaluates the confirmation for the service's report
        if report is not None:
            report(_update(environment, users, truth, "confirming", plan.rounds, plan.rounds))
    service_report, frozen = environment.report(name), environment.show(name).frozen
    assert frozen is not None  # noqa: S101 -- a confirming study has a frozen blend
    with environment.open_store() as store:
        lifts = confirm_blend(store, spec, confidence=CONFIDENCE)
    return _result(application, seed, users, frozen, lifts, truth, service_report)


def _update(
    environment: Environment, users: SimulatedUsers, truth: KnownMeans, phase: str, round: int, rounds: int
) -> DemoUpdate:
    name = users.application.name
    study = environment.show(name)
    blend = study.frozen or environment.report(name).blend
    return DemoUpdate(
        phase=phase,
        round=round,
        rounds=rounds,
        users=users.user_count,
        events=users.event_count,
        shares={} if study.policy is None else {served.name: served.share for served in study.policy.shares},
        served=users.lifts("learner" if phase == "learning" else "blend"),
        blend=blend,
        ahead=None if blend is None else _true_lead(truth, blend.probabilities),
    )


def _result(
    application: SimulatedApplication,
    seed: int,
    users: SimulatedUsers,
    frozen: BlendRecord,
    lifts: tuple[Lift, ...],
    truth: KnownMeans,
    service_report: Report,
) -> DemoResult:
    names = application.candidates.names
    shares = _blend_array(application, frozen.probabilities)
    confirmed_single = any(lift.target == "best single" for lift in lifts)
    single = names.index(frozen.best_single) if confirmed_single and frozen.best_single is not None else None
    best = truth.best()
    ways = (
        ("baseline", names[application.baseline], truth.single_shares(application.baseline)),
        ("best single", names[best.gain.candidate], truth.single_shares(best.gain.candidate)),
        ("the blend", "", shares),
        ("best possible", "", np.array(best.probabilities)),
    )
    return DemoResult(
        application=application.name,
        seed=seed,
        users=users.user_count,
        events=users.event_count,
        shares={names[k]: float(shares[k]) for k in np.argsort(-shares, kind="stable").tolist() if shares[k] > 0},
        best_single=None if single is None else names[single],
        certificate=frozen.certificate,
        lifts=lifts,
        standings=tuple(
            TrueLifts(label, setting, {metric: figure.value for metric, figure in truth.lifts(true_shares).items()})
            for label, setting, true_shares in ways
        ),
        checks=build_checks(truth, shares, single, lifts, limits(application)),
        report=service_report,
    )


def _true_lead(truth: KnownMeans, probabilities: Mapping[str, float]) -> float:
    application = truth.application
    goal = next(iter(application.measures))
    single = truth.single_shares(truth.best().gain.candidate)
    return truth.lift(goal, _blend_array(application, probabilities), single).value


def _blend_array(application: SimulatedApplication, probabilities: Mapping[str, float]) -> FloatArray:
    """Return the shares of a blend in the order of the candidates."""
    shares = np.array([probabilities.get(name, 0.0) for name in application.candidates.names])
    return np.asarray(shares / shares.sum())
