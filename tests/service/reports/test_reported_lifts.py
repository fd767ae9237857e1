"""Report of a running study: lifts, data quality, confirmation, and other questions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pasto
from pasto.errors import LifecycleError, NotFittedError, ObjectiveError, OptionError
from pasto.inference.lift import LiftTarget, estimate_lifts
from pasto.inference.round_data import record_rounds
from pasto.report.html import render_html
from pasto.report.records import write_record
from pasto.report.text import render_text, render_what_if
from pasto.service.policy_cache import PolicyCache
from pasto.service.reports.confirmation_report import report_confirmation
from pasto.service.round_history import latest
from pasto.service.rounds.guardrail_state import read_judged_rounds
from pasto.service.scheduler import Scheduler
from pasto.service.study_file.spec import build_quantities

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]
TRUTH = {"w=0": (12.0, 8.0), "w=1": (9.8, 10.2), "w=2": (10.0, 12.0), "w=3": (9.0, 10.5)}


def learned(playground: Make, rounds: int = 8, **changes: Any) -> Playground:
    place = playground(**changes)
    for _ in range(rounds):
        place.round()
    return place


def lift_of(report: dict[str, Any], target: str, metric: str) -> dict[str, Any]:
    (found,) = [one for one in report["lifts"] if (one["target"], one["metric"]) == (target, metric)]
    return dict(found)


def test_lifts_contain_the_truth_and_are_those_of_the_statistics(playground: Make) -> None:
    place = learned(playground)
    report = write_record(place.service.report("feed"))
    json.dumps(report, allow_nan=False)
    learning = report["learning"]
    blend = report["blend"]["probabilities"]
    for place_of, metric in enumerate(("x", "y")):
        true = sum(share * TRUTH[name][place_of] for name, share in blend.items()) / TRUTH["w=1"][place_of] - 1
        relative = lift_of(learning, "the blend", metric)["relative"]
        assert relative["low"] < true < relative["high"]
        single = lift_of(learning, "the best single candidate", metric)["relative"]
        true = TRUTH[report["blend"]["best_single"]][place_of] / TRUTH["w=1"][place_of] - 1
        assert single["low"] < true < single["high"]
    measured = PolicyCache(place.store).reload("feed").rounds
    assert [one.version for one in measured.rounds] == learning["rounds"] == list(range(1, 9))
    snapshot = place.service.policy_cache.snapshot("feed")
    (direct,) = estimate_lifts(
        record_rounds(measured.rounds),
        {"rate": build_quantities(snapshot.spec)["rate"]},
        [LiftTarget("the learner's traffic")],
    )
    reported_lift = lift_of(learning, "the learner's traffic", "rate")
    assert (reported_lift["relative"]["low"], reported_lift["level"]) == (direct.relative.low, direct.level)
    assert 2.0 < reported_lift["level"] / 0.1 < 60.0  # a ratio, not its numerator
    assert not report["quality"]["sample_ratio"]["alarm"]
    series = next(one for one in learning["history"] if (one["target"], one["metric"]) == ("the blend", "x"))
    assert series["rounds"] == list(range(1, 9))
    assert series["cumulative"]["value"][-1] == pytest.approx(
        lift_of(learning, "the blend", "x")["relative"]["value"], rel=1e-9
    )


def test_units_that_are_lost_on_the_way_void_every_claim(playground: Make) -> None:
    place = playground()
    for _ in range(5):
        place.crowd(400, lost=lambda name, number: name == "w=0" and number % 2 == 0)
        place.now += 3600
        place.service.close_round("feed", who="ann")
    report = write_record(place.service.report("feed"))
    ratio = report["quality"]["sample_ratio"]
    assert ratio["alarm"]
    assert (ratio["suspect"]["arm"], ratio["suspect"]["candidate"]) == ("learner", "w=0")
    assert report["verdict"]["decision"] == "fix_data"
    assert "so nothing can be claimed" in report["verdict"]["sentence"]
    assert {row["word"] for row in report["verdict"]["metrics"]} == {"not shown"}


def test_quality_reports_capped_values_and_late_events(playground: Make) -> None:
    place = playground()
    place.crowd(200)
    place.now += 3600
    policy = place.service.policy_cache.current("feed")
    place.service.close_round("feed", who="ann")
    drawn = policy.draw("too late")
    late = {"type": "exposure", "id": "late", "unit": "too late", "version": policy.version, "candidate": drawn.name}
    place.service.ingest("feed", place.service.decode(json.dumps([late]).encode())).result()
    quality = write_record(place.service.report("feed"))["quality"]
    assert quality["units"] == 200
    assert quality["late"] == {"events": 1, "share": 1 / 401}
    assert set(quality["clipped"]) == {"x", "y", "rate.numerator", "rate.denominator"}


def test_a_report_of_nothing_claims_nothing(playground: Make) -> None:
    place = playground()
    report = place.service.report("feed")
    document = write_record(report)
    assert document["verdict"]["headline"] == "Keep collecting"
    assert {row["word"] for row in document["verdict"]["metrics"]} == {"not measured"}
    assert document["confirmation"] is None
    assert "No round has been learned yet." in render_text(report)
    with pytest.raises(NotFittedError):
        place.service.what_if("feed", keep=["y >= -1%"])


def test_a_confirmation_counts_each_unit_once_and_reports_the_promised_shares(playground: Make) -> None:
    place = learned(playground)
    place.service.change("feed", "confirm", who="ann")
    with pytest.raises(LifecycleError, match="too few units"):
        place.service.change("feed", "deploy", who="ann")
    scheduler = Scheduler(place.service)
    for _ in range(4):
        place.crowd(300)
        place.now += 3601
        assert scheduler.tick() == 1
    report = place.service.report("feed")
    document = write_record(report)
    confirmation = document["confirmation"]
    assert sum(confirmation["units"].values()) == 1200
    assert confirmation["sequential"]
    assert confirmation["looks"] == 4
    targets = {one["target"] for one in confirmation["lifts"]}
    assert "the blend" in targets
    frozen = document["frozen"]["probabilities"]
    true = sum(share * TRUTH[name][0] for name, share in frozen.items()) / TRUTH["w=1"][0] - 1
    relative = lift_of(confirmation, "the blend", "x")["relative"]
    assert relative["low"] < true < relative["high"]
    predicted = {(one["target"], one["metric"]): one for one in confirmation["predicted"]}
    assert predicted["the blend", "x"]["predicted"] == pytest.approx(document["frozen"]["lifts"]["x"] / 100, rel=1e-6)
    assert predicted["the blend", "x"]["inside"]
    assert "Predicted and realised" in render_text(report)
    overview = place.service.change("feed", "deploy", who="ann", reason="certified", without_confirmation=True)
    assert overview.state == "deployed"
    assert place.service.replay("feed").identical


def test_a_horizon_is_judged_by_the_first_look_behind_it(playground: Make) -> None:
    place = learned(playground)
    place.service.change("feed", "confirm", who="ann", days=0.125)
    scheduler = Scheduler(place.service)
    widths = []
    for _ in range(5):
        place.crowd(200)
        place.now += 3601
        scheduler.tick()
        confirmation = write_record(place.service.report("feed"))["confirmation"]
        widths.append((confirmation["sequential"], sum(confirmation["units"].values())))
    assert widths == [(True, 200), (True, 400), (False, 600), (False, 600), (False, 600)]
    assert "has been reached" in confirmation["note"]
    looks = PolicyCache(place.store).reload("feed").rounds.looks
    spec = place.service.policy_cache.snapshot("feed").spec
    anytime = report_confirmation(spec, looks[:3], ("w=0", "w=1", "w=2", "w=3"))
    assert anytime is not None
    lifts = {"lifts": [asdict(lift) for lift in anytime.lifts]}
    wide, narrow = (lift_of(report, "the blend", "x")["relative"] for report in (lifts, confirmation))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


@pytest.mark.parametrize(
    "options", [{"days": 0}, {"days": True}, {"until": "soon"}, {"until": 5.0}, {"days": 1, "until": "2100-01-01"}]
)
def test_a_horizon_that_makes_no_sense_is_refused(playground: Make, options: dict[str, Any]) -> None:
    place = learned(playground, rounds=1)
    with pytest.raises(OptionError):
        place.service.change("feed", "confirm", who="ann", **options)
    assert place.service.show("feed").state == "learning"


def test_another_question_is_answered_as_if_it_had_been_the_study_s(playground: Make) -> None:
    place = learned(playground)
    found = write_record(place.service.what_if("feed", keep=["y >= -1%"]))
    assert found["objective"] == "maximize x, keep y >= -1%"
    saved = place.store.read_learner_state(1)
    assert saved is not None
    study = pasto.Study.from_state(json.loads(saved))
    means = study.posterior_samples()[0]
    objective = pasto.maximize("x").keep("y", at_least="-1%")
    exact = pasto.solve(means, objective, names=study.candidates.names, baseline="w=1")
    assert found["answer"]["probabilities"] == pytest.approx(
        {study.candidates.names[k]: exact.probabilities[k] for k in exact.support}
    )
    assert found["lifts"]["y"]["value"] == pytest.approx(-0.01, abs=1e-6)
    assert found["lifts"]["x"]["low"] < found["lifts"]["x"]["value"] < found["lifts"]["x"]["high"]
    own = write_record(place.service.what_if("feed", drop=["y"]))
    assert own["answer"]["probabilities"] == {"w=0": 1.0}
    other = place.service.what_if("feed", maximize=["rate"], drop=["y"], only=["w=2", "w=3"])
    document = write_record(other)
    assert document["objective"] == "maximize rate"
    assert document["from_log"] == ["rate.numerator", "rate.denominator"]
    assert set(document["answer"]["probabilities"]) == {"w=2"}
    assert "stay as they" in render_what_if(other)


def test_a_question_about_what_is_not_there_is_refused(playground: Make) -> None:
    place = learned(playground, rounds=2)
    with pytest.raises(ObjectiveError, match="measures no 'clicks'; it measures x, y, rate"):
        place.service.what_if("feed", maximize=["clicks"])
    with pytest.raises(OptionError, match="no guardrail 'x' to drop; the study keeps y"):
        place.service.what_if("feed", drop=["x"])
    with pytest.raises(OptionError, match="no candidate 'w=9'"):
        place.service.what_if("feed", only=["w=9"])


def test_prices_and_the_trade_off_are_those_of_the_means(playground: Make) -> None:
    place = learned(playground)
    report = write_record(place.service.report("feed"))
    (price,) = report["prices"]
    assert price["low"] < price["value"] < price["high"]
    # Along the line from w=0 to w=2, a percent of y costs this many percents of x.
    true = (TRUTH["w=0"][0] - TRUTH["w=2"][0]) / (TRUTH["w=2"][1] - TRUTH["w=0"][1]) * TRUTH["w=1"][1] / TRUTH["w=1"][0]
    assert price["value"] == pytest.approx(true, rel=0.1)
    assert price["words"].startswith("Relaxing y by one percentage point buys")
    curve = report["trade_off"]
    points = sorted((one["y"], one["x"]) for one in curve["blends"])
    assert all(before[1] >= after[1] - 1e-9 for before, after in itertools.pairwise(points))
    best = {one["name"]: one for one in curve["singles"]}
    at = np.interp(best["w=1"]["y"], [y for y, _ in points], [x for _, x in points])
    assert at > best["w=1"]["x"] + 0.5
    assert curve["answer"]["x"] == pytest.approx(report["blend"]["metrics"]["x"])


def test_a_certificate_bounds_all_hard_guardrails_together(playground: Make) -> None:
    rails = [
        {"metric": "y", "at_least": 9.0},
        {"metric": "rate", "at_least": 0.3},
        {"metric": "x", "at_least": 9, "penalty": 1},
    ]
    place = playground(guardrails=rails)
    for _ in range(4):
        place.round()
    place.service.change("feed", "confirm", who="ann", reason="enough")
    report = place.service.report("feed")
    document = write_record(report)
    for answer in (document["blend"], document["frozen"], write_record(place.service.show("feed"))["frozen"]):
        certificate = answer["certificate"]
        assert certificate["hard"] == ["y", "rate"]
        expected = 1.0 - sum(1.0 - certificate["holds"][name] for name in ("y", "rate"))
        assert certificate["joint_lower_bound"] == pytest.approx(max(0.0, expected))
    assert "Both together hold with at least" in " ".join(render_text(report).split())


def test_a_page_needs_no_other_files(playground: Make) -> None:
    place = learned(playground, rounds=3)
    page = render_html(place.service.report("feed"))
    assert "<script" not in page
    assert "http-equiv" not in page
    assert "src=" not in page
    assert all("w3.org" in part.split('"')[0] for part in page.split('="http')[1:])
    assert page.count('<svg role="img"') == 2


def test_plans_start_from_what_was_measured(playground: Make) -> None:
    place = learned(playground, rounds=3)
    spreads = write_record(place.service.report("feed"))["spreads"]
    assert spreads["x"]["units"] == 300
    assert spreads["x"]["mean"] == pytest.approx(9.8, abs=0.3)
    assert spreads["x"]["deviation"] == pytest.approx(1.0, abs=0.2)
    assert spreads["x"]["control"] == pytest.approx(0.2)


def test_of_very_many_rounds_the_latest_are_read(playground: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = learned(playground, rounds=4)
    monkeypatch.setattr("pasto.service.round_history.MAX_NUMBERS", 2 * 5 * 4 * 5)
    rounds = PolicyCache(place.store).reload("feed").rounds.rounds
    assert [one.version for one in latest(rounds)] == [3, 4]
    assert [one.version for one in read_judged_rounds(place.store, 1)] == [1, 2, 3, 4]
