"""Screenshot in the README: a study of the demonstration's world in the dashboard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pasto.demo.environment import wait_for_policy
from pasto.demo.scenario import study_file
from pasto.demo.users import SimulatedUsers
from pasto.sim import feed
from pasto_sdk import Client

if TYPE_CHECKING:
    from tests.browser.conftest import Site

pytestmark = pytest.mark.services

ROUNDS, USERS = 16, 4_000
PICTURE = Path(__file__).parents[2] / "docs" / "figures" / "dashboard.png"


def test_the_screenshot_has_a_learned_blend(site: Site, visit: Any) -> None:
    """Write the picture for docs if PASTO_PICTURE is set."""
    world = feed()
    document = {**study_file(world), "confidence": 0.95}
    site.client.post("/v1/studies?seed=1", json=document).raise_for_status()
    site.client.patch("/v1/studies/feed", json={"action": "start", "reason": "a first blend"}).raise_for_status()
    crowd = SimulatedUsers(world, seed=1)
    with Client(site.url, study="feed", cache=None, background=False) as client:
        for round in range(1, ROUNDS + 1):
            wait_for_policy(client, round)
            crowd.visit(client, USERS, round)
            site.client.post("/v1/studies/feed/rounds/close", json={}).raise_for_status()
    desktop = visit("picture")
    desktop.go("/studies/feed")
    desktop.wait_until_loaded()
    desktop.page.get_by_text("Candidates of the blend").wait_for()
    desktop.page.locator("#tradeoff svg circle").first.wait_for()
    assert desktop.page.locator("#head .notice").count() == 0
    assert desktop.page.locator("#metrics canvas").count() == 3
    report = site.client.get("/v1/studies/feed/report").json()
    assert report["blend"]["certificate"]["certified"]
    assert report["blend"]["value"] > 0
    desktop.save_screenshot("15-picture")
    desktop.save_screenshot("dashboard", most="#answer .two-columns")
    if os.environ.get("PASTO_PICTURE"):
        PICTURE.write_bytes((desktop.screenshots / "dashboard-picture.png").read_bytes())
    desktop.check()


def test_the_picture_is_there() -> None:
    assert PICTURE.read_bytes().startswith(b"\x89PNG")
