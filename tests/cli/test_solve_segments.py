"""`pasto solve` with segments: from a JSON file with sections, or a table with a column of segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TABLE = "segment,name,x,y\nnew,bold,2,-2\nnew,safe,0,2\nheavy,safe,1,0\nheavy,bold,3,1\n"
SECTIONS = {
    "segments": {"new": 0.5, "heavy": 0.5},
    "means": {
        "new": {"name": ["bold", "safe"], "x": [2, 0], "y": [-2, 2]},
        "heavy": [{"name": "bold", "x": 3, "y": 1}, {"name": "safe", "x": 1, "y": 0}],
    },
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "means.csv"
    place.write_text(TABLE)
    return place


@pytest.fixture
def sections(tmp_path: Path) -> Path:
    place = tmp_path / "means.json"
    place.write_text(json.dumps(SECTIONS))
    return place


def test_a_table_of_segments(run: Any, table: Path) -> None:
    result = run("solve", table, "--maximize", "x", "--keep", "y >= 0", "--segments", "new=0.5, heavy=0.5")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "maximize x, keep y >= 0",
        "",
        "                   traffic  blend                         x   y",
        "all segments          100%                             2.25   0",
        "new                  50.0%  75.0% bold + 25.0% safe     1.5  -1",
        "heavy                50.0%  100.0% bold                   3   1",
        "one blend for all           66.7% bold + 33.3% safe  1.8333   0",
        "",
        "y >= 0: met; relaxing y by one unit buys 0.5 x.",
        "Segments are worth 0.41667: f = 2.25 for a blend for each, 1.8333 for one blend for everybody; 0.5 for the "
        "best single candidate, safe.",
    ]


def test_sections_of_a_json_file_are_the_same(run: Any, table: Path, sections: Path) -> None:
    keep = ("--maximize", "x", "--keep", "y >= 0", "--keep", "y >= -0.5, within=new")
    first = run("solve", table, *keep, "--segments", "new=0.5,heavy=0.5")
    assert "y >= -0.5 within new, in new: met; relaxing y by 0.01 buys 0.0025 x." in first.stdout
    assert run("solve", sections, *keep).stdout == first.stdout
    assert run("solve", "-", *keep, input=json.dumps(SECTIONS)).stdout == first.stdout


def test_json_has_a_blend_for_each_segment(run: Any, sections: Path) -> None:
    result = run("solve", sections, "--maximize", "x", "--keep", "y >= 0", "--json")
    answer = json.loads(result.stdout)
    assert answer["segments"]["new"]["blend"] == {"bold": 0.75, "safe": 0.25}
    assert answer["segments"]["heavy"]["share"] == 0.5
    assert answer["segments"]["heavy"]["metrics"] == {"x": 3, "y": 1}
    assert (answer["value"], answer["metrics"], answer["prices"]) == (2.25, {"x": 2.25, "y": 0}, {"y": 0.5})
    assert answer["common_blend"] == pytest.approx({"bold": 2 / 3, "safe": 1 / 3})
    assert answer["gain_over_common"] == pytest.approx(2.25 - 11 / 6)
    assert (answer["best_single"], answer["best_single_value"], answer["feasible"]) == ("safe", 0.5, True)


def test_percentages_name_the_baseline(run: Any, sections: Path) -> None:
    result = run("solve", sections, "--maximize", "x", "--keep", "x >= -2%, within=each", "--baseline", "bold")
    assert "All segments against bold: x +0.00%." in result.stdout
    assert "x >= -2% within each, in heavy: met; relaxing x buys nothing." in result.stdout
    assert "Segments are worth nothing here" in result.stdout


def test_the_nearest_miss_has_exit_code_1(run: Any, sections: Path) -> None:
    result = run("solve", sections, "--maximize", "x", "--keep", "y >= 1.5, within=each")
    assert result.exit_code == 1
    assert "y >= 1.5 within each, in heavy: missed by 0.5." in result.stdout
    assert "No blend for everybody meets every hard guardrail." in result.stdout
    assert result.stdout.endswith("Those above come nearest; they miss y within heavy by 0.5.\n")


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ("new=0.5,heavy", "--segments got 'heavy'; write each segment as NAME=SHARE"),
        ("new=0.5,new=0.5", "--segments has 'new' twice"),
        ("new=0.5,heavy=0.4", "the shares of segments sum to 0.9"),
        ("new=1", "row 3 (line 4) of {place} is of segment 'heavy', and --segments gives no share of it; it has 'new'"),
        ("new=0.5,heavy=0.3,other=0.2", "{place} has no rows of segment 'other'"),
        (None, "{place} has a column 'segment' and no shares of traffic"),
    ],
)
def test_wrong_shares_are_refused(run: Any, table: Path, shares: str | None, problem: str) -> None:
    given = () if shares is None else ("--segments", shares)
    result = run("solve", table, "--maximize", "x", *given)
    assert result.exit_code == 2
    assert problem.format(place=table) in result.stderr


@pytest.mark.parametrize(
    ("text", "shares", "problem"),
    [
        ("name,x\na,1\n", "new=1", "has no column 'segment', which names the segment of each row"),
        ("segment\nnew\n", "new=1", "has no column but 'segment'"),
        (
            "segment,name,x\nnew,a,1\nnew,b,2\nheavy,a,1\n",
            "new=0.5,heavy=0.5",
            "segments 'new' and 'heavy' of {place} differ in the candidate 'b'",
        ),
        (json.dumps({"segments": {"new": 1.0}}), None, "so it needs a section 'means'"),
        (json.dumps({**SECTIONS, "names": []}), None, "and no other section"),
        (json.dumps(SECTIONS), "new=1", "has a section 'segments', and --segments is given too"),
    ],
)
def test_wrong_files_are_refused(run: Any, tmp_path: Path, text: str, shares: str | None, problem: str) -> None:
    place = tmp_path / "means.txt"
    place.write_text(text)
    result = run("solve", place, "--maximize", "x", *(() if shares is None else ("--segments", shares)))
    assert result.exit_code == 2
    assert problem.format(place=place) in result.stderr


def test_a_text_column_of_segments_may_name_candidates(run: Any, tmp_path: Path) -> None:
    place = tmp_path / "means.csv"
    place.write_text("segment,x\na,1\nb,2\n")
    assert "the single candidate b is the best blend" in run("solve", place, "--maximize", "x").stdout
