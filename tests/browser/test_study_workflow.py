"""Workflow of a new user in a real browser, from an empty service to a deployed blend."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Site

pytestmark = pytest.mark.services


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


def submit_action(watched: Any, label: str, reason: str, *, typed: str = "") -> None:
    """Open the dialog of an action, read its facts, enter a reason, and submit it."""
    opener = watched.page.locator("#actions").get_by_role("button", name=label, exact=True)
    if not opener.is_visible():
        watched.page.locator("#actions summary", has_text="More").click()
    opener.click()
    dialog = watched.page.get_by_role("dialog", name=label, exact=True)
    dialog.get_by_label("Why").fill(reason)
    if typed:
        assert "of the units" in dialog.locator(".action-facts").inner_text(timeout=60_000)
        dialog.get_by_label("Name of the study").fill(typed)
    dialog.get_by_role("button", name=label, exact=True).click()
    watched.page.wait_for_load_state()


def test_from_nothing_to_a_deployed_blend(site: Site, visit: Any) -> None:
    desktop, phone = visit("desktop"), visit("phone")
    for each in (desktop, phone):
        each.go("/")
        each.page.get_by_text("No study yet").wait_for()
        each.save_screenshot("1-empty")
        each.check()
    desktop.page.get_by_role("link", name="Write the first study").click()
    text = desktop.page.get_by_label("Study file")
    text.fill(json.dumps({**world.STUDY, "goal": {"maximize": "wach_time"}}))
    desktop.page.get_by_role("button", name="Create the study").click()
    desktop.page.get_by_text("One thing to mend").wait_for()
    assert desktop.page.locator(".problems code").inner_text() == "goal.maximize"
    desktop.save_screenshot("2-mend")
    text.fill(json.dumps(world.STUDY, indent=1))
    desktop.page.get_by_role("button", name="Create the study").click()
    desktop.page.get_by_role("heading", name="A draft").wait_for()
    desktop.save_screenshot("3-draft")
    submit_action(desktop, "Start", "all is checked")
    desktop.page.locator(".state.learning").wait_for()
    desktop.wait_until_loaded()
    desktop.save_screenshot("4-started")
    # The page stays open while rounds are played, and updates by itself.
    world.play(site.client, 6, 500)
    desktop.page.get_by_text("Candidates of the blend").wait_for()
    desktop.expect("#facts dd >> nth=0").to_have_text("7", timeout=60_000)
    desktop.page.locator("#metrics canvas").first.wait_for()
    desktop.page.locator("#tradeoff svg circle").first.wait_for()
    before = desktop.page.locator("#tradeoff .result dd").first.inner_text()
    slider = desktop.page.get_by_label("like_rate at least")
    slider.focus()
    for _ in range(40):
        slider.press("ArrowLeft")
    desktop.expect("#tradeoff .result dd >> nth=0").not_to_have_text(before, timeout=60_000)
    desktop.page.get_by_role("button", name="As the study states them").click()
    desktop.page.get_by_role("button", name="Replay now").click()
    desktop.page.get_by_text("Identical: 6 rounds").wait_for()
    for each in (desktop, phone):
        each.go("/studies/feed")
        each.wait_until_loaded()
        each.page.locator("#tradeoff svg circle").first.wait_for()
        each.save_screenshot("5-learning")
        each.check()
        each.go("/")
        each.save_screenshot("6-list")
        each.check()
    desktop.go("/studies/feed")
    submit_action(desktop, "Confirm", "good enough to confirm")
    desktop.page.locator(".state.confirming").wait_for()
    world.send(site.client, 600)
    desktop.wait_until_loaded()
    desktop.save_screenshot("7-confirming")
    submit_action(desktop, "Deploy unconfirmed", "enough for this test", typed="feed")
    desktop.page.locator(".state.deployed").wait_for()
    for each in (desktop, phone):
        each.go("/studies/feed")
        each.wait_until_loaded()
        each.page.get_by_text("The blend that was frozen").wait_for()
        each.save_screenshot("8-deployed")
        each.check()
    actions = [line["action"] for line in site.client.get("/v1/studies/feed/audit").json()["audit"]]
    assert [action for action in actions if action != "close"][:4] == ["create", "start", "confirm", "deploy"]


def test_a_guardrail_pause_appears_on_an_open_page(site: Site, visit: Any) -> None:
    site.client.post("/v1/studies", json=world.STUDY).raise_for_status()
    site.client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
    desktop = visit("desktop")
    desktop.go("/studies/feed")
    desktop.wait_until_loaded()
    for _ in range(8):
        world.play(site.client, 1, 500, harm=0.35)
        if site.client.get("/v1/studies/feed").json()["state"] == "paused":
            break
    desktop.page.get_by_text("Stopped by the guardrail monitor").wait_for()
    desktop.page.locator(".state.paused").wait_for()
    desktop.page.locator("[data-dialog=dialog-resume]").wait_for()
    assert "is now paused" in desktop.page.locator("#announcement").inner_text()
    desktop.wait_until_loaded()
    desktop.expect("text=No event has arrived yet").to_have_count(0, timeout=60_000)
    desktop.save_screenshot("9-tripped")
    desktop.go("/")
    desktop.page.get_by_text("Stopped by the guardrail monitor").wait_for()
    desktop.save_screenshot("10-alarm")
    desktop.check()


def test_a_page_reports_a_service_that_stops(site: Site, visit: Any) -> None:
    site.client.post("/v1/studies", json=world.STUDY).raise_for_status()
    desktop = visit("desktop")
    desktop.go("/studies/feed")
    desktop.wait_until_loaded()
    site.stop()
    desktop.page.get_by_text("The service does not answer").wait_for()
    desktop.save_screenshot("11-lost")


def test_with_a_key_by_keyboard_alone(site: Site, visit: Any) -> None:
    site.client.post("/v1/studies", json=world.STUDY).raise_for_status()
    site.client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
    key = site.client.post("/v1/keys", json={"name": "ann", "scopes": ["admin"]}).json()["key"]
    desktop = visit("desktop")
    page = desktop.page
    desktop.go("/studies/feed")
    page.get_by_role("heading", name="Log in").wait_for()
    desktop.save_screenshot("12-login")
    page.get_by_label("Key").focus()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.get_by_text("not valid, or may not read").wait_for()
    page.get_by_label("Key").focus()
    page.keyboard.type(key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="feed", exact=True).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Pause":
            break
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Pause"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.locator(".state.paused").wait_for()
    named = """[...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a, summary')]
        .filter(each => !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()))
        .map(each => each.outerHTML)"""
    assert page.evaluate(named) == []
    assert page.evaluate("document.cookie") == ""
    desktop.check()


def test_layers_and_the_holdout_are_listed_and_a_share_can_grow(site: Site, visit: Any) -> None:
    for name, share in (("feed", "40%"), ("search", "30%")):
        document = {**world.STUDY, "name": name, "layer": {"name": "home", "share": share}}
        assert site.client.post("/v1/studies", json=document).status_code == 201
        assert site.client.patch(f"/v1/studies/{name}", json={"action": "start"}).status_code == 200
    assert site.client.put("/v1/holdout", json={"share": "5%"}).status_code == 200
    desktop, phone = visit("desktop"), visit("phone")
    for each in (desktop, phone):
        each.go("/")
        table = each.page.get_by_role("region", name="Layers")
        rows = [row.inner_text().split() for row in table.locator("tbody tr").all()]
        assert rows == [
            ["home", "feed", "learning", "40.00%", "0.00%", "40.00%"],
            ["home", "search", "learning", "30.00%", "40.00%", "70.00%"],
            ["home", "free", "30.00%"],
        ]
        each.page.get_by_text("5.00% of all units (user) are held out of every study").wait_for()
        each.save_screenshot("layers")
        each.check()
    for share, problem in (("70%", "with 30% free next to it"), ("60%", "")):
        desktop.go("/studies/search/edit")
        text = desktop.page.get_by_label("Study file")
        text.fill(text.input_value().replace("share: 0.3, start", f"share: {share}, start"))
        desktop.page.get_by_role("button", name="Show the changes").click()
        if problem:
            desktop.page.get_by_text(problem).wait_for()
    desktop.page.get_by_role("button", name="Apply with the next policy").click()
    desktop.page.get_by_role("heading", name="search", exact=True).wait_for()
    assert site.client.get("/v1/layers").json()["layers"][0]["free"] == 0.0
    desktop.check()
