from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
LONGEST = 85
"""Lines: an example is read top to bottom in one sitting."""


def output(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(line: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.\d+", line)]


def test_every_example_is_tested_short_and_has_a_description() -> None:
    mine = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert f'output("{path.name}"' in mine
        assert text.startswith('"""')
        assert len(text.splitlines()) <= LONGEST


def test_two_arms(capsys: pytest.CaptureFixture[str]) -> None:
    printed = output("two_arms.py", capsys)
    assert "50.0% bold + 50.0% careful: f(x) = 1 (x = 1, y = 0)" in printed
    assert "mixing is worth 1; a unit of y is worth 0.5 x" in printed
    assert "f(x) = 1.0125" in printed


def test_learn_blend(capsys: pytest.CaptureFixture[str]) -> None:
    printed = output("learn_blend.py", capsys)
    assert "restored after 20 rounds" in printed
    assert "certified at 95%: True" in printed
    assert "keep learning" in printed
    likes, shares = numbers(printed.splitlines()[-2])
    assert likes >= 6
    assert shares >= 4
    learned, single, best = numbers(printed.splitlines()[-1])
    assert single < learned <= best


def test_quotas(capsys: pytest.CaptureFixture[str]) -> None:
    printed = output("quotas.py", capsys)
    assert "165 ways to fill the page" in printed
    assert "exposure = 3, load = 35" in printed
    assert float(re.findall(r"mixing is worth ([\d.]+)", printed)[0]) > 1


def test_two_phase_ranker(capsys: pytest.CaptureFixture[str]) -> None:
    printed = output("two_phase_ranker.py", capsys)
    assert "holds: likes 95" in printed
    blend, single = (numbers(line) for line in printed.splitlines()[-2:])
    clicks, likes, new_views, complaints = blend
    assert clicks > single[0] + 0.1
    assert likes > 0.65  # the guardrails hold on new traffic, to within its noise
    assert new_views > 1.4
    assert complaints < 0.25
