from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

import pasto.demo
from pasto.demo import Result


def test_the_demo_ends_with_the_blend_ahead(run: Any) -> None:
    result = run("demo", "--fast")
    assert result.exit_code == 0
    rows = {line[:15].strip(): line for line in result.stdout.splitlines() if re.search(r"held|broken", line)}
    lifts = {label: float(re.findall(r"[+-]\d+\.\d(?=%)", row)[0]) for label, row in rows.items()}
    assert list(lifts) == ["today", "best single", "learned blend", "best possible"]
    assert 0 == lifts["today"] < lifts["best single"] < lifts["learned blend"] <= lifts["best possible"]
    assert all("held" in row for row in rows.values())
    assert "Certified: each guardrail is to hold with 99.9%; believed like_rate 99." in result.stdout
    assert "Advice: keep learning: " in result.stdout


def test_progress_is_on_stderr_as_plain_lines(run: Any) -> None:
    result = run("demo", "--rounds", 20)
    line = r"^round \d+ of 20: estimated watch_time.*; holds: like_rate .*; still to gain: .*$"
    assert len(re.findall(line, result.stderr, re.MULTILINE)) == 10
    assert "\x1b" not in result.stderr
    assert "estimated" not in result.stdout


def test_json_has_everything(run: Any) -> None:
    told = json.loads(run("demo", "--rounds", 6, "--seed", 5, "--json").stdout)
    assert (told["rounds"], told["seed"], told["learner"]) == (6, 5, "thompson")
    assert told["certificate"]["holds"].keys() == {"like_rate", "share_rate"}
    assert sum(told["shares"].values()) == pytest.approx(1)
    assert told["blend"]["lifts"]["watch_time"] > told["single"]["lifts"]["watch_time"]


def test_fast_is_fewer_rounds(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    learned = pasto.demo.learn(rounds=2)

    def spy(*, rounds: int, seed: int, learner: str, report: Any) -> Result:
        asked.append(rounds)
        return learned

    monkeypatch.setattr(pasto.demo, "learn", spy)
    for words in ((), ("--fast",), ("--fast", "--rounds", "7")):
        run("demo", *words)
        run("demo", *words, "--learner", "pasto")
    assert asked == [60, 2_000, 20, 500, 7, 7]


def test_algorithm_1_is_shown_without_a_certificate(run: Any) -> None:
    result = run("demo", "--learner", "pasto", "--rounds", 200)
    assert result.exit_code == 0
    assert "pasto gives no certificate" in result.stdout
    assert "ertified:" not in result.stdout
    assert "holds" not in result.stderr


@pytest.mark.parametrize("how", ["worse", "broken"])
def test_a_blend_that_does_not_win_fails_loudly(run: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    learned = pasto.demo.learn(rounds=2)
    bad = learned.baseline if how == "worse" else replace(learned.optimum, broken=("like_rate",))
    lost = replace(learned, blend=replace(bad, label="learned blend"))
    monkeypatch.setattr(pasto.demo, "learn", lambda **_: lost)
    result = run("demo")
    assert result.exit_code == 1
    assert ("broken: like_rate" in result.stdout) == (how == "broken")
    assert "learned blend" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("error: the learned blend does not beat the best single setting")


def test_on_a_terminal_the_picture_moves(run: Any) -> None:
    result = run("demo", "--rounds", 4, env={"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"})
    assert "served now" in result.stderr
    assert "round 4 of 4, day 1 00:40" in result.stderr
    assert "blend so far: " in result.stderr
    assert re.search(r"holds: like_rate \d+\.\d%, share_rate \d+\.\d%", result.stderr)
    assert "still to gain: " in result.stderr
