"""Durations as people write them, in every parameter that accepts one."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.cli.key import key
from pasto.cli.store import store
from pasto.document_validation import ProblemList
from pasto.durations import DURATION_PATTERN, parse_duration, read_duration
from pasto.errors import OptionError
from pasto.formatting import format_duration
from pasto.service.settings import SETTINGS, read_settings
from pasto.service.study_file import EXAMPLE, parse_spec, read_document


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("1h", 3600),
        ("2d", 172800),
        ("7d", 604800),
        ("30m", 1800),
        ("30min", 1800),
        ("30 min", 1800),
        ("1.5h", 5400),
        ("1h30min", 5400),
        ("1h 30m", 5400),
        ("1d12h", 129600),
        ("250ms", 0.25),
        ("1w", 604800),
        ("45", 45),
        ("0.05", 0.05),
        (45, 45),
        (0.5, 0.5),
    ],
)
def test_durations_are_read_as_seconds(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["h", "-1h", "1 fortnight", "", " ", "1h30", "1e3", "nan", None, True, float("nan"), float("inf"), -1, [1]],
)
def test_other_values_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(written)


def test_a_duration_out_of_range_is_a_problem_of_its_field() -> None:
    problems = ProblemList()
    assert read_duration(problems, "rounds.every", "9999d") is None
    assert problems.found["rounds.every"] == (
        "must be a duration from 0s to 366d, such as '90s', '30min' or '1h30min', or a number of seconds, got '9999d'"
    )


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.from_regex(DURATION_PATTERN.replace(r"\s", " "), fullmatch=True))
def test_every_text_of_the_pattern_is_a_duration(text: str) -> None:
    assert parse_duration(text) >= 0


def edited(section: str, field: str) -> dict[str, Any]:
    document = read_document(EXAMPLE, "yaml")
    document["rounds"] = {"every": "1h", "maturity": "1h"}
    inner = document
    for name in section.split(".") if section else []:
        inner = inner[name]
    inner[field] = "30min"
    return document


@pytest.mark.parametrize(
    ("section", "field", "seconds"),
    [
        ("rounds", "every", lambda spec: spec.rounds.every),
        ("rounds", "maturity", lambda spec: spec.rounds.maturity),
        ("rounds", "accept_late", lambda spec: spec.rounds.accept_late),
        ("", "expires_after", lambda spec: spec.expires_after),
        ("metrics.watch_time", "window", lambda spec: spec.metrics["watch_time"].numerator.window),
        ("metrics.watch_time", "covariate", lambda spec: spec.metrics["watch_time"].covariate.lookback),
    ],
)
def test_30min_in_a_study_file(section: str, field: str, seconds: Any) -> None:
    assert seconds(parse_spec(edited(section, field))) == 1800


DURATION_SETTINGS = [setting for setting in SETTINGS.values() if setting.is_duration]


def test_the_settings_that_are_durations() -> None:
    names = {setting.name for setting in DURATION_SETTINGS}
    assert names == {
        *("poll", "archive_after", "archive_keep", "request_timeout"),
        *("keep_alive", "retry_after", "shutdown_timeout"),
    }


@pytest.mark.parametrize("setting", DURATION_SETTINGS, ids=lambda setting: setting.name)
def test_durations_in_settings(setting: Any) -> None:
    written = "30min" if setting.maximum >= 1800 else "1min"
    seconds = parse_duration(written)
    by_flag = getattr(read_settings({setting.name: written}), setting.name)
    by_variable = getattr(read_settings({}, {setting.variable: written}), setting.name)
    assert by_flag == by_variable == seconds
    assert type(by_flag) is setting.kind


def test_whole_seconds_are_needed_by_some_settings() -> None:
    with pytest.raises(OptionError, match="--keep-alive needs a duration from 1s to 1h"):
        read_settings({"keep_alive": "1.5s"})


@pytest.mark.parametrize(
    ("group", "command", "option"),
    [(key, "create", "expires_in"), (key, "rotate", "grace"), (store, "archive", "delete_older_than")],
)
def test_30min_in_command_line_options(group: click.Group, command: str, option: str) -> None:
    options = {parameter.name: parameter for parameter in group.commands[command].params}
    assert options[option].type.convert("30min", None, None) == 1800
    with pytest.raises(click.BadParameter, match="such as '90s', '30min' or '1h30min'"):
        options[option].type.convert("soon", None, None)
