"""Quick-start guide, executed block by block."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "quick-start.md"
BLOCK = re.compile(r"^```(sh|yaml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_quick_start_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    words = [sys.executable, "-m", "pasto", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
        assert served.stdout is not None
        url = served.stdout.readline().split()[-1]
        names: dict[str, Any] = {}
        outputs: dict[str, str] = {}
        try:
            for kind, text in blocks:
                match kind:
                    case "yaml":
                        (tmp_path / "feed.yaml").write_text(text)
                    case "python":
                        exec(compile(text.replace("http://127.0.0.1:8300", url), str(PAGE), "exec"), names)  # noqa: S102
                    case _:
                        outputs |= {line: typed(line, tmp_path) for line in text.splitlines() if runnable(line)}
        finally:
            served.terminate()
            served.stdout.read()
        assert served.wait(60) == 0
    assert "learning" in outputs["pasto study create feed.yaml --start"]
    assert "round 5" in outputs["pasto study show feed"].replace("        ", " ")
    assert "every policy identical" in outputs["pasto study replay feed"]
    deployed = outputs['pasto study deploy feed --reason "confirmed"']
    assert "feed: deployed" in deployed
    assert "The blend is confirmed." in deployed
    assert "like_rate is held: " in deployed
    assert "not shown" not in deployed
    assert outputs["pasto study audit feed"].count("close") == 4


def runnable(line: str) -> bool:
    """Return true for a line that the test runs: not the installation, and not the service that runs already."""
    return line.startswith("pasto ") and line != "pasto serve"


def typed(line: str, place: Path) -> str:
    """Run a command, which must succeed, and return its output."""
    _, *arguments = shlex.split(line)
    done = subprocess.run(
        [sys.executable, "-m", "pasto", *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, textwrap.indent(done.stderr, f"{line}: ")
    return done.stdout
