from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pasto.demo import environment, scenario
from pasto.demo.checks import Check
from pasto.demo.scenario import DemoPlan, DemoResult
from pasto.report.records import BlendRecord, CertificateRecord, GainRecord
from pasto.sim import feed
from tests.demo.in_process_environment import InProcessEnvironment

TINY = DemoPlan(rounds=2, users=200, confirming=400, truth=1_000)


@pytest.fixture(scope="module")
def demo_result() -> DemoResult:
    """Return a result that counts as won, even if little was learned."""
    with InProcessEnvironment() as inside:
        result = scenario.run_demo(feed(), inside, plan=TINY, seed=1)
    return replace(result, checks=tuple(replace(check, held=True) for check in result.checks))


@pytest.fixture
def demo_calls(monkeypatch: pytest.MonkeyPatch, demo_result: DemoResult) -> list[dict[str, Any]]:
    """Record the calls of the command, without running the demonstration."""
    calls: list[dict[str, Any]] = []

    @contextmanager
    def serving(folder: Path) -> Iterator[InProcessEnvironment]:
        with InProcessEnvironment() as inside:
            yield inside

    def spy(application: Any, _: Any, **options: Any) -> DemoResult:
        calls.append({"name": application.name, **options})
        return demo_result

    monkeypatch.setattr(environment, "run_service", serving)
    monkeypatch.setattr(scenario, "run_demo", spy)
    return calls


def test_the_demo_ends_with_the_blend_ahead(run: Any) -> None:
    result = run("demo", "--quick", "--users", 1_500)
    assert result.exit_code == 0, result.stderr
    assert "Certified: each guardrail holds with a probability of: like_rate 99.9" in result.stdout
    assert re.search(r"^baseline +\+0\.0%", result.stdout, re.MULTILINE)
    assert re.search(r"^probabilistic +\+\d+\.\d% \(\+\d+\.\d% to \+\d+\.\d%\)", result.stdout, re.MULTILINE)
    assert len(re.findall(r"^✓", result.stdout, re.MULTILINE)) >= 6
    assert "✗" not in result.stdout
    lines = re.findall(r"^round \d+ of 12: .* users; served watch_time", result.stderr, re.MULTILINE)
    assert len(lines) == 10
    assert "confirming: 27,000 users" in result.stderr
    assert re.search(r"The service runs at http://127\.0\.0\.1:\d+, on a store in ", result.stderr)
    assert "\x1b" not in result.stderr


def test_options_choose_world_seed_rounds_and_traffic(run: Any, demo_calls: list[dict[str, Any]]) -> None:
    run("demo")
    run("demo", "ads", "--quick", "--seed", 7)
    run("demo", "feed", "--rounds", 5, "--users", 100, "--rough-traffic")
    run("demo", "shop")
    run("demo", "shop", "--quick", "--rough-traffic")
    assert [(call["name"], call["seed"], call["plan"].rounds, call["plan"].confirming) for call in demo_calls] == [
        ("feed", 1, 30, 30_000),
        ("ads", 7, 12, 30_000),
        ("feed", 1, 5, 600),
        ("shop", 1, 12, 90_000),
        ("shop", 1, 5, 90_000),
    ]
    assert [call["conditions"].lost for call in demo_calls] == [0, 0, 0.02, 0, 0.02]
    assert [call["conditions"].night for call in demo_calls] == [0, 0, 0.2, 0.4, 0.4]


def test_json_has_everything(run: Any, demo_calls: list[dict[str, Any]]) -> None:
    document = json.loads(run("demo", "--json").stdout)
    assert document["won"] is True
    assert sum(document["shares"].values()) == pytest.approx(1)
    assert {lift["metric"] for lift in document["lifts"]} == {"watch_time", "like_rate", "share_rate"}
    assert [one["label"] for one in document["standings"]] == ["baseline", "best single", "the blend", "best possible"]
    assert "report" not in document


def test_the_report_is_written_as_one_page(run: Any, demo_calls: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run("demo", "--html", tmp_path / "report.html")
    assert f"wrote {tmp_path / 'report.html'}" in result.stderr
    assert "<h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    rejected = run("demo", "--html", tmp_path / "nowhere" / "report.html")
    assert (rejected.exit_code, "cannot be written" in rejected.stderr) == (2, True)


def test_a_failed_check_gives_exit_code_one(
    run: Any, demo_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, demo_result: DemoResult
) -> None:
    lost = replace(demo_result, checks=(*demo_result.checks, Check("the moon is cheese", False, "it is rock")))
    monkeypatch.setattr(scenario, "run_demo", lambda *_, **__: lost)
    result = run("demo")
    assert result.exit_code == 1
    assert "✗ the moon is cheese: it is rock" in result.stdout
    assert result.stderr.splitlines()[-1] == "error: the check failed that the moon is cheese: it is rock"


def test_the_service_can_be_left_running(
    run: Any, demo_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, demo_result: DemoResult
) -> None:
    steps: list[str] = []

    class RunningEnvironment(InProcessEnvironment):
        def start(self) -> None:
            steps.append("started")

        def wait(self) -> None:
            steps.append("waited")
            raise KeyboardInterrupt

    @contextmanager
    def serving(folder: Path) -> Iterator[RunningEnvironment]:
        with RunningEnvironment() as environment_left:
            yield environment_left
            steps.append("ended")

    monkeypatch.setattr(environment, "run_service", serving)
    result = run("demo", "ads", "--keep-running")
    assert (result.exit_code, steps) == (0, ["started", "waited", "ended"])
    assert "open in-process in a browser" in result.stderr
    assert "pasto report ads --url in-process" in result.stderr


def test_a_best_single_setting_that_is_the_baseline_is_printed(
    run: Any, demo_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, demo_result: DemoResult
) -> None:
    lifts = tuple(lift for lift in demo_result.lifts if lift.target == "probabilistic")
    monkeypatch.setattr(scenario, "run_demo", lambda *_, **__: replace(demo_result, best_single=None, lifts=lifts))
    assert re.search(r"^best single +the baseline", run("demo").stdout, re.MULTILINE)


def test_on_a_terminal_the_picture_moves(
    run: Any, demo_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, demo_result: DemoResult
) -> None:
    def moving(*_: Any, report: Any, **__: Any) -> DemoResult:
        certificate = CertificateRecord(0.95, True, holds={"like_rate": 0.9999})
        lifts, gain = {"like_rate": -2.5}, GainRecord("a", 0.1, 0.1)
        blend = BlendRecord({"a": 1.0}, 0.1, {}, lifts, {}, True, {}, "a", 0.1, gain, certificate)
        served = {"watch_time": 0.1, "like_rate": -0.06}
        report(scenario.DemoUpdate("learning", 7, 30, 35_000, 80_000, {"a": 0.6, "b": 0.4}, served, blend, 0.123))
        return demo_result

    monkeypatch.setattr(scenario, "run_demo", moving)
    result = run("demo", env={"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"})
    output = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", result.stderr)
    assert "learning: round 7 of 30   35,000 users, 80,000 events" in output
    assert "the blend so far is truly 12.3% above the best single setting" in output
    assert re.search(r"like_rate +-6\.0% +-5% +-2\.5% +99\.990%", output)
    assert re.search(r"a +60% +█{18}", output)
