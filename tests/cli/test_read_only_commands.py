"""Commands that only read do not create a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pasto.cli import main


@pytest.mark.parametrize(
    "words", [("study", "show", "feed"), ("study", "list"), ("round", "list", "feed"), ("report", "feed")]
)
def test_looking_where_nothing_is_leaves_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "none"
    result = CliRunner().invoke(main, [*words, "--store", str(place)])
    assert result.exit_code == 2
    assert f"there is no store in {place}; name another with --store, or a running service with --url" in result.stderr
    assert not place.exists()


def test_a_key_may_be_the_first_thing_in_a_store(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["key", "create", "--name", "app", "--scope", "admin", "--store", str(tmp_path / "new")]
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("pasto_")
