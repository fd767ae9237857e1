from __future__ import annotations

import json
import re
from typing import Any

import pytest

import pasto.demo
from pasto.demo import Result


def test_the_demo_ends_with_the_blend_ahead(run: Any) -> None:
    result = run("demo", "--rounds", 200)
    assert result.exit_code == 0
    rows = {line[:15].strip(): line for line in result.stdout.splitlines() if re.search(r"held|broken", line)}
    lifts = {label: float(re.findall(r"[+-]\d+\.\d(?=%)", row)[0]) for label, row in rows.items()}
    assert list(lifts) == ["today", "best single", "learned blend", "best possible"]
    assert 0 == lifts["today"] < lifts["best single"] < lifts["learned blend"] <= lifts["best possible"] + 1
    assert "held" in rows["learned blend"]


def test_progress_is_on_stderr_as_plain_lines(run: Any) -> None:
    result = run("demo", "--rounds", 100)
    assert len(re.findall(r"^round \d+ of 100: estimated watch_time", result.stderr, re.MULTILINE)) == 10
    assert "\x1b" not in result.stderr
    assert "estimated" not in result.stdout


def test_json_has_everything(run: Any) -> None:
    told = json.loads(run("demo", "--rounds", 60, "--seed", 5, "--json").stdout)
    assert (told["rounds"], told["seed"]) == (60, 5)
    assert sum(told["shares"].values()) == pytest.approx(1)
    assert told["blend"]["lifts"]["watch_time"] > told["single"]["lifts"]["watch_time"]


def test_fast_is_fewer_rounds(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    learn = pasto.demo.learn

    def spy(*, rounds: int, seed: int, report: Any) -> Result:
        asked.append(rounds)
        return learn(rounds=10, seed=seed)

    monkeypatch.setattr(pasto.demo, "learn", spy)
    for words in ((), ("--fast",), ("--fast", "--rounds", "7")):
        run("demo", *words)
    assert asked == [2_000, 500, 7]


def test_a_blend_that_does_not_win_fails_loudly(run: Any) -> None:
    result = run("demo", "--rounds", 1)
    assert result.exit_code == 1
    assert "learned blend" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("error: the learned blend does not beat the best single setting")


def test_on_a_terminal_the_picture_moves(run: Any) -> None:
    result = run("demo", "--rounds", 40, env={"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"})
    assert "served now" in result.stderr
    assert "round 40 of 40, day 1 06:40" in result.stderr
