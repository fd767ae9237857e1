import json
from pathlib import Path

import numpy as np
import pytest

from pasto_research.paper import Outcome, run, write
from pasto_research.paper.experiment import Size
from pasto_research.paper.figure2_blend import COUNTS, GUARDRAILS, problems


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run("illustration", runs=96)


def test_the_two_arms_equal_those_of_the_paper(outcome: Outcome) -> None:
    hard, soft = outcome.data["two_arms"]["hard"], outcome.data["two_arms"]["soft"]
    assert (hard["probabilities"], hard["value"], hard["single"]) == ((0.5, 0.5), 1.0, 0.0)
    assert soft["probabilities"] == pytest.approx((0.5125, 0.4875))
    assert soft["value"] == pytest.approx(1.0125)
    assert [claim.holds for claim in outcome.claims] == [True, True, True, None, True]


def test_every_mix_of_sizes_and_kinds_is_drawn(outcome: Outcome) -> None:
    drawn = outcome.data["problems"]
    kinds = set(zip(drawn["candidates"], drawn["guardrails"], drawn["soft"], strict=True))
    assert len(kinds) == 2 * len(COUNTS) * len(GUARDRAILS)
    assert len(drawn["gain"]) == 96


def test_gains_are_of_every_sort() -> None:
    drawn = [one for one in problems(Size(runs=480, rounds=1, seed=2)) if one.feasible]
    gains = np.array([one.gain for one in drawn])
    assert (gains >= -1e-9).all()
    assert (gains <= 1e-9).any()
    assert ((gains > 1e-3) & (gains < np.inf)).any()
    assert np.isinf(gains[[not one.soft for one in drawn]]).any()  # only a blend meets the guardrails
    assert np.isfinite(gains[[one.soft for one in drawn]]).all()
    assert all(one.support <= 1 + one.guardrails for one in drawn)
    assert any(one.support == 1 + one.guardrails for one in drawn)


def test_a_seed_repeats_and_another_differs() -> None:
    assert problems(Size(runs=20, rounds=1, seed=5)) == problems(Size(runs=20, rounds=1, seed=5))
    assert problems(Size(runs=20, rounds=1, seed=5)) != problems(Size(runs=20, rounds=1, seed=6))


def test_progress_counts_to_the_end() -> None:
    calls: list[tuple[str, int, int]] = []
    problems(Size(runs=130, rounds=1, progress=lambda label, done, total: calls.append((label, done, total))))
    assert calls == [("random problems", 100, 130), ("random problems", 130, 130)]


def test_one_problem_is_enough_and_everything_can_be_written(outcome: Outcome, tmp_path: Path) -> None:
    assert run("illustration", runs=1).claims[2].holds is True
    names = {path.name for path in write(outcome, tmp_path)}
    assert names == {
        "illustration.json",
        "illustration.md",
        *(f"{name}.{ending}" for name in ("illustration", "observation-1") for ending in ("png", "svg")),
    }
    assert json.loads((tmp_path / "illustration.json").read_text(encoding="utf-8"))["data"]["problems"]["soft"][0]
