from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from pasto.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pasto` with arguments; separate stdout from stderr, and fail on uncaught exceptions."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*words: object, input: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words], input=input, env=env, prog_name="pasto")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
