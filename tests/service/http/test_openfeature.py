"""OpenFeature flags: responses by the protocol, read by the real OpenFeature client for Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.http.conftest import Serve, Site

FLAGS = "/ofrep/v1/evaluate/flags"
PARAMETERS = {"weight": [0, 1.5, 2], "depth": [10, 20], "ranker": ["fast", "deep"], "boost": [True, False]}
BASELINE = {"weight": 2, "depth": 10, "ranker": "fast", "boost": False}


@pytest.fixture(scope="module")
def flags(serve_long: Serve) -> Site:
    """Return a service with a study whose parameters are of every type, and one that is still a draft."""
    site = serve_long()
    site.study("ranking", parameters=PARAMETERS, baseline=BASELINE)
    site.study("later", start=False)
    return site


@pytest.fixture
def client(flags: Site) -> Iterator[OpenFeatureClient]:
    provider = OFREPProvider(flags.url)
    api.set_provider(provider)
    yield api.get_client()
    api.shutdown()
    provider.session.close()


def ask(site: Site, key: str, context: Any) -> Any:
    return site.client.post(f"{FLAGS}/{key}", json={"context": context})


def test_the_real_client_reads_every_type(flags: Site, client: OpenFeatureClient) -> None:
    policy = PublishedPolicy.from_text(flags.client.get("/v1/studies/ranking/policy").content)
    for unit in (f"user {k}" for k in range(30)):
        context = EvaluationContext(unit, {"country": "NL", "nested": {"a": [1, 2]}})
        cell = policy.draw(unit)
        found = client.get_object_details("ranking", {}, context)
        assert found.error_code is None
        assert found.value == dict(cell.values)
        assert found.variant == cell.name
        assert found.reason == Reason.SPLIT
        assert found.flag_metadata == {
            "study": "ranking",
            "candidate": cell.name,
            "propensity": cell.propensity,
            "round": policy.round,
            "version": policy.version,
            "arm": cell.arm,
        }
        assert client.get_float_value("ranking.weight", -1.0, context) == cell.values["weight"]
        assert client.get_integer_value("ranking.depth", -1, context) == cell.values["depth"]
        assert client.get_string_value("ranking.ranker", "", context) == cell.values["ranker"]
        assert client.get_boolean_details("ranking.boost", True, context).value is cell.values["boost"]


def test_the_real_client_receives_the_error(client: OpenFeatureClient) -> None:
    context = EvaluationContext("ann")
    for key in ("nowhere", "ranking.nothing", "later", "ranking.", "ranking.weight.more"):
        missing = client.get_string_details(key, "default", context)
        assert (missing.value, missing.error_code) == ("default", ErrorCode.FLAG_NOT_FOUND), key
    without_unit = client.get_object_details("ranking", {"a": 1}, EvaluationContext())
    assert (without_unit.value, without_unit.error_code) == ({"a": 1}, ErrorCode.TARGETING_KEY_MISSING)
    long = client.get_object_details("ranking", {}, EvaluationContext("x" * 257))
    assert long.error_code == ErrorCode.INVALID_CONTEXT
    wrong = client.get_boolean_details("ranking.ranker", False, context)
    assert (wrong.value, wrong.error_code) == (False, ErrorCode.TYPE_MISMATCH)


def test_the_real_client_with_and_without_a_key(serve: Serve) -> None:
    site = serve()
    site.study("ranking", parameters=PARAMETERS, baseline=BASELINE)
    key = site.running.application.context.keys.create("web", ["evaluate"]).key
    for sent, error in ((key, None), ("wrong", ErrorCode.GENERAL)):
        headers = {"Authorization": f"Bearer {sent}"}
        provider = OFREPProvider(site.url, headers_factory=headers.copy)
        api.set_provider(provider)
        found = api.get_client().get_object_details("ranking", {}, EvaluationContext("ann"))
        assert found.error_code == error
        api.shutdown()
        provider.session.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "TARGETING_KEY_MISSING"),
        (b"{}", "TARGETING_KEY_MISSING"),
        (b'{"context": null}', "TARGETING_KEY_MISSING"),
        (b'{"context": {"targetingKey": ""}}', "TARGETING_KEY_MISSING"),
        (b'{"context": {"targetingKey": null}}', "TARGETING_KEY_MISSING"),
        (b'{"context": {"targetingKey": 7}}', "INVALID_CONTEXT"),
        (b'{"context": []}', "INVALID_CONTEXT"),
        (b"[]", "INVALID_CONTEXT"),
        (b"{", "PARSE_ERROR"),
        (b"\xff", "PARSE_ERROR"),
        (b'{"context": ' + b'{"a": ' * 10_000, "PARSE_ERROR"),
    ],
)
@pytest.mark.parametrize("path", [FLAGS, f"{FLAGS}/ranking"])
def test_errors_are_in_the_protocols_own_form(flags: Site, path: str, body: bytes, code: str) -> None:
    answer = flags.client.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["errorCode"]) == (400, code)
    assert answer.json()["errorDetails"]


def test_a_long_body_gives_an_error_of_the_protocol(serve: Serve) -> None:
    site = serve(body_limit=1000)
    answer = site.client.post(FLAGS, content=b" " * 2000)
    assert (answer.status_code, answer.json()["errorCode"]) == (413, "GENERAL")


def test_every_flag_at_once(flags: Site) -> None:
    answer = flags.client.post(FLAGS, json={"context": {"targetingKey": "ann"}})
    found = {flag["key"]: flag for flag in answer.json()["flags"]}
    assert set(found) == {"ranking", *(f"ranking.{name}" for name in PARAMETERS)}
    for key, flag in found.items():
        assert flag == ask(flags, key, {"targetingKey": "ann"}).json()


def test_flags_that_a_caller_has_are_not_sent_again(serve: Serve) -> None:
    site = serve()
    site.study("ranking", parameters=PARAMETERS, baseline=BASELINE)
    body = {"context": {"targetingKey": "ann"}}
    tag = site.client.post(FLAGS, json=body).headers["etag"]
    same = site.client.post(FLAGS, json=body, headers={"if-none-match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    bob = site.client.post(FLAGS, json={"context": {"targetingKey": "bob"}}, headers={"if-none-match": tag})
    assert (bob.status_code, bob.headers["etag"] != tag) == (200, True)
    site.client.post("/v1/studies/ranking/rounds/close").raise_for_status()
    later = site.client.post(FLAGS, json=body, headers={"if-none-match": tag})
    assert (later.status_code, later.headers["etag"] != tag) == (200, True)


def test_a_parameter_keeps_its_type_for_every_unit(flags: Site) -> None:
    raw = {
        flags.client.post(f"{FLAGS}/ranking.weight", json={"context": {"targetingKey": str(k)}}).text for k in range(40)
    }
    written = {text.split('"value":')[1].split(",")[0] for text in raw}
    assert written <= {"0.0", "1.5", "2.0"}
    assert "2.0" in written


def test_a_parameter_keeps_its_type_when_only_whole_numbers_are_served(serve: Serve) -> None:
    site = serve()
    site.study("ranking", parameters=PARAMETERS, baseline=BASELINE)
    site.client.patch("/v1/studies/ranking", json={"action": "pause", "reason": "to see"}).raise_for_status()
    answer = ask(site, "ranking.weight", {"targetingKey": "ann"})
    assert '"value":2.0' in answer.text
    assert (answer.json()["reason"], answer.json()["metadata"]["arm"]) == ("DEFAULT", "paused")


def exposures(site: Site) -> int:
    with site.running.service.store.read_transaction() as connection:
        return int(connection.execute("SELECT count(*) FROM events").fetchone()[0])


@pytest.mark.parametrize(("which", "single", "bulk"), [("single", 1, 0), ("all", 1, 1), ("none", 0, 0)])
def test_which_evaluations_are_exposures(serve: Serve, which: str, single: int, bulk: int) -> None:
    site = serve(ofrep_exposures=which)
    site.study("ranking", parameters=PARAMETERS, baseline=BASELINE)
    for _ in range(2):
        ask(site, "ranking", {"targetingKey": "ann"}).raise_for_status()
        ask(site, "ranking.depth", {"targetingKey": "ann"}).raise_for_status()
    site.client.post("/v1/studies/ranking/events", json=[]).raise_for_status()
    site.until(lambda: exposures(site) == single)
    site.client.post(FLAGS, json={"context": {"targetingKey": "bob"}}).raise_for_status()
    site.client.post("/v1/studies/ranking/events", json=[]).raise_for_status()
    site.until(lambda: exposures(site) == single + bulk)
