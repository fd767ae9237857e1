"""Process settings of commands: one thread for linear algebra, and rare garbage collections of `pasto serve`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import gc, os, sys
from click.testing import CliRunner
from pasto.cli import main
assert "numpy" not in sys.modules
CliRunner().invoke(main, [*sys.argv[2:], "--store", sys.argv[1]])
print(os.environ["OPENBLAS_NUM_THREADS"], "numpy" in sys.modules, gc.get_threshold()[0])
"""


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_a_service_has_one_thread_for_its_algebra_and_collects_garbage_rarely(
    given: dict[str, str], threads: str, tmp_path: Path
) -> None:
    assert run_command(given, tmp_path, "serve") == [threads, "True", "100000"]


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_a_command_on_a_store_computes_with_the_threads_of_a_service(
    given: dict[str, str], threads: str, tmp_path: Path
) -> None:
    assert run_command(given, tmp_path, "study", "replay", "feed")[:2] == [threads, "True"]


def run_command(given: dict[str, str], folder: Path, *command: str) -> list[str]:
    blocked = folder / "file"
    blocked.write_text("not a store")  # so that the process ends at once
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    completed = subprocess.run(
        [sys.executable, "-c", LOOK, str(blocked), *command],
        env=environment | given,
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.split()
