"""Guardrail state from close to close: the same verdicts as on all rounds together, after every kind of change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.inference.guardrail_monitor import GuardrailMonitor
from pasto.metrics import Moments
from pasto.metrics.engines.sqlite import build_moments
from pasto.report.records import PauseRecord
from pasto.service.rounds.guardrail_check import GuardrailResult, after_close, check_guardrails, rearm
from pasto.service.rounds.guardrail_state import judged_round
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.spec import build_stop_levels
from pasto.service.study_state import GuardrailStatus, StudyState

Rounds = list[tuple[int, tuple[Moments, ...]]]


@pytest.fixture(scope="module")
def spec() -> StudySpec:
    return parse_spec(
        {
            "name": "feed",
            "baseline": {"w": 1},
            "parameters": {"w": [0, 1, 2]},
            "metrics": {
                "x": {"event": "seen", "value": "x", "aggregate": "sum"},
                "y": {"event": "seen", "value": "y", "aggregate": "sum"},
                "liked": {"event": "seen", "value": "liked", "aggregate": "sum", "cap": 1},
            },
            "goal": {"maximize": "x"},
            "guardrails": [
                {"metric": "y", "at_least": "-2%", "stop_at": "-5%"},
                {"metric": "liked", "at_least": 0.4, "stop_at": 0.35},
            ],
            "rounds": {"every": "8h"},
        }
    )


def drawn(seed: int, number: int, harm: float) -> tuple[Moments, ...]:
    rng = np.random.default_rng([seed, number])
    found = []
    for arm, candidate, units in (("control", 1, 40), ("learner", 0, 60), ("learner", 2, rng.integers(1, 90))):
        fall = harm if arm == "learner" else 0.0
        rows = np.stack(
            [rng.normal(5.0, 1.0, units), rng.random(units) < 0.5 - fall, rng.normal(9 - fall, 2, units)], 1
        )
        found.append(build_moments(arm, candidate, rows[:, [0, 2, 1]].astype(float), (0, 0, 0)))
    return tuple(found)


def judge_all_rounds(spec: StudySpec, rounds: Rounds, since: int = 0) -> list[tuple[str, str, float]]:
    """Return the verdicts on all rounds together; rounds before `since` only give the control's level."""
    vigil = GuardrailMonitor()
    for number, measured in rounds:
        vigil = vigil.add_rounds(
            build_stop_levels(spec), [judged_round(number, measured, spec.rounds.every)], judged=number >= since
        )
    return [(one.name, one.state, float(f"{one.p_value:.4g}")) for one in vigil.verdicts(build_stop_levels(spec))]


def summarize_verdicts(judged: GuardrailResult) -> list[tuple[str, str, float]]:
    assert judged.problems == ()
    return [(one.name, one.state, one.p_value) for one in judged.verdicts]


def store_and_read(watch: GuardrailStatus, judged: GuardrailResult) -> GuardrailStatus:
    """Return the monitor's state after a close, as the store returns it."""
    after = after_close(watch, "learning", "learning", judged, None)
    return StudyState.from_text(StudyState(guardrail_monitor=after).to_text()).guardrail_monitor


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    harm=st.sampled_from([0.0, 0.2, 0.6]),
    steps=st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from(["", "", "", "correct", "re-arm", "forget", "other"])), max_size=12
    ),
    window=st.integers(0, 4),
)
def test_closes_in_any_manner_say_what_all_rounds_together_say(
    spec: StudySpec, seed: int, harm: float, steps: list[tuple[int, str]], window: int
) -> None:
    rng = np.random.default_rng(seed)
    known: dict[int, tuple[Moments, ...]] = {}
    monitor, number = GuardrailStatus(), 0
    for count, step in steps:
        if step == "re-arm":
            monitor = rearm(replace(monitor, tripped=PauseRecord(number, 0.0, "")), "paused", "learning", number)
        if step == "forget":  # as a study that an older version closed
            monitor = replace(monitor, carried=None)
            window = 0
        if step == "other" and monitor.carried is not None:  # as a study with evidence of another method
            monitor = replace(monitor, carried={**monitor.carried, "method": 1})
        rounds: Rounds = []
        if step in ("correct", "other") and window and known:
            again = int(rng.integers(max(1, number - window + 1), number + 1))
            rounds.append((again, drawn(seed + 1, again, harm)))
        rounds += [(number + k, drawn(seed, number + k, harm)) for k in range(1, count + 1)]
        before = [judged_round(*one) for one in sorted(known.items())]
        number += count
        first_open = max(1, number - window + 1) if window else None
        judged = check_guardrails(spec, "learning", monitor, rounds, lambda before=before: before, None, first_open)  # type: ignore[misc]
        known |= dict(rounds)
        assert summarize_verdicts(judged) == judge_all_rounds(spec, sorted(known.items()), monitor.since)
        monitor = store_and_read(monitor, judged)


def test_what_is_carried_stays_small(spec: StudySpec) -> None:
    monitor = GuardrailStatus()
    for number in range(1, 61):
        monitor = store_and_read(
            monitor, check_guardrails(spec, "learning", monitor, [(number, drawn(3, number, 0.0))])
        )
    assert len(json.dumps(monitor.carried)) < 12_000


def test_of_rounds_that_may_be_corrected_only_what_floors_are_about_is_carried() -> None:
    metrics = {f"m{number}": {"event": "seen", "value": f"v{number}", "aggregate": "sum"} for number in range(30)}
    wide = parse_spec(
        {
            "name": "feed",
            "baseline": {"w": 1},
            "parameters": {"w": [0, 1]},
            "metrics": metrics,
            "goal": {"maximize": "m0"},
            "guardrails": [{"metric": "m7", "at_least": "-2%", "stop_at": "-5%"}],
        }
    )
    rng = np.random.default_rng(3)
    rounds: Rounds = [
        (
            number,
            tuple(
                build_moments(arm, place, rng.normal(level, 1.0, (60, 30)), (0,) * 30)
                for arm, place, level in (("control", 1, 9.0), ("learner", 0, 8.8))
            ),
        )
        for number in range(1, 41)
    ]
    monitor = GuardrailStatus()
    for one in rounds[:-1]:
        monitor = store_and_read(monitor, check_guardrails(wide, "learning", monitor, [one], first_open=1))
    assert len(json.dumps(monitor.carried)) < 39 * 2 * 30 * 30
    assert summarize_verdicts(
        check_guardrails(wide, "learning", monitor, rounds[-1:], first_open=1)
    ) == judge_all_rounds(wide, rounds)


def test_a_round_that_cannot_be_judged_leaves_the_evidence_as_it_was(spec: StudySpec) -> None:
    before = store_and_read(
        GuardrailStatus(), check_guardrails(spec, "learning", GuardrailStatus(), [(1, drawn(3, 1, 0.0))])
    )
    odd = replace(drawn(3, 2, 0.0)[1], mean=(float("nan"),) * 3)
    judged = check_guardrails(spec, "learning", before, [(2, (odd,))])
    assert judged.verdicts == ()
    assert judged.problems[0].startswith("the guardrail monitor could not judge: MeasurementError")
    assert judged.carried == before.carried


def test_of_an_older_study_what_cannot_be_judged_is_left_out(spec: StudySpec) -> None:
    odd = replace(drawn(3, 2, 0.0)[1], mean=(float("nan"),) * 3)
    past = [judged_round(1, drawn(3, 1, 0.3)), judged_round(2, [odd]), judged_round(3, drawn(3, 3, 0.3))]
    judged = check_guardrails(spec, "learning", GuardrailStatus(), [(4, drawn(3, 4, 0.3))], lambda: past)
    assert summarize_verdicts(judged) == judge_all_rounds(
        spec, [(number, drawn(3, number, 0.3)) for number in (1, 3, 4)]
    )


def test_a_close_with_a_stored_state_does_not_read_past_rounds(spec: StudySpec) -> None:
    def fails() -> Any:
        raise AssertionError("the past was read")

    before = store_and_read(
        GuardrailStatus(), check_guardrails(spec, "learning", GuardrailStatus(), [(1, drawn(3, 1, 0.0))])
    )
    assert check_guardrails(spec, "learning", before, [(2, drawn(3, 2, 0.0))], fails).problems == ()
