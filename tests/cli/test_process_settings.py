"""Process settings of `pasto serve`: one thread for linear algebra, and rare garbage collections."""

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
CliRunner().invoke(main, ["serve", "--store", sys.argv[1]])
print(os.environ["OPENBLAS_NUM_THREADS"], "numpy" in sys.modules, gc.get_threshold()[0])
"""


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_a_service_has_one_thread_for_its_algebra_and_collects_garbage_rarely(
    given: dict[str, str], threads: str, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a store")  # so that the process ends at once
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    completed = subprocess.run(
        [sys.executable, "-c", LOOK, str(blocked)], env=environment | given, capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == [threads, "True", "100000"]
