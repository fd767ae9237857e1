from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from pasto.cli.serve import serve
from pasto.errors import OptionError
from pasto.service.settings import SETTINGS, Settings, is_loopback, read_settings

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def table() -> str:
    """Return the page's table, computed from the settings."""
    rows = ["| setting | flag | variable | default | meaning |", "|---|---|---|---|---|"]
    for each in SETTINGS.values():
        kind = each.placeholder.replace("|", "\\|")
        rows.append(
            f"| `{each.name}` | `{each.flag} {kind}` | `{each.variable}` | `{each.written_default}` | {each.meaning} |"
        )
    return "\n".join(rows)


def test_the_page_has_every_setting_as_it_is() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), f"run `python {Path(__file__).name}` here to update the page"


def test_every_setting_is_a_flag_of_serve() -> None:
    flags = {option.opts[0]: option.help or "" for option in serve.params if isinstance(option, click.Option)}
    for setting in SETTINGS.values():
        assert setting.meaning in flags[setting.flag]
        assert setting.variable in flags[setting.flag]
    assert len(SETTINGS) == len(flags) == len(fields(Settings))


def test_flags_go_before_variables_and_variables_before_defaults() -> None:
    found = read_settings({"port": "1"}, {"PASTO_PORT": "2", "PASTO_HOST": "::1", "PASTO_STORE": ""})
    assert (found.port, found.host, found.store) == (1, "::1", "pasto-data")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": "65536"}, "--port needs a whole number from 0 to 65,535, got '65536'"),
        ({"port": "1.5"}, "--port needs a whole number"),
        (
            {"poll": "nan"},
            "--poll needs a duration from 0.05s to 1min",
        ),
        ({"poll": "inf"}, "--poll needs a duration"),
        ({"log_format": "xml"}, "--log-format needs one of json, text, got 'xml'"),
        ({"keys_required": "maybe"}, "--keys-required needs yes or no, got 'maybe'"),
    ],
)
def test_the_error_of_a_bad_setting_names_the_typed_text(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        read_settings(given)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example", "example.org", "[", "%"])  # noqa: S104
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def rewrite() -> None:
    """Write the current table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"^\| setting \|.*?\n(?!\|)", lambda _: table() + "\n", page, flags=re.S | re.M))


if __name__ == "__main__":
    rewrite()
