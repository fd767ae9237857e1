"""Commands in an environment without extras: one line that names the install, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pasto.cli.environment import EXTRA_BY_MODULE

ROOT = Path(__file__).parents[2]
BARE = f"""
import json, sys
from importlib.abc import MetaPathFinder

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRA_BY_MODULE)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
from click.testing import CliRunner
from pasto.cli import main

answers = {{}}
for line in json.load(sys.stdin):
    done = CliRunner().invoke(main, line.split())
    answers[line] = [done.exit_code, done.output, "".join(map(str, done.exc_info[1:2]))]
print(json.dumps(answers))
"""
"""Run commands in a Python that has only what `pip install .` brings."""
NEED_SERVE = [
    *("serve", "demo", "study init", "study create study.yaml", "study list", "study show feed", "round close feed"),
    *("report feed", "key list", "plan --study feed --effect 1%", "store archive feed --delete-older-than 90d"),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "means.csv").write_text("name,watch\na,1\nb,2\n")
    (folder / "study.yaml").write_text("name: feed\n")
    lines = [
        *NEED_SERVE,
        "bench --help",
        "solve means.csv --maximize watch",
        "plan --units 2000 --std 3 --effect 1 --max-rounds 2",
    ]
    completed = subprocess.run(
        [sys.executable, "-c", BARE], cwd=folder, input=json.dumps(lines), capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    document: dict[str, tuple[int, str, str]] = json.loads(completed.stdout)
    return document


@pytest.mark.parametrize("line", NEED_SERVE)
def test_a_command_without_its_extra_names_the_install(answers: dict[str, tuple[int, str, str]], line: str) -> None:
    code, printed, raised = answers[line]
    assert code == 2, raised
    assert len(printed.splitlines()) == 1
    assert printed.startswith(f"error: `pasto {line.split()[0]}` needs ")
    assert printed.endswith("which is not installed; install it in a clone of PASTO with: pip install '.[serve]'\n")


def test_what_needs_no_extra_works_without_one(answers: dict[str, tuple[int, str, str]]) -> None:
    for line in answers.keys() - set(NEED_SERVE):
        assert answers[line][0] == 0, answers[line]


def test_every_module_of_an_extra_is_known() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    brings: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            brings.setdefault(canonicalize_name(distribution), set()).add(module)
    for extra in ("kafka", "plots", "postgres", "process", "serve"):
        known = {module for module, its_extra in EXTRA_BY_MODULE.items() if its_extra == extra}
        for requirement in map(Requirement, extras[extra]):
            if requirement.marker is None or requirement.marker.evaluate():
                assert brings[canonicalize_name(requirement.name)] & known, f"{requirement.name}: EXTRA_BY_MODULE"


@pytest.mark.parametrize("page", ["README.md", "docs/guides/quick-start.md", "docs/guides/demo.md"])
def test_the_first_pages_install_from_a_clone_with_the_extra(page: str) -> None:
    assert "pip install ./clients/python '.[serve]'" in (ROOT / page).read_text(encoding="utf-8")


def test_no_page_installs_from_an_index_that_lacks_pasto() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if "install 'pasto[" in page.read_text(encoding="utf-8")] == []


def test_help_needs_no_extra(answers: dict[str, tuple[int, str, str]]) -> None:
    code, output, _ = answers["bench --help"]
    assert code == 0
    assert output.startswith("Usage:")
    assert "pip install '.[serve]'" in " ".join(output.split())
