"""Verdict on the first screen of a study's page in each state, and the dialogs of the actions that it leads to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Site

pytestmark = pytest.mark.services

SIZES = ("wide", "tablet", "phone", "bright phone")
SCREEN_HEIGHT = 844
GUARDRAIL = {"metric": "like_rate", "at_least": "-8%", "stop_at": "-30%"}


def _world() -> Any:
    """Import the simulated users of feed_world.py; tests are not a package."""
    spec = importlib.util.spec_from_file_location("feed_world", Path(__file__).with_name("feed_world.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["feed_world"] = module
    spec.loader.exec_module(module)
    return module


world = _world()


def read_first_screen(visit: Any, name: str, state: str) -> list[str]:
    """Open the page of a study at each size, and return the headlines that are on the first screen."""
    headlines = []
    for label in SIZES:
        watched = visit(label)
        watched.go(f"/studies/{name}")
        watched.wait_until_loaded()
        headline = watched.page.locator("#verdict h2").first
        box = headline.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < SCREEN_HEIGHT / 2
        first_row = watched.page.locator("#verdict .word").first.bounding_box()
        assert first_row is not None
        assert first_row["y"] < SCREEN_HEIGHT
        headlines.append(headline.inner_text())
        watched.save_screenshot(f"verdict-{state}")
        watched.check()
        watched.page.context.close()
    return headlines


def test_each_state_has_its_verdict_on_the_first_screen(site: Site, visit: Any) -> None:
    def change(action: str, **options: Any) -> None:
        body = {"action": action, "reason": "a test", **options}
        site.client.patch("/v1/studies/feed", json=body).raise_for_status()

    site.client.post("/v1/studies", json={**world.STUDY, "guardrails": [GUARDRAIL]}).raise_for_status()
    change("start")
    world.play(site.client, 5, 400)
    assert {line.split(",")[0] for line in read_first_screen(visit, "feed", "learning")} == {"Keep collecting"}
    change("confirm")
    world.send(site.client, 3000)
    change("pause")
    assert set(read_first_screen(visit, "feed", "paused")) == {"Paused by a person"}
    change("resume")
    assert {line.split(",")[0] for line in read_first_screen(visit, "feed", "confirming")} == {"Keep collecting"}
    change("deploy", without_confirmation=True)
    assert set(read_first_screen(visit, "feed", "deployed")) == {"Shipped without being confirmed"}
    change("archive")
    assert set(read_first_screen(visit, "feed", "archived")) == {"Archived"}


def test_a_dialog_has_facts_a_cancel_and_asks_for_the_name(site: Site, visit: Any) -> None:
    site.client.post("/v1/studies", json={**world.STUDY, "guardrails": [GUARDRAIL]}).raise_for_status()
    site.client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
    phone = visit("phone")
    phone.go("/studies/feed")
    phone.wait_until_loaded()
    page = phone.page
    assert page.get_by_role("button", name="Confirm", exact=True).count() == 0  # nothing was learned yet
    page.locator("#actions summary", has_text="More").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    dialog = page.get_by_role("dialog", name="Archive")
    dialog.get_by_text("Keep collecting.").wait_for()
    dialog.get_by_text("every unit gets the baseline").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    phone.expect("dialog[open]").to_have_count(0)
    page.locator("#actions summary", has_text="More").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    dialog.get_by_label("Why").fill("over")
    dialog.get_by_label("Name of the study").fill("food")
    dialog.get_by_role("button", name="Archive", exact=True).click()
    page.get_by_text("nothing was changed").wait_for()
    assert site.client.get("/v1/studies/feed").json()["state"] == "learning"
    phone.check()
