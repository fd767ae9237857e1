"""Distributions: the client has no dependencies, and the platform's wheel contains no research code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CLIENT = ROOT / "clients" / "python"
SCRIPT = """
import sys
from pasto_sdk import Client
from pasto_sdk.policy import publish_policy
from pasto_sdk.testing import FakeService

policy = publish_policy(
    study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    candidates={0: ("today", {"weight": 1}), 1: ("bold", {"weight": 2})}, baseline=0,
    shares=[("control", 0, 0.2), ("learner", 1, 0.8)], valid_from=0, expires_after=86400,
)
service = FakeService(policy)
with Client("http://127.0.0.1:9", study="feed", transport=service, cache=None, background=False) as client:
    client.wait_until_ready()
    names = {client.assign(unit).name for unit in range(100)}
print(sorted(names), "pasto" in sys.modules, "numpy" in sys.modules)
"""


def build_wheel(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def run_client(python: Path) -> str:
    return subprocess.run([python, "-c", SCRIPT], check=True, capture_output=True, text=True, cwd=python.parent).stdout


def test_the_wheel_of_the_platform_holds_the_platform_alone(tmp_path: Path) -> None:
    files = files_of(build_wheel(ROOT, tmp_path))
    assert "pasto/service/service.py" in files
    assert "pasto/dashboard/templates/study.html" in files
    assert [name for name in files if not name.startswith("pasto/")] == []
    assert [name for name in files if "/paper/" in name or "/bench/" in name or "/assign/" in name] == []


def test_the_wheel_of_the_research_holds_the_commands(tmp_path: Path) -> None:
    files = files_of(build_wheel(ROOT / "research", tmp_path))
    assert {"pasto_research/bench_command.py", "pasto_research/paper_command.py"} <= set(files)
    assert [name for name in files if not name.startswith("pasto_research/")] == []


def test_the_wheel_of_the_client_works_alone(tmp_path: Path) -> None:
    wheel = build_wheel(CLIENT, tmp_path)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel], check=True)
    assert run_client(python) == "['bold', 'today'] False False\n"


@pytest.mark.services
def test_pip_installs_the_client_alone_and_the_platform_with_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, CLIENT], check=True)
    assert run_client(python) == "['bold', 'today'] False False\n"
    subprocess.run([*pip, CLIENT, f"{ROOT}[serve]"], check=True)
    pasto = python.with_name("pasto")
    assert "serve" in subprocess.run([pasto, "--help"], check=True, capture_output=True, text=True).stdout
    done = subprocess.run([pasto, "bench", "solve"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pasto-research" in done.stderr
