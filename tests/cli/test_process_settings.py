"""Process settings of commands: common arithmetic, and rare garbage collections of `pasto serve`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from pasto.cli.environment import CPU_INFO, choose_avx2, has_avx2

VARIABLES = ("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
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
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    completed = subprocess.run(
        [sys.executable, "-c", LOOK, str(blocked), *command],
        env=environment | given,
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout.split()


IDENTIFY = """
import sys
from pasto.cli.environment import use_common_arithmetic
if sys.argv[1] == "common":
    use_common_arithmetic()
from pasto.service.rounds.learner_step import identify_arithmetic
print(identify_arithmetic())
"""


def identify(arithmetic: str, given: Mapping[str, str]) -> str:
    own = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment = {**own, "OPENBLAS_NUM_THREADS": "1", **given}
    command = [sys.executable, "-W", "error", "-c", IDENTIFY, arithmetic]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_commands_compute_as_processors_with_avx2_do() -> None:
    major, minor, *_ = version("numpy").split(".")
    avx2 = identify("own", choose_avx2((int(major), int(minor))))
    assert identify("common", {}) == (avx2 if has_avx2(CPU_INFO) else identify("own", {}))
    older = {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": ""}
    assert identify("common", older) == identify("own", older), "what the environment sets is kept"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("processor : 0\nflags\t\t: fpu sse2 fma avx avx2\n\nprocessor : 1\nflags\t\t: fpu\n", True),
        ("processor : 0\nflags\t\t: fpu sse2 avx avx2\n", False),
        ("processor : 0\nflags\t\t: fpu sse2 avx fma\n", False),
        ("processor : 0\nFeatures\t: fp asimd\n", False),
        ("", False),
    ],
)
def test_avx2_is_read_from_the_features_of_the_processor(tmp_path: Path, text: str, found: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert has_avx2(path) == found
    assert not has_avx2(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("numpy", "name"), [((1, 26), "AVX512F"), ((2, 3), "AVX512F"), ((2, 4), "X86_V4"), ((3, 0), "X86_V4")]
)
def test_the_newer_code_of_each_version_of_numpy_is_named(numpy: tuple[int, int], name: str) -> None:
    assert name in choose_avx2(numpy)["NPY_DISABLE_CPU_FEATURES"].split()
