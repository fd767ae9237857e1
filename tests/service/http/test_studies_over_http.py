"""Lifecycle of a study over HTTP, and its policy, decisions and events."""

from __future__ import annotations

import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.errors import ConflictError, StoreError
from pasto.service.http import policies
from pasto.service.http_client import HttpStudyApi
from pasto.service.study_file import EXAMPLE, read_document
from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

POLICY, EVENTS, ASSIGN = "/v1/studies/feed/policy", "/v1/studies/feed/events", "/v1/studies/feed/assign"
TOML = """
name = "toml"
baseline = {w = 1}
parameters = {w = [0, 1]}
metrics = {x = {event = "x", aggregate = "count", cap = 5}}
goal = {maximize = "x"}
"""


def test_a_study_file_comes_in_three_forms(serve: Serve) -> None:
    site = serve()
    document = {**read_document(EXAMPLE, "yaml"), "name": "json"}
    for kind, body in (("yaml", EXAMPLE), ("toml", TOML), ("json", json.dumps(document))):
        answer = site.client.post("/v1/studies", content=body, headers={"content-type": f"application/{kind}"})
        assert (answer.status_code, answer.json()["state"]) == (201, "draft"), answer.text
    assert [study["name"] for study in site.client.get("/v1/studies").json()["studies"]] == ["feed", "json", "toml"]
    again = site.client.post("/v1/studies", json=document)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "study_exists")


def test_a_study_goes_from_draft_to_archive_over_http(serve: Serve) -> None:
    site = serve()
    site.study(start=False)
    assert site.client.get(POLICY).status_code == 409
    assert site.client.post(ASSIGN, json={"unit": "ann"}).json()["error"]["code"] == "wrong_state"
    assert site.client.post(EVENTS, json=[]).status_code == 409
    assert site.client.patch("/v1/studies/feed", json={"action": "start"}).json()["state"] == "learning"
    assert site.client.patch("/v1/studies/feed", json={"action": "pause"}).status_code == 400
    paused = site.client.patch("/v1/studies/feed", json={"action": "pause", "reason": "night", "hold": "baseline"})
    assert paused.json()["state"] == "paused"
    held = site.client.post(ASSIGN, json={"unit": "ann"}).json()
    assert (held["arm"], held["reason"], held["values"]) == ("paused", "DEFAULT", {"like_weight": 1, "share_weight": 1})
    assert site.client.patch("/v1/studies/feed", json={"action": "resume"}).json()["state"] == "learning"
    deploy = {"action": "deploy", "reason": "urgent", "without_confirmation": True}
    refused = site.client.patch("/v1/studies/feed", json=deploy)
    assert refused.json()["error"]["code"] == "wrong_state"  # nothing is learned yet
    closed = site.client.post("/v1/studies/feed/rounds/close", json={"reason": "by hand"}).json()
    rounds = site.client.get(f"/v1/studies/feed/rounds?after={closed['round'] - 1}&limit=1").json()["rounds"]
    assert [each["round"] for each in rounds] == [closed["round"]]
    assert site.client.get("/v1/studies/feed/report").json()["state"] == "learning"
    assert site.client.post("/v1/studies/feed/replay").json()["identical"] is True
    audit = site.client.get("/v1/studies/feed/audit").json()["audit"]
    assert [entry["action"] for entry in audit] == ["create", "start", "pause", "resume", "close"]
    assert {entry["who"] for entry in audit} == {"local"}
    assert audit[-1]["reason"] == "by hand"
    assert site.client.get("/v1/studies/feed/audit?after=1&limit=2").json()["audit"] == audit[1:3]
    assert site.client.patch("/v1/studies/feed", json={"action": "archive"}).json()["state"] == "archived"
    assert site.client.post(ASSIGN, json={"unit": "ann"}).status_code == 409


def visit(site: Site, users: int, *events: str) -> None:
    """Send these events for new users after their decisions, and close the round."""
    units = [f"user {number}" for number in range(users)]
    version = site.client.post(ASSIGN, json={"units": units}).json()["version"]
    sent = [
        {
            "type": "metric",
            "id": f"{version}/{name}/{unit}",
            "unit": unit,
            "name": name,
            "fields": {"seconds": 9 + place},
        }
        for place, unit in enumerate(units)
        for name in events
    ]
    site.client.post(EVENTS, json=sent).raise_for_status()
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()


def test_what_is_not_confirmed_is_deployed_with_a_reason_only(serve: Serve) -> None:
    site = serve()
    site.study(rounds={"every": "1h"})
    visit(site, 300, "watch", "like", "view")
    site.client.patch("/v1/studies/feed", json={"action": "confirm"}).raise_for_status()
    visit(site, 300, "watch", "view")
    refused = site.client.patch("/v1/studies/feed", json={"action": "deploy", "reason": "confirmed"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong_state")
    assert "like_rate is not measured, limit at least -2%." in refused.json()["error"]["message"]
    bold = {"action": "deploy", "without_confirmation": True}
    assert site.client.patch("/v1/studies/feed", json=bold).status_code == 400
    words = ["study", "deploy", "feed", "--url", site.url]
    refused_there = CliRunner().invoke(main, [*words, "--reason", "confirmed"])
    assert refused_there.exit_code == 2
    assert "error: study 'feed' is not confirmed. The confirmation is inconclusive." in refused_there.stderr
    assert CliRunner().invoke(main, [*words, "--without-confirmation"]).exit_code == 2
    deployed = CliRunner().invoke(main, [*words, "--without-confirmation", "--reason", "launch day"])
    assert deployed.exit_code == 0, deployed.stderr
    assert "feed: deployed" in deployed.stdout
    assert "like_rate is not measured, limit at least -2%." in deployed.stdout
    line = site.client.get("/v1/studies/feed/audit").json()["audit"][-1]
    assert (line["action"], line["reason"]) == ("deploy", "launch day")


def test_a_draft_is_edited_and_deleted_over_http(serve: Serve) -> None:
    site = serve()
    site.study(start=False)
    document = read_document(EXAMPLE, "yaml")
    edited = site.client.put("/v1/studies/feed?reason=typo", json={**document, "description": "mended"})
    assert (edited.status_code, edited.json()["description"]) == (200, "mended")
    assert site.client.put("/v1/studies/feed", json={**document, "name": "food"}).status_code == 400
    assert site.client.put("/v1/studies/food", json=document).status_code == 404
    assert site.client.put("/v1/studies/feed?reason=" + "x" * 1001, json=document).status_code == 400
    assert site.client.put("/v1/studies/feed", json={**document, "goal": {}}).status_code == 422
    assert site.client.get("/v1/studies/feed/audit").json()["audit"][-1]["reason"] == "typo"
    deleted = site.client.delete("/v1/studies/feed?reason=done").json()
    assert deleted == {"name": "feed", "state": "deleted", "deleted_as": "feed@1"}
    assert site.client.get("/v1/studies/feed").status_code == 404
    assert site.client.get("/v1/studies").json() == {"studies": []}
    api = HttpStudyApi(site.url)
    assert api.create(document, who="ann", reason="again").state == "draft"
    assert api.edit("feed", {**document, "description": "more"}, who="ann", reason="why").description == "more"
    assert [line.reason for line in api.audit("feed")] == ["again", "why"]
    site.client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
    refused = site.client.delete("/v1/studies/feed")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong_state")
    api.change("feed", "archive", who="ann", reason="over")
    assert api.create(document, who="ann").archived_as == "feed@2"
    assert [line.action for line in api.audit("feed@2")] == ["create", "edit", "start", "archive", "rename"]
    assert api.delete("feed", who="ann").deleted_as == "feed@3"


def test_a_ramp_is_moved_over_http(serve: Serve) -> None:
    site = serve()
    site.study(traffic={"control": 0.1, "ramp": [0.05, 0.25, 1.0]})
    url = "/v1/studies/feed"
    begun = site.client.get(url).json()
    assert begun["ramp"] == {
        "step": 1,
        "shares": [0.05, 0.25, 1.0],
        "rounds_left": 3,
        "is_held": False,
        "is_unjudged": False,
    }
    assert begun["policy"]["enrolled"] == pytest.approx(0.05)
    moved = site.client.patch(url, json={"action": "ramp", "to": "25%", "reason": "holds so far"}).json()
    assert (moved["round"], moved["ramp"]["step"], moved["policy"]["enrolled"]) == (2, 2, 0.25)
    assert site.client.get(f"{url}/audit").json()["audit"][-1]["reason"] == "holds so far"
    assert site.client.patch(url, json={"action": "ramp", "to": 1.0}).json()["policy"]["enrolled"] == 1.0
    for wrong, field in (
        ({"action": "ramp"}, "to"),
        ({"action": "pause", "reason": "lunch", "to": "next"}, "to"),
        ({"action": "ramp", "to": "next", "set": {"owner": "me"}}, "set"),
    ):
        refused = site.client.patch(url, json=wrong)
        assert (refused.status_code, refused.json()["error"]["field"]) == (400, field)
    assert site.client.patch(url, json={"action": "ramp", "to": "7%"}).status_code in (400, 422)
    api = HttpStudyApi(site.url)
    held = api.move_ramp("feed", "hold", who="ann").ramp
    assert held is not None
    assert held.is_held


def test_units_outside_get_the_baseline_without_an_exposure_over_http(serve: Serve) -> None:
    site = serve()
    site.study(traffic={"control": 0.1, "explore": 0.25})
    units = [f"user {number}" for number in range(200)]
    many = site.client.post(ASSIGN, json={"units": units}).json()["assignments"]
    single = [site.client.post(ASSIGN, json={"unit": unit}).json() for unit in units[:50]]
    assert [each["arm"] for each in single] == [each["arm"] for each in many[:50]]
    outside = [each for each in many if each["arm"] == "not_enrolled"]
    assert 120 < len(outside) < 180
    assert {(each["reason"], each["propensity"], each["candidate"]) for each in outside} == {
        ("DEFAULT", 0.0, "like_weight=1,share_weight=1")
    }
    inside = {each["unit"] for each in many} - {each["unit"] for each in outside}
    assert {each["reason"] for each in many if each["unit"] in inside} == {"SPLIT"}
    flags = [
        site.client.post("/ofrep/v1/evaluate/flags/feed", json={"context": {"targetingKey": unit}}).json()
        for unit in units[:50]
    ]
    assert [flag["metadata"]["arm"] for flag in flags] == [each["arm"] for each in single]
    site.client.post(EVENTS, json=[{"type": "metric", "id": "m", "unit": "ann", "name": "like"}]).raise_for_status()
    with site.running.service.store.read_transaction() as connection:
        logged = {row[0] for row in connection.execute("SELECT unit FROM events WHERE kind = 0").fetchall()}
    assert logged == inside
    counts = site.client.get("/metrics").text
    outside_single = sum(each["arm"] == "not_enrolled" for each in single)
    assert f'pasto_not_enrolled_total{{study="feed",via="assign"}} {len(outside) + outside_single}.0' in counts
    assert f'pasto_not_enrolled_total{{study="feed",via="ofrep"}} {outside_single}.0' in counts


def test_attributes_decide_on_the_audience_over_http(serve: Serve) -> None:
    site = serve()
    site.study(audience={"country": ["de", "at"], "tenure_days": ">= 7"})
    inside: dict[str, Any] = {"country": "de", "tenure_days": 9}

    def assign(**body: Any) -> Any:
        return site.client.post(ASSIGN, json=body).json()

    assert assign(unit="ann", attributes=inside)["reason"] == "SPLIT"
    for attributes in ({}, {**inside, "tenure_days": "9"}, {**inside, "country": ["de"]}, {**inside, "country": None}):
        decided = assign(unit="bob", attributes=attributes)
        assert (decided["arm"], decided["reason"], decided["propensity"]) == ("not_enrolled", "DEFAULT", 0.0)
    assert assign(unit="bob")["arm"] == "not_enrolled"
    units = ["cay", "dan"]
    both = assign(units=units, attributes=inside)["assignments"]
    assert {each["reason"] for each in both} == {"SPLIT"}
    assert {each["reason"] for each in assign(units=units)["assignments"]} == {"DEFAULT"}
    flag = "/ofrep/v1/evaluate/flags/feed"
    context = {"targetingKey": "eve", **inside}
    evaluated = site.client.post(flag, json={"context": context}).json()
    assert (evaluated["reason"], evaluated["metadata"]["arm"] != "not_enrolled") == ("SPLIT", True)
    outside = site.client.post(flag, json={"context": {**context, "tenure_days": 3}}).json()
    assert (outside["reason"], outside["metadata"]["arm"], outside["variant"]) == (
        "DEFAULT",
        "not_enrolled",
        "like_weight=1,share_weight=1",
    )
    flags = "/ofrep/v1/evaluate/flags"
    first = site.client.post(flags, json={"context": context})
    tag = {"if-none-match": first.headers["etag"]}
    assert site.client.post(flags, json={"context": context}, headers=tag).status_code == 304
    changed = site.client.post(flags, json={"context": {**context, "country": "fr"}}, headers=tag)
    assert (changed.status_code, changed.json()["flags"][0]["reason"]) == (200, "DEFAULT")
    wrong = site.client.post(ASSIGN, json={"unit": "ann", "attributes": ["de"]})
    assert wrong.status_code == 400
    site.client.post(EVENTS, json=[{"type": "metric", "id": "m", "unit": "ann", "name": "like"}]).raise_for_status()
    with site.running.service.store.read_transaction() as connection:
        logged = {row[0] for row in connection.execute("SELECT unit FROM events WHERE kind = 0").fetchall()}
    assert logged == {"ann", "cay", "dan", "eve"}


def test_a_running_study_is_edited_over_http(serve: Serve) -> None:
    site = serve()
    site.study()
    url = "/v1/studies/feed"
    edit = {"action": "edit", "set": {"traffic.explore": "25%"}, "reason": "less risk", "generation": 2}
    planned = site.client.patch(url, json={**edit, "dry_run": True}).json()
    assert planned["changes"] == [{"field": "traffic.explore", "before": 1.0, "after": 0.25}]
    assert (planned["round"], planned["document"]["traffic"]["explore"]) == (1, 1.0)
    edited = site.client.patch(url, json=edit).json()
    assert (edited["round"], edited["document"]["traffic"]["explore"]) == (2, 0.25)
    assert [(row["who"], row["reason"]) for row in edited["edits"]] == [("local", "less risk")]
    conflict = site.client.patch(url, json=edit)
    assert (conflict.status_code, conflict.json()["error"]["code"]) == (409, "conflict")
    refused = site.client.patch(
        url, json={"action": "edit", "set": {"unit": "session", "goal": {"minimize": "watch_time"}}}
    )
    assert refused.status_code == 422
    assert set(refused.json()["error"]["problems"]) == {"unit", "goal"}
    wrong = site.client.patch(url, json={"action": "pause", "reason": "lunch", "set": {"owner": "me"}})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "set")
    added = {
        "action": "edit",
        "add": [{"like_weight": 3, "share_weight": 1}],
        "retire": ["like_weight=2,share_weight=0"],
    }
    assert site.client.patch(url, json=added).json()["candidates"] == 9
    assert site.client.put(url + "?generation=3", json=edited["document"]).status_code == 409
    assert site.client.put(url + "?dry_run=yes", json=edited["document"]).status_code == 400
    api = HttpStudyApi(site.url)
    document = {**api.show("feed").document, "owner": "feed team"}
    assert [change.field for change in api.edit("feed", document, who="ann", dry_run=True).changes or ()] == ["owner"]
    assert api.edit("feed", document, who="ann", generation=4).owner == "feed team"
    with pytest.raises(ConflictError, match="read it again"):
        api.edit("feed", document, who="ann", generation=4)
    assert api.edit("feed", who="ann", restore=["like_weight=2,share_weight=0"]).candidates == 10
    assert api.replay("feed").identical


def test_the_http_client_works_with_this_service(serve: Serve) -> None:
    site = serve()
    api = HttpStudyApi(site.url)
    document = read_document(EXAMPLE, "yaml")
    assert api.create(document, who="ann").state == "draft"
    assert api.change("feed", "start", who="ann").round == 1
    assert api.close_round("feed", who="ann", reason="why not").next_version == 2
    assert [study.name for study in api.studies()] == ["feed"]
    assert len(api.rounds("feed")) == 1
    assert api.audit("feed")[-1].reason == "why not"
    assert [line.who for line in api.audit("feed")] == ["ann", "ann", "ann"]
    assert api.replay("feed").identical
    made = api.create_key("boss", ["admin"], expires_in=600)
    api = HttpStudyApi(site.url, made.key)
    listed = api.keys()
    assert [key.prefix for key in listed] == [made.prefix]
    api.close_round("feed", who="Zoë: 100 %")
    assert api.audit("feed")[-1].who == f"boss ({made.prefix}): Zoë: 100 %"
    assert api.revoke_key(made.prefix)


@pytest.mark.parametrize("body", [b"<html>", b'{"identical":"yes"}'])
def test_a_response_that_is_not_a_record_is_an_error(body: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(StoreError, match=r"cannot be read \(.*\); check the address, and that the service has"):
            HttpStudyApi(f"http://127.0.0.1:{server.server_port}").replay("feed")
        thread.join()


def test_the_policy_is_the_document_itself(site: Site) -> None:
    answer = site.client.get(POLICY)
    current = site.running.service.policy_cache.current("feed")
    assert answer.content == current.text.encode()
    assert answer.headers["etag"] == f'"{current.checksum}"'
    PublishedPolicy.from_text(answer.content, answer.headers["etag"].strip('"'))
    for tag in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}', "*"):
        again = site.client.get(POLICY, headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]
    assert site.client.get(POLICY, headers={"if-none-match": '"other"'}).status_code == 200


def test_waiting_ends_with_the_time_and_with_the_change(serve: Serve) -> None:
    site = serve()
    site.study()
    tag = site.client.get(POLICY).headers["etag"]
    headers = {"if-none-match": tag}
    assert site.client.get(f"{POLICY}?wait=0.05", headers=headers).status_code == 304
    assert site.client.get(f"{POLICY}?wait=60").status_code == 200  # a caller without a policy does not wait
    waiting = site.running.application.context.long_poll
    many = 60
    with ThreadPoolExecutor(many) as pool:
        answers = [pool.submit(site.client.get, f"{POLICY}?wait=60", headers=headers, timeout=60) for _ in range(many)]
        site.until(lambda: waiting.number == many)
        assert site.client.post(ASSIGN, json={"unit": "ann"}).status_code == 200
        site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
        site.until(lambda: waiting.number == 0)  # at once, and not after the waiting time
        found = {answer.result().headers["etag"] for answer in answers}
    assert found == {site.client.get(POLICY).headers["etag"]} != {tag}


def test_a_node_without_its_store_confirms_no_policy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    policy_cache, path = site.running.service.policy_cache, "/v1/studies/feed/policy"
    tag = {"if-none-match": site.client.get(path).headers["etag"]}

    def lost() -> Any:
        raise StoreError("no route to host")

    with monkeypatch.context() as patch:
        patch.setattr(site.running.service.store, "read_generations", lost)
        site.until(lambda: policy_cache.silence > 0)
        assert site.client.get(path, headers=tag).status_code == 304  # a failed read is not a new version
        patch.setattr(policies, "MAX_STORE_SILENCE_SECONDS", 0.0)
        for headers in ({}, tag):
            answer = site.client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
            assert answer.headers["retry-after"]
        assert site.client.post("/v1/studies/feed/assign", json={"unit": "u"}).status_code == 200  # still valid
        waited = policy_cache.silence + policy_cache.current("feed").expires_after
        patch.setattr(type(policy_cache), "silence", property(lambda _: waited))
        assert site.client.post("/v1/studies/feed/assign", json={"unit": "u"}).status_code == 503
        asked = {"context": {"targetingKey": "u"}}
        assert site.client.post("/ofrep/v1/evaluate/flags/feed", json=asked).status_code == 503
        assert site.client.post("/ofrep/v1/evaluate/flags", json=asked).json()["flags"] == []
    site.until(lambda: policy_cache.silence == 0)
    assert site.client.get(path, headers=tag).status_code == 304


def test_waiting_for_one_study_is_not_ended_by_another(serve: Serve) -> None:
    site = serve(shutdown_timeout=60)
    site.study()
    site.study("other")
    headers = {"if-none-match": site.client.get(POLICY).headers["etag"]}
    heard: list[int] = []
    waiter = threading.Thread(
        target=lambda: heard.append(httpx.get(f"{site.url}{POLICY}?wait=60", headers=headers, timeout=60).status_code)
    )
    waiter.start()
    site.until(lambda: site.running.application.context.long_poll.number == 1)
    site.client.post("/v1/studies/other/rounds/close").raise_for_status()
    assert site.client.get("/healthz").status_code == 200
    assert heard == []
    site.running.stop()
    waiter.join()
    assert heard == [304]  # waiting callers get an answer when the service stops


def test_more_waiters_than_allowed_are_answered_at_once_and_disconnected(serve: Serve) -> None:
    site = serve(max_waiters=1)
    site.study()
    headers = {"if-none-match": site.client.get(POLICY).headers["etag"]}
    site.running.application.context.long_poll.number = 1
    answer = site.client.get(f"{POLICY}?wait=60", headers=headers)
    assert (answer.status_code, answer.headers["retry-after"], answer.headers["connection"]) == (304, "1", "close")
    assert site.client.get(f"{POLICY}?wait=60", headers={"if-none-match": '"another"'}).status_code == 200


def test_decisions_are_those_of_the_policy(site: Site) -> None:
    policy = PublishedPolicy.from_text(site.client.get(POLICY).content)
    units = ["ann", "böb", "用户", "😀", 'quo"te\\', "nul\u0000", "x" * 256]
    many = site.client.post(ASSIGN, json={"units": units}).json()
    assert (many["study"], many["version"], many["round"]) == ("feed", policy.version, policy.round)
    for unit, found in zip(units, many["assignments"], strict=True):
        cell = policy.draw(unit)
        alone = site.client.post(ASSIGN, json={"unit": unit}).json()
        assert alone == {**found, "study": "feed", "version": policy.version, "round": policy.round}
        assert found == {
            "unit": unit,
            "candidate": cell.name,
            "index": cell.candidate,
            "values": dict(cell.values),
            "propensity": cell.propensity,
            "arm": cell.arm,
            "reason": "SPLIT",
        }


@pytest.mark.parametrize(
    "body", [{}, {"unit": ""}, {"unit": "x" * 257}, {"unit": 3}, {"unit": "a", "units": []}, [], {"units": [""]}]
)
def test_invalid_units_get_no_decision(site: Site, body: Any) -> None:
    answer = site.client.post(ASSIGN, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")


def exposures(site: Site) -> int:
    with site.running.service.store.read_transaction() as connection:
        return int(connection.execute("SELECT count(*) FROM events WHERE kind = 0").fetchone()[0])


def test_decisions_are_logged_once_a_unit(serve: Serve) -> None:
    site = serve()
    site.study()
    for _ in range(3):
        site.client.post(ASSIGN, json={"unit": "ann"}).raise_for_status()
        site.client.post(ASSIGN, json={"units": ["ann", "bob", "cid"]}).raise_for_status()
    site.until(lambda: exposures(site) == 3)
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
    site.client.post(ASSIGN, json={"unit": "ann"}).raise_for_status()
    site.until(lambda: exposures(site) == 4)


def test_an_event_right_after_a_decision_is_credited_to_it(serve: Serve) -> None:
    site = serve()
    site.study()
    for unit in map(str, range(50)):
        site.client.post(ASSIGN, json={"unit": unit}).raise_for_status()
        site.client.post(EVENTS, json=[{"type": "metric", "id": unit, "unit": unit, "name": "like"}]).raise_for_status()
    with site.running.service.store.read_transaction() as connection:
        found = connection.execute("SELECT count(*) FROM events WHERE kind = 1 AND version = 1").fetchone()[0]
    assert found == 50


def batch(number: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"type": "metric", "id": f"e{k}", "unit": "ann", "name": "like"} for k in range(start, start + number)]


def test_events_come_in_every_form(serve: Serve) -> None:
    site = serve()
    site.study()
    lines = "\n".join(map(json.dumps, batch(2, 4))).encode()
    packed = {"content-encoding": "gzip", "content-type": "application/json"}
    forms: list[tuple[bytes, dict[str, str]]] = [
        (json.dumps(batch(2)).encode(), {"content-type": "application/json; charset=utf-8"}),
        (json.dumps({"events": batch(2, 2)}).encode(), {"content-type": "application/json"}),
        (lines, {"content-type": "application/x-ndjson"}),
        (gzip.compress(json.dumps(batch(2, 6)).encode()), packed),
        (
            gzip.compress(b"\n".join(map(str.encode, map(json.dumps, batch(2, 8))))),
            {**packed, "content-type": "application/jsonl"},
        ),
    ]
    for body, headers in forms:
        answer = site.client.post(EVENTS, content=body, headers=headers)
        assert answer.json() == {"accepted": 2, "duplicates": 0, "rejected": []}
    assert site.client.post(EVENTS, json=batch(12)).json() == {"accepted": 2, "duplicates": 10, "rejected": []}


def test_a_bad_event_rejects_no_other_and_an_invalid_batch_is_reported(serve: Serve) -> None:
    site = serve()
    site.study()
    mixed = [*batch(2), {"type": "metric", "id": "bad", "unit": "ann", "name": "nothing"}]
    answer = site.client.post(EVENTS, json=mixed)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
    assert [(each["index"], each["id"]) for each in answer.json()["rejected"]] == [(2, "bad")]
    bad = site.client.post(EVENTS, json=mixed[2:])
    assert (bad.status_code, len(bad.json()["rejected"])) == (422, 1)
    assert site.client.post(EVENTS, json=[]).json() == {"accepted": 0, "duplicates": 0, "rejected": []}


def test_a_large_batch_is_taken_whole(serve: Serve) -> None:
    site = serve()
    site.study()
    assert site.client.post(EVENTS, json=batch(10_000)).json()["accepted"] == 10_000


def test_ten_thousand_units_are_decided_for_at_once(serve: Serve) -> None:
    site = serve()
    site.study()
    units = [f"user {k}" for k in range(10_000)]
    found = site.client.post(ASSIGN, json={"units": units}).json()["assignments"]
    assert [each["unit"] for each in found] == units
    site.until(lambda: exposures(site) == 10_000)


def test_layers_and_the_holdout_over_http(serve: Serve) -> None:
    site = serve()
    site.study(layer={"name": "home", "share": "40%"})
    assert site.client.get("/v1/layers").json() == {
        "layers": [
            {
                "name": "home",
                "unit": "user",
                "free": 0.6,
                "largest_free": 0.6,
                "slices": [{"study": "feed", "state": "learning", "start": 0.0, "until": 0.4}],
            }
        ]
    }
    full = {**read_document(EXAMPLE, "yaml"), "name": "search", "layer": {"name": "home", "share": "70%"}}
    refused = site.client.post("/v1/studies", json=full)
    assert refused.status_code == 422
    assert "layer home has 60% free" in refused.json()["error"]["problems"]["layer.share"]
    assert site.client.get("/v1/holdout").json()["share"] == 0.0
    for body in ({}, {"share": "70%"}, {"share": 0.7}, {"share": "5%", "unit": "a b"}, {"share": "5%", "more": 1}):
        assert site.client.put("/v1/holdout", json=body).status_code in (400, 422), body
    answer = site.client.put("/v1/holdout", json={"share": "5%", "reason": "launches"}).json()
    assert (answer["share"], answer["unit"]) == (0.05, "user")
    assert answer["studies"][0]["use"] == "from the next policy on"
    api = HttpStudyApi(site.url)
    assert api.holdout().share == 0.05
    assert api.set_holdout(0.1, who="bob").share == 0.1
    assert api.layers()[0].slices[0].study == "feed"
    assert api.delete_holdout(who="bob", reason="over").share == 0.0
    lines = site.client.get("/v1/keys/audit").json()["audit"]
    assert [(line["action"], line["reason"]) for line in lines] == [
        ("holdout", "launches"),
        ("holdout", ""),
        ("holdout", "over"),
    ]
