"""Understated errors: rounds shift together without a contrast; the service warns and certifies nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pasto.report.html import render_html
from pasto.report.records import write_record
from pasto.report.text import render_text

if TYPE_CHECKING:
    from tests.service.reports.conftest import Playground

    Make = Callable[..., Playground]
LEVELS = (0.8, 1.2, 0.9, 1.1, 0.75, 1.25)


@pytest.mark.parametrize("contrast", [None, "auto"])
def test_rounds_that_shift_together_are_seen_in_every_report(playground: Make, contrast: str | None) -> None:
    place = playground(learner={"name": "thompson", "contrast": contrast})
    for level in LEVELS:
        place.round(level=level)
    report = place.service.report("feed")
    document = write_record(report)
    certificate, quality = document["blend"]["certificate"], document["quality"]
    if contrast == "auto":
        assert certificate["certified"]
        assert quality["understated_errors"] == certificate["understated_errors"] == {}
        assert "as rounds scatter" in render_text(report)
        return
    assert not certificate["certified"]
    assert quality["understated_errors"]["y"] > 1.5
    for output in (" ".join(render_text(report).split()), render_html(report)):
        assert "Not certified: standard errors are too small (y by a factor of" in output
        assert "nothing is certified" in output


def test_what_was_learned_from_late_events_is_checked_too(playground: Make) -> None:
    """Check rounds that are learned again after corrections; the result equals that without corrections."""
    place = playground(learner={"name": "thompson", "contrast": None}, rounds={"every": "1h", "accept_late": "3h"})
    for level in LEVELS:
        place.round(level=level)
    assert write_record(place.service.report("feed"))["quality"]["understated_errors"]["y"] > 1.5
    assert place.service.replay("feed").identical
