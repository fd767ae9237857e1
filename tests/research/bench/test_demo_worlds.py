"""The demonstration's worlds over seeds, at a size that fits the suite; `pasto bench demo` runs a hundred of each."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.demo.environment import wait_for_policy
from pasto.demo.scenario import DemoPlan, study_file
from pasto.demo.users import SimulatedUsers
from pasto.metrics import Moments
from pasto.service.close_record import CloseRecord
from pasto.sim import APPLICATIONS, Conditions, known_means
from pasto.store import Store
from pasto_research.bench import BENCHMARKS
from pasto_research.bench.demo_worlds import CONFIDENCE, SIZES, SeedResult, SimulatedStudy, measure, run_seed, summarize
from tests.demo.in_process_environment import InProcessEnvironment

TINY = DemoPlan(rounds=2, users=600, confirming=900, truth=1_000)


def result(*, certified: bool = True, second: bool = True, binds: bool = True) -> SeedResult:
    return SeedResult(
        certified=certified,
        holds={"a": True, "b": second},
        binding={"a": False, "b": binds},
        covered=(("a", True), ("goal", False)),
        gain=0.5,
        seconds=2.0,
    )


def test_every_world_has_a_row_and_each_guardrail_its_own() -> None:
    labels: list[str] = []
    report = measure(seeds=1, plans=dict.fromkeys(SIZES, TINY), progress=lambda label, *_: labels.append(label))
    assert [(row["world"], row["guardrail"]) for row in report.rows] == [
        *(("feed", name) for name in ("all", "like_rate", "share_rate")),
        *(("ads", name) for name in ("all", "click_rate", "cold_start")),
        *(("shop", name) for name in ("all", "revenue", "hides")),
    ]
    assert labels == [f"demo worlds: {world}" for world in SIZES]
    assert list(SIZES) == list(APPLICATIONS)
    assert BENCHMARKS["demo"].summary


def test_a_seed_fixes_the_result() -> None:
    truth = known_means(APPLICATIONS["shop"](), 1_000)
    one, two, other = (run_seed(truth, TINY, seed) for seed in (3, 3, 4))
    assert (one.holds, one.binding, one.covered, one.gain) == (two.holds, two.binding, two.covered, two.gain)
    assert one.gain != other.gain


def test_only_certified_blends_promise_anything() -> None:
    results = [result(), result(second=False), result(second=False, binds=False), result(certified=False)]
    rows = summarize("feed", ["a", "b"], results)
    total, first, second = rows
    assert (total["certified"], total["guardrails certified"], total["binding"]) == ("75%", 6, 2)
    assert (total["truly hold"], total["binding truly hold"]) == ("66.7% ± 19.8%", "50.0% ± 35.4%")
    assert (first["truly hold"], second["truly hold"], first["binding truly hold"]) == (
        "100.0% ± 23.1%",
        "33.3% ± 28.3%",
        "n/a",
    )
    assert (total["intervals cover"], first["intervals cover"]) == ("50.0% ± 17.7%", "100.0% ± 18.6%")
    assert (total["goal kept"], first["goal kept"]) == ("50%", None)


def test_a_study_that_the_monitor_stops_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedStudy, "learn", lambda study, users: False)
    stopped = run_seed(known_means(APPLICATIONS["feed"](), 1_000), TINY, 1)
    assert stopped.stopped
    total, *_ = summarize("feed", ["like_rate", "share_rate"], [stopped, stopped])
    assert (total["stopped"], total["certified"], total["truly hold"], total["goal kept"]) == (2, "0%", "n/a", None)


def control(store: Store, world: str) -> Moments:
    """Return the control's measurements of the first round, as the close recorded them."""
    study = store.read_study(world)
    assert study is not None
    (close,) = store.list_closes(study.number, after=0, limit=1)
    cells = CloseRecord.from_text(close.record).rounds[0].cells.moments()
    return next(cell for cell in cells if cell.arm == "control")


@pytest.mark.parametrize("world", APPLICATIONS)
def test_cells_are_what_events_would_have_measured(world: str) -> None:
    """Compare with the columns that SDK, ingest and SQL measure; they are equal up to noise."""
    application = APPLICATIONS[world]()
    with SimulatedStudy(application, seed=1) as study:
        assert study.spec.document["confidence"] == CONFIDENCE
        study.learn(users=20_000)
        ours = control(study.store, world)
    with InProcessEnvironment() as stage:
        stage.create(study_file(application), seed=1)
        with stage.client(world) as client:
            wait_for_policy(client, 1)
            SimulatedUsers(application, 1, Conditions(night=application.night)).visit(client, 2_000, 1)
        stage.close_round(world)
        with stage.open_store() as store:
            theirs = control(store, world)
    assert ours.units / 20_000 == pytest.approx(theirs.units / 2_000, abs=0.05)
    variance = sum(np.diag(cell.cross) / cell.units**2 for cell in (ours, theirs))
    assert (np.abs(np.subtract(ours.mean, theirs.mean)) <= 4.0 * np.sqrt(variance) + 1e-12).all()
