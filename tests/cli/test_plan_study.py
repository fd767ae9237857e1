"""`pasto plan FILE`: the plan of a study file, from options, a history or an earlier study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.cli import plan_study
from pasto.planning import make_plan
from pasto.report.lift_records import MetricSpread
from pasto.report.records import Report
from pasto.service.service import Service

STUDY = """
name: feed
baseline: {setting: a}
candidates: [{setting: a}, {setting: b}, {setting: c}, {setting: d}, {setting: e}]
metrics:
  watch_time: {event: watch, value: seconds, aggregate: sum, cap: 7200, window: 2h}
  liked: {event: like, aggregate: any}
  like_rate: {ratio: [{event: like, aggregate: count, cap: 200}, {event: view, aggregate: count, cap: 1000}]}
goal: {maximize: watch_time}
guardrails:
  - {metric: liked, at_least: -2%, stop_at: -5%}
  - {metric: like_rate, at_least: 0.03, penalty: 5}
traffic: {control: 10%}
rounds: {every: 1h, maturity: 2h}
"""
GIVEN = ("--mean", "watch_time=310", "--std", "watch_time=420", "--mean", "liked=20%", "--mean", "like_rate=0.04")


@pytest.fixture(autouse=True)
def few_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate few studies, which is fast."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)

    def quick(outline: Any, *, days: float, seed: int) -> Any:
        return make_plan(outline, days=days, studies=12, seed=seed)

    monkeypatch.setattr("pasto.planning.make_plan", quick)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "feed.yaml"
    path.write_text(STUDY)
    return path


def facts_of(run: Any, *words: object) -> dict[str, dict[str, Any]]:
    """Return the facts of a plan: value and source, by metric and quantity."""
    outcome = run("plan", *words, "--json", "--days", 3)
    assert outcome.exit_code == 0, outcome.stderr
    facts: dict[str, dict[str, Any]] = {}
    for fact in json.loads(outcome.stdout)["facts"]:
        facts.setdefault(fact["metric"], {})[fact["quantity"]] = (fact["value"], fact["source"])
    return facts


def test_a_plan_has_a_reason_for_every_number(run: Any, study_file: Path) -> None:
    outcome = run("plan", study_file, "--units-per-day", "2e5", *GIVEN, "--days", 7, env={"COLUMNS": "80"})
    assert outcome.exit_code == 0, outcome.stderr
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    text = " ".join(outcome.stdout.split())
    assert "rounds 1d (the study file has 1h) Metrics may follow the hour of the day" in text
    assert "(now 10%) The error of the blend's lift is smallest with a control of" in text
    assert "candidates 20 or more (now 5) Expected gain after 7 days:" in text
    assert "liked >= -2% certificate after" in text
    assert "like_rate >= 0.03 no certificate A soft guardrail has no certificate" in text
    assert "confirmation 7 days" in text
    assert "standard deviation of one user 0.4 (assumed from the mean, because a unit has 0 or 1)" in text


def test_the_numbers_of_a_plan_are_printed_as_json(run: Any, study_file: Path) -> None:
    words = ("plan", study_file, "--units-per-day", "2e5", *GIVEN, "--days", 7, "--json")
    document = json.loads(run(*words).stdout)
    assert document["rounds"] == {
        "seconds": 86400.0,
        "reason": "swing unknown",
        "given": 3600.0,
        "window": 7200.0,
        "maturity": 7200.0,
        "units_per_candidate": 36000.0,
    }
    assert document["guardrails"][0]["days"] > 1.0
    assert document["guardrails"][1]["state"] == "soft"
    assert document["gain"]["course"][0]["day"] == pytest.approx(1 + 2 / 24)
    assert document == json.loads(run(*words).stdout)
    steady = json.loads(run(*words, "--daily-swing", "none").stdout)["rounds"]
    assert (steady["seconds"], steady["reason"]) == (7200.0, "maturity")


def test_what_is_not_given_is_assumed_by_the_kind_of_metric(run: Any, study_file: Path) -> None:
    facts = facts_of(run, study_file, "--units-per-day", "2e5", *GIVEN, "--spread", "3%", "--spread", "liked=1%")
    assert facts["watch_time"] == {"mean": (310, "given"), "deviation": (420, "given"), "spread": (0.03, "given")}
    assert facts["liked"]["deviation"] == (pytest.approx(0.4), "zero or one")
    assert facts["liked"]["spread"] == (0.01, "given")
    assert facts["like_rate"]["deviation"] == (pytest.approx(np.sqrt(0.04 * 0.96)), "one event")
    few = facts_of(run, study_file, "--units-per-day", "2e5", "--mean", "like_rate=0.04")
    assert few["watch_time"] == {"mean": (1, "default"), "deviation": (2, "default"), "spread": (0.02, "default")}


def test_options_win_over_a_history_of_any_kind(run: Any, study_file: Path, tmp_path: Path) -> None:
    by_metric = tmp_path / "metrics.csv"
    by_metric.write_text("metric,mean,std\nwatch_time,300,400\nliked,0.3,\nlike_rate,0.05,0.3\n")
    facts = facts_of(run, study_file, "--units-per-day", "2e5", "--history", by_metric, "--mean", "watch_time=310")
    assert facts["watch_time"]["mean"] == (310, "given")
    assert facts["watch_time"]["deviation"] == (400, "history")
    assert facts["liked"]["deviation"] == (pytest.approx(np.sqrt(0.21)), "zero or one")
    by_candidate = tmp_path / "candidates.json"
    rows = [{"candidate": f"{k}", "units": 900, "watch_time": 300 + k, "watch_time_se": 10} for k in range(4)]
    by_candidate.write_text(json.dumps([{**row, "like_rate": 0.04, "like_rate_se": 0.001} for row in rows]))
    facts = facts_of(run, study_file, "--units-per-day", "2e5", "--history", by_candidate)
    assert facts["watch_time"]["deviation"] == (pytest.approx(300.0), "history")
    assert facts["watch_time"]["spread"][1] == "history"
    written = tmp_path / "past.yaml"
    written.write_text("watch_time: {mean: 300, std: 400, spread: 4%}\nlike_rate: {mean: 0.04}\n")
    facts = facts_of(run, study_file, "--units-per-day", "2e5", "--history", written)
    assert facts["watch_time"]["spread"] == (0.04, "history")


def test_the_history_in_a_study_file_is_used(run: Any, study_file: Path) -> None:
    rows = "".join(
        f"  - {{setting: {setting}, units: 900, watch_time: {300 + place}, watch_time_se: 10}}\n"
        for place, setting in enumerate("abcd")
    )
    study_file.write_text(f"{STUDY}history:\n{rows}")
    facts = facts_of(run, study_file, "--units-per-day", "2e5", "--mean", "like_rate=0.04")
    assert facts["watch_time"]["deviation"] == (pytest.approx(300.0), "history")
    bare = rows.replace(", watch_time_se: 10", "")
    study_file.write_text(f"{STUDY}history:\n{bare}")
    facts = facts_of(run, study_file, "--units-per-day", "2e5", "--mean", "like_rate=0.04")
    assert facts["watch_time"]["deviation"] == (2.0, "default")


def test_an_earlier_study_gives_deviations_and_the_swing(
    run: Any, study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spreads = {
        "watch_time": MetricSpread(1000.0, 300.0, 450.0, 0.1, effect_spread=0.05, swing=0.2),
        "like_rate": MetricSpread(1000.0, 0.04, 0.2, 0.1),
        "other": MetricSpread(1000.0, 1.0, 1.0, 0.1),
    }
    reports = {"old": Report("old", "learning", 3, 3, spreads=spreads), "new": Report("new", "draft", 0, 0)}
    monkeypatch.setattr(Service, "report", lambda service, name: reports[name])
    words = ("--units-per-day", "2e5", "--store", tmp_path, "--from")
    facts = facts_of(run, study_file, *words, "old")
    assert facts["watch_time"] == {"mean": (300, "study"), "deviation": (450, "study"), "spread": (0.05, "study")}
    plan = json.loads(run("plan", study_file, *words, "old", "--days", 3, "--json").stdout)
    assert plan["rounds"]["reason"] == "swing seen"
    assert "has not measured a round yet; give --history" in run("plan", study_file, *words, "new").stderr
    reports["old"] = Report("old", "learning", 3, 3, spreads={"other": spreads["other"]})
    assert "study 'old' measured other, and feed has none of them" in run("plan", study_file, *words, "old").stderr


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("FILE",), "add --units-per-day with the units that come in a day"),
        (("FILE", "--units-per-day", "0", *GIVEN), "Invalid value for '--units-per-day'"),
        (
            ("FILE", "--units-per-day", "1e5"),
            "the mean of like_rate is needed, because its guardrail like_rate >= 0.03",
        ),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--mean", "watch=3"), "did you mean 'watch_time'?"),
        (("FILE", "--units-per-day", "1e5", "--mean", "310"), "--mean needs a metric and its number"),
        (("FILE", "--units-per-day", "1e5", "--mean", "liked=much"), "--mean must be a number such as 310 or 3%"),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--mean", "liked=1"), "--mean is given twice for 'liked'"),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--std", "liked=-1"), "the deviation of liked must be a positive"),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--history", "no.csv"), "there is no file 'no.csv'"),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--history", "no.yaml"), "cannot read 'no.yaml'"),
        (("FILE", "--units-per-day", "1e5", *GIVEN, "--from", "old"), "there is no store in"),
        (("FILE", "--effect", "1%"), "--effect is for a plan without a study file"),
        (("--units-per-day", "1e5"), "--units-per-day is for a plan with a study file"),
        ((), "name a study file to plan it, or --effect"),
        (("--effect", "1", "--units", "9", "--std", "x=1"), "--std needs one number, without a metric"),
    ],
)
def test_an_incomplete_plan_of_a_study_names_the_fix(
    run: Any, study_file: Path, tmp_path: Path, words: tuple[str, ...], printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rejected = run("plan", *(study_file if word == "FILE" else word for word in words))
    assert rejected.exit_code == 2
    assert printed in rejected.stderr


def test_a_yaml_history_with_other_fields_is_refused(run: Any, study_file: Path, tmp_path: Path) -> None:
    written = tmp_path / "past.yaml"
    written.write_text("watch_time: {average: 300}\n")
    rejected = run("plan", study_file, "--units-per-day", "2e5", "--history", written)
    assert "watch_time in" in rejected.stderr
    assert "must have mean, std or spread" in rejected.stderr


def test_a_study_over_ranges_has_no_list_of_candidates(run: Any, study_file: Path) -> None:
    ranges = "ranges: {weight: {low: 0, high: 2}}"
    text = STUDY.replace("baseline: {setting: a}", "baseline: {weight: 1}")
    study_file.write_text(text.replace(text[text.index("candidates:") : text.index("metrics:")], f"{ranges}\n"))
    outcome = run("plan", study_file, "--units-per-day", "2e5", *GIVEN, "--days", 3)
    assert "10 (to begin with)" in outcome.stdout
    assert "begins with so many settings of its ranges" in outcome.stdout


def test_only_the_posterior_blend_is_forecast(run: Any, study_file: Path) -> None:
    study_file.write_text(STUDY.replace("metric: liked, at_least: -2%", "metric: liked, penalty: 1, at_least: -2%")
                          .replace("rounds:", "learner: algorithm1\nrounds:"))  # fmt: skip
    rejected = run("plan", study_file, "--units-per-day", "2e5", *GIVEN)
    assert "names 'algorithm1'; plan with learner: thompson" in rejected.stderr


def test_numbers_by_metric_are_read() -> None:
    assert plan_study.read_metric_numbers(["a=1e3", "b = 2%"], "--mean") == {"a": 1000.0, "b": 0.02}
