"""Contradiction of a certificate and a measured lift: reported in every report, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pasto.blend import Blend
from pasto.report.html import render_html
from pasto.report.lift_records import AdjustedLiftRecord, IntervalEstimate, LiftRecord
from pasto.report.records import BlendRecord, CertificateRecord, GainRecord, write_record
from pasto.report.text import render_text
from pasto.service.reports import builder
from pasto.service.reports.guardrail_report import find_contradictions
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_state import describe_blend

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]


def spec_with_guardrail(**rail: Any) -> StudySpec:
    column = {"event": "seen", "aggregate": "sum", "cap": 50}
    return parse_spec(
        {
            "name": "feed",
            "baseline": {"w": 1},
            "parameters": {"w": [0, 1]},
            "metrics": {"x": {**column, "value": "x"}, "y": {**column, "value": "y"}},
            "goal": {"maximize": "x"},
            "guardrails": [{"metric": "y", **rail}],
        }
    )


def lift(low: float | None, high: float | None, *, target: str = "the blend", metric: str = "y") -> LiftRecord:
    """Return a lift over a control at 10."""
    relative = absolute = IntervalEstimate(None, None, None)
    if low is not None and high is not None:
        relative = IntervalEstimate((low + high) / 2, low, high)
        absolute = IntervalEstimate(5.0 * (low + high), 10.0 * low, 10.0 * high)
    return LiftRecord(target, metric, None, 10.0, absolute, relative, "unclear", None, None, 3, 0.95, True)


def answer(holds: float | None = 0.97) -> BlendRecord:
    certificate = None if holds is None else CertificateRecord(0.95, True, {"y": holds})
    return BlendRecord({}, 1.0, {}, {}, {}, True, {}, None, None, GainRecord("w=0", 0.1, 0.1), certificate)


@pytest.mark.parametrize(
    ("rail", "low", "high", "expected"),
    [
        ({"at_least": "-2%"}, -0.06, -0.03, True),
        ({"at_least": "-2%"}, -0.06, -0.01, False),
        ({"at_least": "-2%"}, 0.01, 0.03, False),
        ({"at_most": "+2%"}, 0.03, 0.06, True),
        ({"at_most": "+2%"}, 0.01, 0.06, False),
        ({"at_least": 9.8}, -0.06, -0.03, True),
        ({"at_least": 9.8}, -0.06, -0.01, False),
        ({"at_most": 10.2}, 0.03, 0.06, True),
        ({"at_least": "-2%"}, None, None, False),
        ({"at_least": "-2%", "penalty": 5}, -0.06, -0.03, False),
    ],
)
def test_only_an_interval_beyond_the_limit_contradicts(
    rail: dict[str, Any], low: float | None, high: float | None, expected: bool
) -> None:
    found = find_contradictions(spec_with_guardrail(**rail), answer(), [lift(low, high)])
    assert bool(found) == expected


def test_what_is_not_certified_is_not_contradicted() -> None:
    spec, measured = spec_with_guardrail(at_least="-2%"), [lift(-0.06, -0.03)]
    assert find_contradictions(spec, answer(0.94), measured) == ()
    assert find_contradictions(spec, answer(None), measured) == ()
    assert find_contradictions(spec, None, measured) == ()
    other = [lift(-0.06, -0.03, target="the learner's traffic"), lift(-0.06, -0.03, metric="x")]
    assert find_contradictions(spec, answer(), other) == ()


def test_the_adjusted_lift_counts_if_there_is_one() -> None:
    spec, raw, precise = spec_with_guardrail(at_least="-2%"), lift(-0.06, 0.01), lift(-0.05, -0.03)
    adjusted = AdjustedLiftRecord(precise.absolute, precise.relative, "down", 0.4)
    assert find_contradictions(spec, answer(), [raw]) == ()
    assert find_contradictions(spec, answer(), [replace(raw, adjusted=adjusted)]) != ()


def test_a_confirmation_adds_evidence_and_does_not_compare_growing_sums() -> None:
    harmed = [lift(-0.06, -0.03)]
    (found,) = find_contradictions(spec_with_guardrail(at_least="-2%"), answer(), harmed, harmed)
    assert found.phase == "confirming"
    assert found.text.endswith("while confirming; do not deploy this blend.")
    assert find_contradictions(spec_with_guardrail(at_least=9.8), answer(), [], harmed) == ()


def test_a_contradiction_is_in_text_page_and_json(playground: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = playground(guardrails=[{"metric": "y", "at_least": "+40%", "stop_at": "-50%"}])
    for _ in range(4):
        place.round()
    honest = place.service.report("feed")
    document = write_record(honest)
    assert document["contradictions"] == []
    assert "disagree" not in render_text(honest)

    def overconfident(blend: Blend, round_seconds: float | None) -> BlendRecord:
        record = describe_blend(blend, round_seconds)
        assert record.certificate is not None
        certificate = replace(record.certificate, certified=True, holds={"y": 0.971})
        return replace(record, certificate=certificate, feasible=True)

    monkeypatch.setattr(builder, "describe_blend", overconfident)
    place.service = place.node()
    report = place.service.report("feed")
    document = write_record(report)
    (found,) = document["contradictions"]
    assert (found["guardrail"], found["phase"], found["at"], found["holds"]) == ("y", "learning", "+40%", 0.971)
    assert found["measured"]["high"] < 0.4
    sentence = "The certificate of y and its measured lift disagree: it is certified at least +40% with 97.1%"
    assert found["text"].startswith(sentence)
    assert found["text"].endswith("do not deploy before a confirmation.")
    assert sentence in " ".join(render_text(report).split())
    assert sentence in render_html(report)
