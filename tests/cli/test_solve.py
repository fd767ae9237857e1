from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

TWO = "name,x,y\nbold,2,-2\ncareful,0,2\n"
FEED = """setting,watch_time,likes,views,latency
now,31.2,2.1,60,120
bold,36.0,1.6,66,150
calm,29.0,2.9,58,118
"""


@pytest.fixture
def means(tmp_path: Path) -> Path:
    place = tmp_path / "means.csv"
    place.write_text(TWO)
    return place


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    place = tmp_path / "feed.csv"
    place.write_text(FEED)
    return place


def row(text: str, label: str) -> list[str]:
    """Return the words of a table's row after its label."""
    return next(line for line in text.splitlines() if line.startswith(label))[len(label) :].split()


def test_the_two_arm_story(run: Any, means: Path) -> None:
    result = run("solve", means, "--maximize", "x", "--keep", "y>=0")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("maximize x, keep y >= 0\n")
    assert row(result.stdout, "blend") == ["100%", "1", "0"]
    assert row(result.stdout, "bold") == ["50.0%", "2", "-2", "y"]
    assert row(result.stdout, "careful") == ["50.0%", "0", "2"]
    assert row(result.stdout, "best single: careful") == ["0", "2"]
    assert "y >= 0: met; relaxing y by one unit buys 0.5 x." in result.stdout
    assert "Mixing is worth 1: f = 1 for the blend, 0 for the best single candidate, careful." in result.stdout


def test_a_table_of_percentages_prints_a_note(run: Any, tmp_path: Path) -> None:
    place = tmp_path / "rates.csv"
    place.write_text(",name,x,rate\n0,bold,2,2%\n1,careful,0,4%\n")
    result = run("solve", place, "--maximize", "x", "--keep", "rate >= 0.03")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: percentages are read as shares, 3% as 0.03, in 'rate'.")
    assert row(result.stdout, "blend") == ["100%", "1", "0.03"]
    assert row(result.stdout, "bold") == ["50.0%", "2", "0.02", "rate"]


def test_json_has_the_same_answer(run: Any, means: Path) -> None:
    result = run("solve", means, "--maximize", "x", "--keep", "y>=0", "--json")
    assert json.loads(result.stdout) == {
        "objective": "maximize x, keep y >= 0",
        "blend": {"bold": 0.5, "careful": 0.5},
        "feasible": True,
        "value": 1.0,
        "metrics": {"x": 1.0, "y": 0.0},
        "lifts": {},
        "prices": {"y": 0.5},
        "shortfalls": {},
        "best_single": "careful",
        "best_single_value": 0.0,
        "gain": {"over": "careful", "value": 1.0, "goal": 1.0, "violations": {}},
    }


def test_json_and_stdin_are_read(run: Any) -> None:
    for text in ('{"x": [2, 0], "y": [-2, 2]}', '[{"x": 2, "y": -2}, {"x": 0, "y": 2}]'):
        result = run("solve", "-", "--maximize", "x", "--keep", "y>=0", "--json", input=text)
        assert json.loads(result.stdout)["blend"] == {"row 1": 0.5, "row 2": 0.5}


def test_a_soft_guardrail_is_short_by_design(run: Any, means: Path) -> None:
    result = run("solve", means, "--maximize", "x", "--keep", "y >= 0, penalty=5")
    assert "y >= 0 (penalty 5): short by 0.05, which its penalty allows; relaxing y by one unit buys 0.5 x." in (
        result.stdout
    )
    assert "Mixing is worth 1.0125" in result.stdout


def test_goals_ratios_and_percentages(run: Any, feed: Path) -> None:
    ratio = run("solve", feed, "--maximize", "likes/views", "--keep", "watch_time >= 31")
    assert row(ratio.stdout, "blend") == ["100%", "2.5286", "60.286", "31", "0.041943", "127.14"]
    assert "relaxing watch_time by one unit buys 0.0038757 likes/views" in ratio.stdout
    relative = run(
        "solve", feed, "--maximize", "watch_time", "--keep", "likes/views >= -2%, penalty=5", "--keep",
        "latency <= +10%", "--baseline", "now",
    )  # fmt: skip
    assert "The blend against now: watch_time +4.39%" in relative.stdout
    assert "baseline: now" in relative.stdout
    assert "relaxing latency by one percentage point buys 0.40832% of watch_time." in relative.stdout
    sums = run("solve", feed, "--maximize", "watch_time=2", "--minimize", "latency", "--json")
    assert json.loads(sums.stdout)["value"] == pytest.approx(2 * 31.2 - 120)
    lowest = run("solve", feed, "--minimize", "latency", "--keep", "watch_time>=31")
    assert "relaxing watch_time by one unit saves 0.90909 latency" in lowest.stdout


def test_small_metrics_are_priced_in_small_steps(run: Any) -> None:
    text = '{"watch": [30, 34], "like_rate": [0.035, 0.025]}'
    result = run("solve", "-", "--maximize", "watch", "--keep", "like_rate >= 0.03", input=text)
    assert "relaxing like_rate by 0.001 buys 0.4 watch." in result.stdout


def test_a_guardrail_that_does_not_bind_buys_nothing(run: Any, means: Path) -> None:
    result = run("solve", means, "--maximize", "x", "--keep", "y >= -9")
    assert "y >= -9: met; relaxing y buys nothing." in result.stdout
    assert "Mixing buys nothing here: the single candidate bold is the best blend, f = 2." in result.stdout


def test_no_single_candidate_but_a_blend(run: Any) -> None:
    text = '{"name": ["A", "B"], "watch": [5, 7], "likes": [2, 4], "shares": [4, 2]}'
    result = run("solve", "-", "--maximize", "watch", "--keep", "likes>=3", "--keep", "shares>=3", input=text)
    assert result.exit_code == 0
    assert "No single candidate meets every hard guardrail; B, the least bad one, misses shares by 1." in result.stdout
    assert "The blend's goal is 1 worse than its." in result.stdout


def test_an_infeasible_problem_is_reported_and_fails(run: Any, means: Path) -> None:
    result = run("solve", means, "--maximize", "x", "--keep", "y >= 3")
    assert result.exit_code == 1
    assert "y >= 3: missed by 1." in result.stdout
    assert "relaxing" not in result.stdout
    assert "No blend of these candidates meets every hard guardrail." in result.stdout
    assert "it misses y by 1." in result.stdout
    outcome = json.loads(run("solve", means, "--maximize", "x", "--keep", "y >= 3", "--json").stdout)
    assert (outcome["feasible"], outcome["shortfalls"], outcome["best_single"]) == (False, {"y": 1.0}, None)


def test_a_penalty_without_effect_is_noted_on_stderr(run: Any, feed: Path) -> None:
    words = ("solve", feed, "--minimize", "latency", "--keep", "likes>=3, penalty=0.1", "--baseline", "now", "--json")
    result = run(*words)
    assert result.stderr.startswith("note: penalty=0.1 on 'likes' hardly bites")
    assert json.loads(result.stdout)["feasible"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no goal was given"),
        (("--maximize", "z"), "'z'.*'x', 'y'"),
        (("--maximize", "x", "--keep", "z>=0"), "'z'.*'x', 'y'"),
        (("--maximize", "name"), "'name'"),
        (("--maximize", "x", "--keep", "y"), "no threshold; write it in quotes"),
        (("--maximize", "x", "--keep", "y>=-2%"), "needs a baseline"),
        (("--maximize", "x", "--baseline", "other"), "'other' is not a candidate; name one of bold, careful"),
        (("--maximize", "x", "--name-column", "id"), "no column 'id'"),
    ],
)
def test_bad_input_is_one_line_and_code_two(run: Any, means: Path, words: tuple[str, ...], message: str) -> None:
    result = run("solve", means, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)


def test_a_column_of_words_is_no_metric(run: Any) -> None:
    result = run("solve", "-", "--maximize", "remark", input="name,x,remark\na,1,good\n")
    assert result.exit_code == 2
    assert "column 'remark' holds no numbers" in result.stderr


def test_names_are_printed_as_they_are(run: Any) -> None:
    text = '{"name": ["[bold]a[/bold]", ":smile: b"], "x": [1, 0], "y": [-1, 1]}'
    result = run("solve", "-", "--maximize", "x", "--keep", "y>=0", input=text)
    assert "[bold]a[/bold]" in result.stdout
    assert ":smile: b" in result.stdout


def test_a_narrow_terminal_gets_lines_instead_of_a_table(run: Any, feed: Path) -> None:
    result = run("solve", feed, "--minimize", "latency", "--keep", "watch_time>=31", env={"COLUMNS": "30"})
    assert "  latency 119.82\n" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 30


def test_colour_only_where_it_is_wanted(run: Any, means: Path) -> None:
    words = ("solve", means, "--maximize", "x", "--keep", "y>=0")
    assert "\x1b[" not in run(*words).stdout
    assert "\x1b[32m" in run(*words, env={"FORCE_COLOR": "1", "TERM": "xterm"}).stdout
    assert "\x1b[32m" not in run(*words, env={"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}).stdout


def test_messages_name_options_of_the_command_line(run: Any, tmp_path: Path) -> None:
    place = tmp_path / "means.csv"
    place.write_text("name,watch_time,likes\na,6,3\nb,4,4\n")
    percent = run("solve", place, "--maximize", "watch_time", "--keep", "likes >= -2%")
    assert "with --baseline" in percent.stderr
    misspelt = run("solve", place, "--maximize", "wach_time")
    assert f"{place} has no metric 'wach_time'; it has 'watch_time', 'likes'; did you mean 'watch_time'?" in (
        misspelt.stderr
    )
    place.write_text('name,x\na,"1,200"\nb,\u22123\n')
    assert "write it without commas" in run("solve", place, "--maximize", "x").stderr
    place.write_text("name,x\na,2\nb,\u22123\n")
    assert json.loads(run("solve", place, "--minimize", "x", "--json").stdout)["metrics"] == {"x": -3}
