"""Replay on another processor: rounding is allowed and measured, and a change that is larger is found."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.cli.environment import choose_avx2
from pasto.report.replay_report import ReplayReport, describe_rounding
from pasto.service.ingest import BatchResult
from pasto.service.rounds.learner_step import identify_arithmetic
from pasto.service.rounds.rounding import MAX_DIFFERENCE
from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL, write_policy

SCRIPT = Path(__file__).with_name("other_processor.py")
ROUNDS = 3

Events = list[dict[str, Any]]
World = Callable[[PublishedPolicy, int], Events]
Send = Callable[[Service, str, Events], BatchResult]

MAJOR, MINOR = map(int, np.__version__.split(".")[:2])
KERNELS: dict[str, Mapping[str, str]] = {
    "own": {},
    "AVX2": choose_avx2((MAJOR, MINOR)),
    "AVX": {"OPENBLAS_CORETYPE": "Sandybridge"},
}
"""Variables by which NumPy and OpenBLAS of an x86-64 processor choose the code of another one; others ignore them."""


def run_with(kernels: str, task: str, folder: Path) -> dict[str, Any]:
    own = {name: value for name, value in os.environ.items() if name not in ("OPENBLAS_CORETYPE", *KERNELS["AVX2"])}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), task, str(folder)],
        env={**own, "OPENBLAS_NUM_THREADS": "1", **KERNELS[kernels]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("first", "second"), [("own", "AVX2"), ("AVX", "own")])
def test_studies_replay_with_the_kernels_of_another_processor(tmp_path: Path, first: str, second: str) -> None:
    learned = run_with(first, "learn", tmp_path)["arithmetic"]
    own, other = (run_with(kernels, "replay", tmp_path) for kernels in (first, second))
    assert own["arithmetic"] == learned
    for name, replay in own["replays"].items():
        assert replay == {"identical": True, "rounds": 5, "first_difference": None}, name
    for name, replay in other["replays"].items():
        assert (replay["first_difference"], replay["rounds"]) == (None, 5), name
        if replay["identical"]:
            assert "rounding" not in replay
            continue
        assert other["arithmetic"] != learned, "processors with equal results of the probe compute equal bits"
        assert 1 <= replay["rounding"]["rounds"] <= 5
        assert 0 <= replay["rounding"]["largest_difference"] <= MAX_DIFFERENCE


@pytest.fixture
def folder(tmp_path: Path, document: dict[str, Any], world: World, send: Send) -> Path:
    """Return the store of a study with three rounds."""
    service = Service(open_store(str(tmp_path)))
    service.create(document, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    for _ in range(ROUNDS):
        send(service, "feed", world(service.policy_cache.current("feed"), 60))
        service.close_round("feed", who="ann")
    service.shutdown()
    return tmp_path


def replay(folder: Path) -> ReplayReport:
    service = Service(open_store(str(folder)))
    try:
        return service.replay("feed")
    finally:
        service.shutdown()


@contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(next(folder.glob("*.db")))) as connection:
        yield connection
        connection.commit()


def record_arithmetic(folder: Path, arithmetic: str | None, first_round: int = 1) -> None:
    """Write the kind of arithmetic into the records of closes; None for records of an earlier release."""
    with opened(folder) as connection:
        for number, text in connection.execute("SELECT round, record FROM round_closes").fetchall():
            record = json.loads(text)
            assert record.pop("arithmetic") == identify_arithmetic()
            if arithmetic is not None:
                record["arithmetic"] = arithmetic
            if number >= first_round:
                connection.execute("UPDATE round_closes SET record = ? WHERE round = ?", (json.dumps(record), number))


def shift_share(folder: Path, version: int, share: float) -> None:
    """Move a share of a policy from its second cell to its first, with valid checksums."""
    with opened(folder) as connection:
        (text,) = connection.execute("SELECT document FROM policies WHERE version = ?", (version,)).fetchone()
        document = json.loads(text)
        del document["sha256"]
        document["cells"][0]["until"] += round(share * BUCKET_TOTAL)
        changed = write_policy(document)
        connection.execute(
            "UPDATE policies SET document = ?, checksum = ? WHERE version = ?",
            (changed, sha256(changed.encode()).hexdigest(), version),
        )


def change_record(folder: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    with opened(folder) as connection:
        (text,) = connection.execute("SELECT record FROM round_closes WHERE round = ?", (number,)).fetchone()
        record = json.loads(text)
        change(record)
        connection.execute("UPDATE round_closes SET record = ? WHERE round = ?", (json.dumps(record), number))


def test_other_arithmetic_with_equal_bits_is_identical(folder: Path) -> None:
    record_arithmetic(folder, "another processor")
    assert replay(folder) == ReplayReport(True, ROUNDS, None)


@pytest.mark.parametrize("arithmetic", ["another processor", None])
def test_a_share_may_differ_by_rounding_if_other_arithmetic_computed_it(folder: Path, arithmetic: str | None) -> None:
    record_arithmetic(folder, arithmetic)
    shift_share(folder, version=3, share=0.9 * MAX_DIFFERENCE)
    found = replay(folder)
    assert (found.identical, found.is_same, found.rounds) == (False, True, ROUNDS)
    assert found.rounding is not None
    assert found.rounding.rounds == 1
    assert found.rounding.largest_difference == pytest.approx(0.9 * MAX_DIFFERENCE, rel=1e-6)
    command = CliRunner().invoke(main, ["study", "replay", "feed", "--store", str(folder)])
    assert command.exit_code == 0
    assert "rounds: 3; the same up to rounding: largest difference of a share 9e-10; another" in command.stdout


@pytest.mark.parametrize("arithmetic", ["another processor", None])
def test_a_share_that_differs_by_more_than_rounding_is_found(folder: Path, arithmetic: str | None) -> None:
    record_arithmetic(folder, arithmetic)
    shift_share(folder, version=3, share=1.1 * MAX_DIFFERENCE)
    found = replay(folder)
    assert (found.identical, found.is_same, found.rounds, found.rounding) == (False, False, 1, None)
    command = CliRunner().invoke(main, ["study", "replay", "feed", "--store", str(folder)])
    assert command.exit_code == 1
    assert "not the same; first difference: round 2, policy: the largest difference of a share is 1.1" in command.stdout


def test_a_share_may_not_differ_at_all_if_this_arithmetic_computed_it(folder: Path) -> None:
    record_arithmetic(folder, "another processor", first_round=3)
    shift_share(folder, version=3, share=0.9 * MAX_DIFFERENCE)
    found = replay(folder)
    assert found.first_difference is not None
    assert (found.first_difference.round, found.first_difference.what) == (2, "policy")


def test_a_learner_may_differ_by_rounding_if_other_arithmetic_computed_it(folder: Path) -> None:
    with opened(folder) as connection:
        connection.execute("UPDATE round_closes SET learner_checksum = 'f00' WHERE round = 2")
    found = replay(folder)
    assert found.first_difference is not None
    assert (found.first_difference.round, found.first_difference.what) == (2, "learner")
    record_arithmetic(folder, "another processor")
    found = replay(folder)
    assert (found.identical, found.is_same, found.rounds) == (False, True, ROUNDS)
    assert "every policy identical; another processor or version computed 1 round" in describe_rounding(found)


def test_the_arithmetic_of_an_early_round_counts_for_the_later_ones(folder: Path) -> None:
    with opened(folder) as connection:
        connection.execute("UPDATE round_closes SET learner_checksum = 'f00' WHERE round = 3")
    change_record(folder, 1, lambda record: record.update(arithmetic="another processor"))
    assert replay(folder).is_same


@pytest.mark.parametrize("part", ["event", "measurement", "verdict", "state", "salt"])
def test_other_changes_are_found_if_other_arithmetic_computed_the_round(folder: Path, part: str) -> None:
    record_arithmetic(folder, "another processor")
    if part == "event":
        with opened(folder) as connection:
            connection.execute('UPDATE events SET fields = \'{"x": 8.5, "y": 0}\' WHERE kind = 1 AND version = 2')
    elif part == "measurement":
        change_record(folder, 2, _change_mean)
    elif part == "verdict":
        change_record(folder, 2, lambda record: record["verdicts"][0].update(p_value=0.123))
    elif part == "state":
        change_record(folder, 2, lambda record: record["verdicts"][0].update(state="warning"))
    else:
        with opened(folder) as connection:
            (text,) = connection.execute("SELECT document FROM policies WHERE version = 3").fetchone()
            document = json.loads(text)
            del document["sha256"]
            changed = write_policy({**document, "salt": "feed/33"})
            connection.execute("UPDATE policies SET document = ? WHERE version = 3", (changed,))
    found = replay(folder)
    what = {"event": "measurement", "measurement": "measurement", "salt": "policy"}.get(part, "guardrail_monitor")
    assert found.first_difference is not None
    assert (found.first_difference.round, found.first_difference.what) == (2, what)


def _change_mean(record: dict[str, Any]) -> None:
    mean = record["rounds"][0]["cells"][0]["mean"]
    mean[0] *= 1 + 1e-6


def test_the_last_digit_of_a_verdict_may_differ_by_rounding(folder: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        verdict = record["verdicts"][0]
        verdict["p_value"] *= 1 + 5e-4

    change_record(folder, 2, change)
    found = replay(folder)
    assert found.first_difference is not None
    assert found.first_difference.what == "guardrail_monitor"
    record_arithmetic(folder, None)
    assert replay(folder).is_same
