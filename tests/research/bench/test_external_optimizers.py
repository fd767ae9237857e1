"""External optimisers of the race: offered if they are installed, imported only when they run."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from pasto_research.bench import external_optimizers as peers
from pasto_research.bench.learners import ADAPTERS, race
from pasto_research.bench.worlds import WorldFamily, uniform

MODULES = ["ax", "optuna"]


def test_the_players_offered_are_those_whose_module_is_there() -> None:
    expected = [name for module in peers.PEERS if find_spec(module) for name in peers.PEERS[module]]
    assert list(peers.installed()) == expected
    everyone = {name for players in peers.PEERS.values() for name in players}
    assert {name for name in ADAPTERS if name in everyone} == set(expected)


@pytest.mark.parametrize("there", [[], ["optuna"], ["ax"], MODULES])
def test_each_module_brings_its_own_players(there: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda module: object() if module in there else None)
    assert set(peers.installed()) == {name for module in there for name in peers.PEERS[module]}


def test_the_benchmarks_load_neither() -> None:
    code = f"import sys, pasto_research.bench; print([name for name in {MODULES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_race_runs_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in peers.installed():
        monkeypatch.delitem(ADAPTERS, name)
    small = WorldFamily("small", uniform(0.2, candidates=12), follows_gradients=False)
    courses = race(small, instances=3, rounds=5, seed=2)
    assert "posterior blend" in {course.player for course in courses}
    assert not {course.player for course in courses} & {name for each in peers.PEERS.values() for name in each}
