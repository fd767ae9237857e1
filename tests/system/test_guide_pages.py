"""Guides of a real service, run block by block: study files, commands as typed, Python, and what they print."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from scipy.stats import binomtest, chisquare

from pasto.cli import main
from pasto_sdk.policy import PublishedPolicy

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
EVALUATORS = ROOT / "clients" / "handoff-test"
ADDRESS = "http://127.0.0.1:8300"
"""Address of the service on the pages."""
BLOCK = re.compile(r"^```(sh|yaml|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNITS = [f"person {number}" for number in range(20_000)]
"""Units that were in no study of a page."""
FALSE_ALARM_RATE = 1e-6
EXPOSURE = 0
"""Kind of the rows of exposures."""


@dataclass
class PageRun:
    """Guide page that runs in a folder, and what its commands printed."""

    folder: Path
    address: str
    names: dict[str, Any] = field(default_factory=dict)
    """Names of the page's Python."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Output by command."""
    compared: int = 0
    """Lines of output on the page that were found."""

    def run(self, page: Path) -> None:
        """Run all blocks; a block of text directly after others has lines that they print, in this order."""
        text = page.read_text(encoding="utf-8")
        printed, end = None, 0
        for block in BLOCK.finditer(text):
            kind, body = block.groups()
            is_adjacent = not text[end : block.start()].strip()
            end = block.end()
            if kind == "text":
                if is_adjacent and printed is not None:
                    self._compare(body, printed)
                printed = None
                continue
            printed = printed or "" if is_adjacent else ""
            if kind == "yaml":
                (self.folder / f"{yaml.safe_load(body)['name']}.yaml").write_text(body, encoding="utf-8")
            elif kind == "python":
                printed += self._execute(body, page)
            else:
                printed += "".join(self.type(line) for line in body.splitlines() if is_run(line))

    def _compare(self, wanted: str, printed: str) -> None:
        lines = (" ".join(line.split()) for line in printed.splitlines())
        for line in filter(None, (" ".join(line.split()) for line in wanted.splitlines())):
            assert any(line in found for found in lines), f"{line!r} is not printed, or not in this order:\n{printed}"
            self.compared += 1

    def _execute(self, body: str, page: Path) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(body.replace(ADDRESS, self.address), str(page), "exec"), self.names)  # noqa: S102
        return printed.getvalue()

    def type(self, line: str) -> str:
        """Run a command and return what it printed; a comment marks one that is refused, and no other may fail."""
        typed, _, comment = line.partition("  #")
        command, _, target = typed.partition(" > ")
        result = CliRunner().invoke(main, shlex.split(command)[1:], prog_name="pasto")
        is_refused = comment.strip() == "refused"
        assert (result.exit_code != 0) == is_refused, f"{line}\n{result.stderr}"
        output = result.stderr if is_refused else result.stdout
        self.outputs[typed.strip()] = output
        if target:
            (self.folder / target.strip()).write_text(output, encoding="utf-8")
            return ""
        return output


def is_run(line: str) -> bool:
    """Return true for a line that is run: not the installation, and not the service that runs already."""
    return line.startswith("pasto ") and line != "pasto serve"


@pytest.fixture
def page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageRun]:
    """Run `pasto serve` in a new folder with an SQLite store, and work there."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-m", "pasto", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as served:
        assert served.stdout is not None
        try:
            yield PageRun(tmp_path, served.stdout.readline().split()[-1])
        finally:
            served.terminate()
            served.stdout.read()
    assert served.wait(60) == 0


def test_the_quick_start_works_as_written(page_run: PageRun) -> None:
    page_run.run(GUIDES / "quick-start.md")
    outputs = page_run.outputs
    assert "learning" in outputs["pasto study create feed.yaml --start"]
    assert "round 5" in outputs["pasto study show feed"].replace("        ", " ")
    assert "every policy identical" in outputs["pasto study replay feed"]
    deployed = outputs['pasto study deploy feed --reason "confirmed"']
    assert "feed: deployed" in deployed
    assert "The blend is confirmed." in deployed
    assert "like_rate is held: " in deployed
    assert "not shown" not in deployed
    assert outputs["pasto study audit feed"].count("close") == 4


def test_the_steering_walk_works_as_written(page_run: PageRun) -> None:
    page_run.run(GUIDES / "steering.md")
    assert page_run.compared > 40
    feed, stories = read_policies(page_run.folder, "feed"), read_policies(page_run.folder, "stories")
    check_that_no_unit_is_shared(feed, stories)
    check_the_exposures(page_run.folder, feed)
    shares = json.loads(page_run.outputs["pasto study export feed --format flagd --part blend > feed.flagd.json"])
    assert shares["metadata"]["certified"] is True
    assert len(shares["flags"]["feed"]["variants"]) >= 2


def read_policies(folder: Path, study: str) -> list[PublishedPolicy]:
    """Return all policies of a study, oldest first."""
    query = "SELECT document FROM policies JOIN studies ON number = study WHERE name = ? ORDER BY policies.version"
    with contextlib.closing(sqlite3.connect(folder / "pasto-data" / "pasto.db")) as connection:
        return [PublishedPolicy.from_text(document) for (document,) in connection.execute(query, [study])]


def is_held_out(unit: str) -> bool:
    """Return whether a unit is in a holdout of 5 %, by the published rule."""
    digest = hashlib.sha256(f"holdout:global\0{unit}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11 < 0.05 * 2**53


def check_that_no_unit_is_shared(feed: list[PublishedPolicy], stories: list[PublishedPolicy]) -> None:
    """Check every policy of both studies: no unit is in two, and none of the holdout after it was set."""
    drawn = [
        [{unit for unit in UNITS if policy.draw(unit, {"country": "de"}).width} for policy in policies]
        for policies in (feed, stories)
    ]
    assert not set().union(*drawn[0]) & set().union(*drawn[1])
    for enrolled, policies in zip(drawn, (feed, stories), strict=True):
        has_holdout = [any(part.kind == "holdout" for part in policy.enrolment) for policy in policies]
        assert has_holdout == sorted(has_holdout), "once it is left out, it stays out"
        assert has_holdout[-1]
        for units, leaves_out in zip(enrolled, has_holdout, strict=True):
            assert not leaves_out or not any(map(is_held_out, units))
    neither = len(UNITS) - len(drawn[0][-1] | drawn[1][-1])
    assert binomtest(neither, len(UNITS), 0.05).pvalue > FALSE_ALARM_RATE, "the two have all units but the holdout"


def check_the_exposures(folder: Path, policies: list[PublishedPolicy]) -> None:
    """Check the units that came: nested along the ramp, in one study each, and none of the holdout once it was set."""
    query = "SELECT studies.name, events.version, unit FROM events JOIN studies ON number = study WHERE kind = ?"
    came: dict[str, dict[int, set[str]]] = {"feed": {}, "stories": {}}
    with contextlib.closing(sqlite3.connect(folder / "pasto-data" / "pasto.db")) as connection:
        for study, version, unit in connection.execute(query, [EXPOSURE]):
            came[study].setdefault(version, set()).add(unit)
    units = {study: set().union(*rounds.values()) for study, rounds in came.items()}
    assert not units["feed"] & units["stories"]
    slices = {policy.version: {part.kind: part for part in policy.enrolment} for policy in policies}
    steps = [(version, slices[version].get("ramp")) for version in sorted(came["feed"])]
    widths = [2**53 if ramp is None else ramp.until for _, ramp in steps]
    assert [round(width / 2**53, 2) for width in widths[:6]] == [0.01, 0.01, 0.25, 0.25, 1.0, 1.0]
    for (earlier, _), (later, _) in pairwise(steps[:5]):
        assert came["feed"][earlier] <= came["feed"][later]
    held_out = [version for version in came["feed"] if "holdout" in slices[version]]
    assert held_out
    assert not any(is_held_out(unit) for version in held_out for unit in came["feed"][version])
    assert any(is_held_out(unit) for unit in units["feed"]), "before it was set, these units came too"


@pytest.mark.services
def test_flagd_serves_the_blend_of_the_steering_walk(page_run: PageRun) -> None:
    """Evaluate the export of the page with flagd's own evaluator: shares, audience and holdout."""
    page_run.run(GUIDES / "steering.md")
    npm = shutil.which("npm")
    assert npm is not None, "the tests marked `services` need Node; .ci/run installs it"
    subprocess.run([npm, "ci", "--ignore-scripts"], cwd=EVALUATORS, check=True, timeout=600)
    exported = {
        form: json.loads(page_run.type(f"pasto study export feed --part blend --format {form}"))
        for form in ("flagd", "growthbook", "json")
    }
    shares = {candidate["name"]: candidate["share"] for candidate in exported["json"]["candidates"]}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert len(shares) >= 2
    counts = evaluate(exported, {"country": "de"})
    left_out = counts.pop("takes no part", 0)
    assert binomtest(left_out, len(UNITS), 0.05).pvalue > FALSE_ALARM_RATE, "the holdout"
    expected = [share * (len(UNITS) - left_out) for share in shares.values()]
    assert chisquare([counts.pop(name) for name in shares], expected).pvalue > FALSE_ALARM_RATE
    assert counts == {}
    equal = [sum(expected) / len(shares)] * len(shares)
    assert chisquare(expected, equal).pvalue < FALSE_ALARM_RATE, "a check that can fail"
    for outside in ({"country": "fr"}, {}):
        assert evaluate(exported, outside) == {"takes no part": len(UNITS)}


def evaluate(exported: dict[str, Any], attributes: dict[str, str]) -> dict[str, int]:
    """Return the number of units by the variant that flagd gives them; all flags of the study must agree."""
    question = {
        "flagd": exported["flagd"],
        "growthbook": exported["growthbook"],
        "flag": "feed",
        "parameter": "likes",
        "units": UNITS,
        "attributes": attributes,
    }
    node = shutil.which("node")
    assert node is not None
    words = [node, "evaluate.mjs"]
    ended = subprocess.run(
        words, cwd=EVALUATORS, input=json.dumps(question), capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["differences"] == []
    counts: dict[str, int] = answer["counts"]["flagd"]
    return counts
