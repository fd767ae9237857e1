from __future__ import annotations

import hashlib
import html
import json
import re
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from msgspec import structs

from pasto.dashboard.actions import describe_replay
from pasto.dashboard.renderer import NAMES, POLICY, render_page
from pasto.errors import NotFittedError
from pasto.report.data_quality_records import SenderDeparture
from pasto.report.records import MonitorReport, PauseRecord, Report
from pasto.report.replay_report import ReplayDifference, ReplayReport, RoundingDifference
from pasto.service.service import Service
from pasto.service.study_file import EXAMPLE


def test_an_empty_service_links_to_the_form_for_a_new_study(browser: Any) -> None:
    page = browser.get("/")
    assert page.status_code == 200
    assert "No study yet" in page.text
    assert 'href="/new"' in page.text


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nowhere", 404, "there is no page at this address"),
        ("GET", "/studies/feed/nothing", 404, "there is no page at this address"),
        ("GET", "/v1studies", 404, "there is no page at this address"),
        ("GET", "/logout", 405, "this address needs the method POST, got GET"),
        ("POST", "/", 405, "this address needs the method "),
    ],
)
def test_a_browser_gets_a_page_for_an_address_that_is_not_there(
    browser: Any, method: str, path: str, status: int, message: str
) -> None:
    page = browser.ask(method, path, headers={"accept": BROWSER})
    assert page.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert message in page.text
    assert 'href="/static/app.css"' in page.text
    assert ("allow" in page.headers) == (status == 405)


@pytest.mark.parametrize(
    ("method", "path", "accept", "status"),
    [
        ("GET", "/nowhere", "*/*", 404),
        ("GET", "/nowhere", "application/json", 404),
        ("GET", "/v1", BROWSER, 404),
        ("GET", "/v1/nothing", BROWSER, 404),
        ("GET", "/ofrep/v1/nothing", BROWSER, 404),
        ("DELETE", "/v1/studies", BROWSER, 405),
        ("GET", "/logout", "*/*", 405),
    ],
)
def test_programs_get_json_for_an_address_that_is_not_there(
    browser: Any, method: str, path: str, accept: str, status: int
) -> None:
    answer = browser.ask(method, path, headers={"accept": accept})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == {404: "not_found", 405: "method_not_allowed"}[status]


def test_every_page_and_part_of_a_learning_study(browser: Any, learned: Service) -> None:
    for path in ("/", "/parts/studies", "/new", "/studies/feed", *(f"/studies/feed/{p}" for p in ("head", "actions"))):
        page = browser.get(path)
        assert page.status_code == 200, path
        assert page.headers["content-type"].startswith("text/html")
    answer = browser.get("/studies/feed/answer").text
    assert "Candidates of the blend" in answer
    assert "Metrics and prices" in answer
    assert "stop level judged against the control" in answer
    assert "ertified" in answer
    assert "the hard guardrail" in answer
    assert "watch, adjusted by the units’ past: variance reduced by" in answer
    assert "Too late" in answer
    log = browser.get("/studies/feed/log").text
    assert "draft → learning" in log
    assert "close round 3" not in log
    assert "close round 3" in browser.get("/studies/feed/log?all=1").text


def test_no_page_may_run_what_is_written_in_it(browser: Any, learned: Service) -> None:
    for path in ("/", "/new", "/studies/feed", "/studies/feed/answer", "/studies/nothing", "/static/app.js"):
        page = browser.get(path)
        assert page.headers["content-security-policy"] == POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        if path != "/static/app.js":
            assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|\son[a-z]+=|<style", page.text), path
            assert not re.search(r'(?:src|href|action|hx-[a-z]+)="(?:https?:)?//', page.text), path
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY


HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(1)</script>{{ 7 * 7 }}"


def test_text_of_people_is_displayed_unchanged(browser: Any, service: Service, learned: Service) -> None:
    document = {**service.show("feed").document, "name": "hostile", "description": HOSTILE, "unit": "user"}
    service.create(document, who=HOSTILE, reason=HOSTILE)
    service.change("hostile", "start", who=HOSTILE, reason=HOSTILE)
    service.change("hostile", "pause", who=HOSTILE, reason=HOSTILE)
    for path in ("/", "/studies/hostile", "/studies/hostile/log", "/studies/hostile/head", "/studies/hostile/answer"):
        text = browser.get(path).text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
    assert "&lt;img src=x onerror=alert(1)&gt;" in browser.get("/studies/hostile").text
    assert "{{ 7 * 7 }}" in browser.get("/studies/hostile").text


def test_a_missing_study_gives_an_error_page(browser: Any) -> None:
    page = browser.get("/studies/<b>nothing")
    assert page.status_code == 404
    assert "there is no study" in page.text
    assert "<b>nothing" not in page.text


def test_errors_of_a_study_file_name_fields_and_the_text_is_not_lost(browser: Any, service: Service) -> None:
    text = EXAMPLE.replace("maximize: watch_time", "maximize: wach_time").replace("control: 10%", "control: 200%")
    form = {"token": browser.token("/new"), "text": text, "reason": "try"}
    page = browser.post("/new", form)
    assert page.status_code == 422
    assert "<code>goal.maximize</code>" in page.text
    assert "<code>traffic.control</code>" in page.text
    assert "2 things to mend" in page.text
    assert "wach_time}" in page.text
    assert service.studies() == []


@pytest.mark.parametrize(
    "text", ["", "}{", "a: [", "name: feed\nname: feed", "\x00", "- 1", "{}", "[[[", "!!python/object:os.system {}"]
)
def test_an_invalid_study_file_is_refused_with_the_reason(browser: Any, service: Service, text: str) -> None:
    page = browser.post("/new", {"token": browser.token("/new"), "text": text})
    assert page.status_code == 422
    assert "to mend" in page.text
    assert service.studies() == []


def test_a_study_goes_through_its_life_by_forms(browser: Any, service: Service) -> None:
    made = browser.post("/new", {"token": browser.token("/new"), "text": EXAMPLE, "reason": "first"})
    assert (made.status_code, made.headers["location"]) == (303, "/studies/feed")
    token = browser.token("/studies/feed")
    for action, state in (("start", "learning"), ("pause", "paused"), ("resume", "learning"), ("archive", "archived")):
        form = {"token": token, "action": action, "reason": f"because of {action}"}
        if action == "archive":
            refused = browser.post("/studies/feed/change", {**form, "typed_name": "food"})
            assert (refused.status_code, "nothing was changed" in refused.text) == (400, True)
            form["typed_name"] = "feed"
        assert browser.post("/studies/feed/change", form).status_code == 303
        assert service.show("feed").state == state
    reasons = [line.reason for line in service.audit("feed")]
    assert reasons[:2] == ["first", "because of start"]
    assert {line.who for line in service.audit("feed")} == {"local"}


def test_a_draft_is_deleted_by_a_form(browser: Any, service: Service) -> None:
    browser.post("/new", {"token": browser.token("/new"), "text": EXAMPLE})
    form = {"token": browser.token("/studies/feed"), "action": "delete", "reason": "a mistake"}
    gone = browser.post("/studies/feed/change", form)
    assert (gone.status_code, gone.headers["location"]) == (303, "/")
    assert service.studies() == []
    assert browser.get("/studies/feed").status_code == 404


def test_a_draft_is_edited_by_a_form(browser: Any, service: Service) -> None:
    browser.post("/new", {"token": browser.token("/new"), "text": EXAMPLE})
    before = service.show("feed").document
    assert 'href="/studies/feed/edit"' in browser.get("/studies/feed").text
    form = browser.get("/studies/feed/edit").text
    text = html.unescape(form.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0])
    token = browser.token("/studies/feed/edit")
    same = browser.post("/studies/feed/edit", {"token": token, "text": text})
    assert (same.status_code, same.headers["location"]) == (303, "/studies/feed")
    assert service.show("feed").document == before
    longer = text.replace("every: 3600.0", "every: 2h").replace("every: 1h", "every: 2h")
    browser.post("/studies/feed/edit", {"token": token, "text": longer, "reason": "slower"})
    assert service.show("feed").document["rounds"] != before["rounds"]
    assert service.audit("feed")[-1].reason == "slower"
    for wrong, status, message in (
        (text.replace("maximize", "maximise"), 422, "did you mean &#39;maximize&#39;?"),
        (text.replace("name: feed", "name: food"), 400, "a draft keeps its name"),
    ):
        response = browser.post("/studies/feed/edit", {"token": token, "text": wrong})
        assert response.status_code == status
        assert message in response.text
        assert 'action="/studies/feed/edit"' in response.text
    service.change("feed", "archive", who="ann", reason="over")
    assert browser.get("/studies/feed/edit").status_code == 409
    assert "/edit" not in browser.get("/studies/feed").text


def test_a_running_study_is_edited_by_a_form_that_shows_the_changes_first(browser: Any, service: Service) -> None:
    browser.post("/new", {"token": browser.token("/new"), "text": EXAMPLE})
    service.change("feed", "start", who="ann")
    assert 'href="/studies/feed/edit"' in browser.get("/studies/feed").text
    text = EXAMPLE.replace("explore: 100%", "explore: 25%")
    form = {"token": browser.token("/studies/feed/edit"), "text": text, "reason": "less risk", "generation": "2"}
    preview = browser.post("/studies/feed/edit", {**form, "step": "preview"})
    assert preview.status_code == 200
    assert "traffic.explore: 100% → 25%" in preview.text
    assert service.show("feed").round == 1
    saved = browser.post("/studies/feed/edit", {**form, "step": "apply"})
    assert (saved.status_code, saved.headers["location"]) == (303, "/studies/feed")
    assert service.show("feed").document["traffic"]["explore"] == 0.25
    assert "traffic.explore: 100% → 25%" in browser.get("/studies/feed/log").text
    conflict = browser.post("/studies/feed/edit", {**form, "step": "apply", "text": EXAMPLE})
    assert conflict.status_code == 409
    assert "was edited by local" in html.unescape(conflict.text)
    wrong = browser.post(
        "/studies/feed/edit", {**form, "generation": "", "text": text.replace("unit: user", "unit: session")}
    )
    assert wrong.status_code == 422
    assert "averaged over" in wrong.text


def test_a_refused_action_is_reported_above_the_study(browser: Any, learned: Service) -> None:
    page = browser.post("/studies/feed/change", {"token": browser.token("/studies/feed"), "action": "pause"})
    assert page.status_code == 400
    assert "pause needs a reason" in page.text
    assert learned.show("feed").state == "learning"
    page = browser.post("/studies/feed/change", {"token": browser.token("/studies/feed"), "action": "deploy"})
    assert page.status_code == 409
    assert "confirm it first" in page.text


def test_what_is_not_confirmed_is_deployed_by_its_own_button_and_with_a_reason(browser: Any, learned: Service) -> None:
    learned.change("feed", "confirm", who="ann")
    policy = learned.policy_cache.current("feed")
    events: list[dict[str, Any]] = []
    for number in range(400):  # without likes, the lift of likes is unknown
        unit, at = f"user {number}", f"{policy.version}/{number}"
        cell = policy.draw(unit)
        drawn = {"unit": unit, "version": policy.version, "candidate": cell.name}
        fields = {"seconds": 10.0 + 2.0 * float(cell.values["w"]) + number % 5}
        events.append({"type": "exposure", "id": f"e{at}", **drawn})
        events.append({"type": "metric", "id": f"w{at}", "name": "watch", "fields": fields, **drawn})
    learned.ingest("feed", learned.decode(json.dumps(events).encode())).result()
    learned.close_round("feed", who="ann")
    actions = browser.get("/studies/feed/actions").text
    assert "Deploy unconfirmed" in actions
    assert 'data-dialog="dialog-deploy"' not in actions
    assert 'id="reason-deploy_unconfirmed" name="reason" maxlength="1000" required' in actions
    dialog = browser.get("/studies/feed/verdict?action=deploy_unconfirmed").text
    assert "likes is not measured" in dialog
    assert "of the units, " in dialog
    assert "stay on the baseline" in dialog
    form = {"token": browser.token("/studies/feed"), "action": "deploy", "reason": "it held"}
    page = browser.post("/studies/feed/change", form)
    assert page.status_code == 409
    assert "not confirmed" in page.text
    form = {**form, "without_confirmation": "yes"}
    assert browser.post("/studies/feed/change", form).status_code == 400
    form["typed_name"] = "feed"
    assert browser.post("/studies/feed/change", {**form, "reason": ""}).status_code == 400
    assert browser.post("/studies/feed/change", form).status_code == 303
    assert learned.show("feed").state == "deployed"


def test_a_ramp_is_shown_and_moved_by_a_form(browser: Any, learned: Service) -> None:
    assert 'name="to"' not in browser.get("/studies/feed/actions").text
    learned.edit("feed", fields={"traffic.ramp": ["5%", "50%", "100%"]}, who="ann")
    assert "step 3 of 3, 100%" in browser.get("/studies/feed/head").text
    form = {"token": browser.token("/studies/feed"), "action": "ramp", "to": "0.05", "reason": "less risk"}
    assert browser.post("/studies/feed/change", form).status_code == 303
    assert "step 1 of 3, 5%, 3 more rounds until 50%" in browser.get("/studies/feed/head").text
    assert '<option value="0.5">50% of the units</option>' in browser.get("/studies/feed/actions").text
    assert browser.post("/studies/feed/change", {**form, "to": "hold"}).status_code == 303
    assert "held" in browser.get("/studies/feed/head").text
    assert "not a step" in browser.post("/studies/feed/change", {**form, "to": "0.2"}).text


def test_a_replay_is_reported(browser: Any, learned: Service) -> None:
    page = browser.post("/studies/feed/replay", {"token": browser.token("/studies/feed")})
    assert "Identical: 3 rounds" in page.text


def test_a_replay_on_another_processor_is_reported() -> None:
    same = ReplayReport(False, 3, None, rounding=RoundingDifference(2, 3e-15))
    page = render_page("parts/replay.html", describe_replay(same)).body.decode()
    assert ">3 rounds computed again, the same up to rounding: largest difference of a share 3e-15" in page
    assert "notice good" in page
    other = ReplayReport(False, 1, ReplayDifference(2, "policy", "3f9a", "c0ff"))
    page = render_page("parts/replay.html", describe_replay(other)).body.decode()
    assert "Not the same. First difference: round 2, policy: published 3f9a, computed c0ff" in page
    assert "notice alarm" in page


def test_the_report_is_one_file_to_keep(browser: Any, learned: Service) -> None:
    page = browser.get("/studies/feed/report.html")
    assert page.status_code == 200
    assert page.headers["content-disposition"] == 'attachment; filename="feed.html"'
    assert "<title>Report on feed</title>" in page.text
    assert "<script" not in page.text


def test_the_shares_can_be_downloaded_for_another_platform(browser: Any, learned: Service) -> None:
    assert "/studies/feed/export.json?format=flagd" in browser.get("/studies/feed").text
    page = browser.get("/studies/feed/export.json?format=flagd")
    assert page.headers["content-disposition"] == 'attachment; filename="feed.flagd.json"'
    assert page.json() == learned.export("feed", "flagd")
    assert browser.get("/studies/feed/export.json?format=unleash").status_code == 400


def test_a_guardrail_pause_is_an_alarm_in_the_list_and_instead_of_a_verdict(
    browser: Any, learned: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned.change(
        "feed", "pause", who="guardrail monitor", reason="guardrail monitor: likes fell below its stop level -90%"
    )
    alarm = '<p class="notice alarm">Stopped by the guardrail monitor: likes fell below its stop level -90%</p>'
    assert alarm in browser.get("/").text
    assert alarm not in browser.get("/studies/feed").text

    def fail(name: str) -> Report:
        raise NotFittedError("no report")

    monkeypatch.setattr(learned, "report", fail)
    page = browser.get("/studies/feed/verdict").text
    assert "The verdict could not be computed: no report" in page
    assert alarm in page


def test_a_held_round_is_a_warning_and_is_resolved_by_a_form(browser: Any, learned: Service) -> None:
    policy = learned.policy_cache.current("feed")
    units = ((f"user {number}", policy.draw(f"user {number}")) for number in range(400))
    exposures = [
        {"type": "exposure", "id": f"e4/{unit}", "unit": unit, "version": policy.version, "candidate": cell.name}
        for unit, cell in units
    ]
    learned.ingest("feed", learned.decode(json.dumps(exposures).encode())).result()
    learned.close_round("feed", who="ann")
    page = browser.get("/studies/feed").text
    assert page.count("Round 4 is held back and not learned") == 1
    assert "Learn round 4" in page
    token = browser.token("/studies/feed")
    form = {"token": token, "action": "discard", "round": "4", "reason": "the events were lost"}
    assert browser.post("/studies/feed/change", form).status_code == 303
    assert "Learn round 4" not in browser.get("/studies/feed").text
    assert learned.show("feed").held[0].resolution == "discard"
    refused = browser.post("/studies/feed/change", {**form, "round": "5"})
    assert (refused.status_code, "is not held back" in refused.text) == (400, True)


def test_the_page_opens_with_the_verdict_of_the_report(browser: Any, learned: Service) -> None:
    verdict = learned.report("feed").verdict
    assert verdict is not None
    page = browser.get("/studies/feed/verdict").text
    for text in (verdict.headline, verdict.sentence, *(row.word for row in verdict.metrics)):
        assert html.escape(text) in page
    assert 'class="interval-bar"' in page
    assert "style=" not in page
    study = browser.get("/studies/feed").text
    assert study.index('id="verdict"') < study.index('id="actions"') < study.index('id="facts"')


def test_a_pause_can_serve_the_baseline_later(browser: Any, learned: Service) -> None:
    learned.change("feed", "pause", who="ann", reason="a look")
    before = learned.show("feed").policy
    assert before is not None
    served = [share.name for share in before.shares]
    form = {"token": browser.token("/studies/feed"), "action": "pause", "hold": "baseline", "reason": "to be safe"}
    offers = 'data-dialog="dialog-baseline"' in browser.get("/studies/feed/actions").text
    assert offers == (served != ["w=1"])
    assert browser.post("/studies/feed/change", form).status_code == 303
    study = learned.show("feed")
    assert (study.state, study.paused_from) == ("paused", "learning")
    assert study.policy is not None
    assert [share.name for share in study.policy.shares] == ["w=1"]
    assert 'data-dialog="dialog-baseline"' not in browser.get("/studies/feed/actions").text
    assert browser.post("/studies/feed/change", {**form, "hold": "blend"}).status_code == 409
    assert learned.replay("feed").identical


def test_no_certificate_is_displayed_after_a_guardrail_pause(
    browser: Any, learned: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "The guardrail monitor stopped the study"
    assert sentence not in browser.get("/studies/feed/answer").text
    show = learned.show
    tripped = MonitorReport(tripped=PauseRecord(3, 0.0, "breaker: likes"))
    monkeypatch.setattr(learned, "show", lambda name: structs.replace(show(name), guardrail_monitor=tripped))
    text = browser.get("/studies/feed/answer").text
    assert sentence in text
    assert "ertified" not in text


def test_a_sender_that_departs_is_a_warning(
    browser: Any, service: Service, learned: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = service.report("feed")
    departure: dict[str, Any] = {
        "kind": "key",
        "sender": "ab12",
        "round": 2,
        "test": "effect",
        "p_value": 1e-9,
        "arm": "learner",
        "candidate": "w=0",
        "metric": "watch",
        "effect": 31.5,
        "others": -0.5,
    }
    assert report.accounting is not None
    changed = replace(report, accounting=replace(report.accounting, departures=(SenderDeparture(**departure),)))
    monkeypatch.setattr(service, "report", lambda name: changed)
    text = browser.get("/studies/feed/answer").text
    assert "key ab12: watch of w=0 is +31.5 from its own mean, of other senders -0.5, since round 2" in text
    assert "Units and events by key" in text


def test_files_of_others_are_what_was_published() -> None:
    folder = files("pasto.dashboard").joinpath("static", "vendor")
    lines = [line.split() for line in folder.joinpath("MANIFEST").read_text().splitlines() if not line.startswith("#")]
    for digest, name in lines:
        assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest
    assert {each.name for each in folder.iterdir()} == {name for _, name in lines} | {"MANIFEST"}


def test_only_named_files_are_given_out(browser: Any) -> None:
    for name in NAMES:
        page = browser.get(f"/static/{name}")
        assert page.status_code == 200
        again = browser.get(f"/static/{name}", headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for name in ("vendor/MANIFEST", "../dashboard.py", "%2e%2e/dashboard.py", "nothing.js"):
        assert browser.get(f"/static/{name}").status_code == 404


def test_layers_the_holdout_and_other_studies_are_on_the_pages(browser: Any, learned: Service) -> None:
    assert "Layers and holdout" not in browser.get("/").text
    document = {**learned.show("feed").document, "name": "search", "layer": {"name": "home", "share": "40%"}}
    learned.create(document, who="ann")
    learned.change("search", "start", who="ann")
    learned.set_holdout("5%", who="ann")
    for path in ("/", "/parts/studies"):
        page = browser.get(path).text
        assert "Layers and holdout" in page
        assert "5.00% of all units (user) are held out of every study" in page
        assert "feed: from the next policy on" in page
        assert '<a href="/studies/search">search</a></td><td>learning</td><td class="number">40.00%' in page
        assert '<td class="muted">free</td><td></td><td class="number">60.00%' in page
    assert "Layer</dt>" not in browser.get("/studies/feed/head").text
    head = browser.get("/studies/search/head").text
    assert "<dt>Layer</dt><dd>home, 40%: from 0% to 40%</dd>" in head
    assert "<dt>Take part</dt><dd>40% of all units</dd>" in head
    answer = browser.get("/studies/feed/answer").text
    assert "Other studies on the same units" in answer
    assert "<td>search</td><td>learning</td><td>40.0%</td>" in answer


def test_the_design_effect_of_clusters_is_on_the_answer(browser: Any, learned: Service) -> None:
    unit = {"name": "pupil", "cluster": "school"}
    learned.create({**learned.show("feed").document, "name": "homework", "unit": unit, "guardrails": []}, who="ann")
    learned.change("homework", "start", who="ann")
    policy = learned.policy_cache.current("homework")
    metric = next(metric for metric in learned.policy_cache.snapshot("homework").spec.metrics.values())
    events: list[dict[str, Any]] = []
    for number in range(120):
        school = f"school {number // 4}"
        drawn = {"unit": f"pupil {number}", "version": 1, "candidate": policy.draw("x", {"school": school}).name}
        fields = {} if metric.numerator.value is None else {metric.numerator.value: float(number // 4)}
        events.append({"type": "exposure", "id": f"e{number}", "cluster": school, **drawn})
        events.append({"type": "metric", "id": f"m{number}", "name": metric.numerator.event, "fields": fields, **drawn})
    assert learned.ingest("homework", learned.decode(json.dumps(events).encode())).result().rejected == ()
    learned.close_round("homework", who="ann")
    answer = browser.get("/studies/homework/answer").text
    assert "The latest measurement has 30 clusters (school) with 120 units (pupil)." in answer
    assert f"<td>{metric.name}</td><td>" in answer
    assert "times as wide" in answer
    assert "Clusters" not in browser.get("/studies/feed/answer").text
