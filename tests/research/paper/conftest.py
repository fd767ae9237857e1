"""Fixtures for public data sets, which are not in the repository: PASTO_DATA names a directory with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILES = {
    "movielens": ("ratings.csv", "ratings.dat", "ml-*.zip"),
    "amazon": ("item_description.tsv", "meta_*.json*"),
    "content": ("val.parquet",),
    "ads": ("*.test.txt*", "*_test.theta.txt*"),
}
"""By experiment, files of which one at least is there if its data is."""
PLACE = os.environ.get("PASTO_DATA", "")


def present() -> list[str]:
    """Return the experiments whose data is available."""
    if not PLACE:
        return []
    found = [name for name, files in FILES.items() if any(any(Path(PLACE).rglob(file)) for file in files)]
    return [*found, "continuous"] if {"movielens", "content"} <= set(found) else found


PRESENT = present()
collect_ignore = [] if PRESENT else ["test_real_files.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "real_experiment" in metafunc.fixturenames:
        metafunc.parametrize("real_experiment", PRESENT)


@pytest.fixture
def real_data() -> Path:
    """Return the directory with the data sets."""
    return Path(PLACE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if PLACE:
        missing = [name for name in (*FILES, "continuous") if name not in PRESENT]
        terminalreporter.write_line(f"real data in {PLACE}: {', '.join(PRESENT) or 'none'}")
        if missing:
            terminalreporter.write_line(f"not tried, since their data is not there: {', '.join(missing)}")
