"""Limits of requests: too large, too deep, too slow, or of a wrong type."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pasto.service.http import body as bodies
from pasto.service.http import ofrep, studies
from pasto.service.http.body import check_depth
from pasto.service.http.responses import ApiError

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

EVENTS = "/v1/studies/feed/events"
ASSIGN = "/v1/studies/feed/assign"
JSON = {"content-type": "application/json"}


def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def talk(site: Site, sent: bytes, *, wait: float = 60.0) -> bytes:
    """Send bytes to the socket, and read everything until it closes."""
    host, port = site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(sent)
        heard = b""
        while part := connection.recv(65536):
            heard += part
        return heard


@pytest.fixture(scope="module")
def limited_site(serve_long: Serve) -> Site:
    """Return a service with small limits."""
    site = serve_long(body_limit=20_000, batch_limit=50, request_timeout=0.5)
    site.limit_time(60)
    site.study()
    return site


@pytest.mark.parametrize("path", [EVENTS, ASSIGN, "/v1/studies", "/ofrep/v1/evaluate/flags/feed", "/v1/keys"])
def test_a_long_body_is_refused(limited_site: Site, path: str) -> None:
    answer = limited_site.client.post(path, content=b"[" + b" " * 30_000 + b"]", headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_a_body_with_a_large_content_length_is_refused_unread(limited_site: Site) -> None:
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    heard = talk(limited_site, head.encode() + b"[" * 1000)
    assert heard.startswith(b"HTTP/1.1 413")
    assert b'"body_too_large"' in heard


def test_a_body_that_does_not_say_how_long_it_is_is_refused_on_the_way(limited_site: Site) -> None:
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    heard = talk(limited_site, head.encode() + b"3e8\r\n%b\r\n" % (b" " * 1000) * 40)  # and more follows
    assert heard.startswith(b"HTTP/1.1 413")
    assert b'"body_too_large"' in heard


def test_a_gzip_bomb_by_ratio_is_refused(site: Site) -> None:
    bomb = gzip.compress(b" " * 2_000_000)
    answer = site.client.post(EVENTS, content=bomb, headers={**JSON, "content-encoding": "gzip"})
    assert code(answer) == (413, "body_too_large")


def test_a_gzip_bomb_by_size_is_refused(limited_site: Site) -> None:
    bomb = gzip.compress(bytes(range(256)) * 120)
    answer = limited_site.client.post(EVENTS, content=bomb, headers={**JSON, "content-encoding": "gzip"})
    assert code(answer) == (413, "body_too_large")


def test_a_chain_of_gzip_members_is_one_body_and_one_limit(limited_site: Site) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    halves = gzip.compress(b'{"unit":') + gzip.compress(b'"ann"}')
    assert limited_site.client.post(ASSIGN, content=halves, headers=headers).json()["unit"] == "ann"
    many = b"".join(gzip.compress(b" " * 1000) for _ in range(40))
    assert code(limited_site.client.post(ASSIGN, content=many, headers=headers)) == (413, "body_too_large")


def test_a_chain_of_very_many_gzip_members_is_not_followed(site: Site) -> None:
    answer = site.client.post(
        EVENTS, content=gzip.compress(b"") * 1000 + gzip.compress(b"[]"), headers={**JSON, "content-encoding": "gzip"}
    )
    assert code(answer) == (400, "bad_request")
    assert "members" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"no gzip", gzip.compress(b"[]")[:-4], gzip.compress(b"[]") + b"rest"], ids=["none", "cut", "more"]
)
def test_a_broken_gzip_is_refused(site: Site, body: bytes) -> None:
    answer = site.client.post(EVENTS, content=body, headers={**JSON, "content-encoding": "gzip"})
    assert code(answer) == (400, "bad_request")


def test_an_unknown_encoding_is_refused(site: Site) -> None:
    answer = site.client.post(EVENTS, content=b"[]", headers={**JSON, "content-encoding": "br"})
    assert code(answer) == (415, "unsupported_encoding")


@pytest.mark.parametrize("path", [EVENTS, ASSIGN, "/v1/studies", "/ofrep/v1/evaluate/flags/feed", "/v1/keys"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"context":{"a":', b'[{"type":"metric","fields":'])
def test_a_document_without_a_bottom_is_refused(site: Site, path: str, opening: bytes) -> None:
    for depth in (40, 10_000, 100_000):
        answer = site.client.post(path, content=opening * depth, headers=JSON)
        assert answer.status_code in (400, 422), (depth, answer.text)


@pytest.mark.parametrize("path", [ASSIGN, "/v1/studies", "/ofrep/v1/evaluate/flags/feed"])
def test_a_large_body_is_parsed_outside_the_event_loop(site: Site, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(body: bytes, limit: int) -> None:
        threads.append(threading.current_thread().name)
        check_depth(body, limit)

    for module in (bodies, ofrep, studies):
        monkeypatch.setattr(module, "check_depth", noted)
    answer = site.client.post(path, content=b"[" + b"[]," * 40_000 + b"[]]", headers=JSON)
    assert answer.status_code in (400, 422)
    assert [name.startswith("pasto-") for name in threads] == [True]


def test_a_deep_yaml_or_toml_is_refused(site: Site) -> None:
    for kind, body in (("yaml", b"{a: " * 10_000), ("yaml", b"&a [*a]"), ("toml", b"a = " + b"[" * 10_000)):
        answer = site.client.post("/v1/studies", content=body, headers={"content-type": f"application/{kind}"})
        assert code(answer) == (422, "invalid_study_file")


@pytest.mark.parametrize("path", [EVENTS, ASSIGN, "/v1/studies", "/v1/keys"])
def test_another_content_type_is_refused(site: Site, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "é", "x" * 1000):
        answer = site.client.post(path, content=b"{}", headers={b"content-type": kind.encode()})
        assert code(answer) == (415, "unsupported_type")
        assert len(answer.text) < 400


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b"\xff\xfe", b'{"unit": "\\ud800"}', b"NaN", b"[1, 2", b"null"]
)
def test_what_is_no_json_is_refused(site: Site, body: bytes) -> None:
    for path in (EVENTS, ASSIGN, "/v1/studies", "/v1/keys"):
        answer = site.client.post(path, content=body, headers=JSON)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert answer.json()["error"]["message"]


def test_too_many_events_are_refused_at_once(site: Site, limited_site: Site) -> None:
    assert code(limited_site.client.post(EVENTS, json=[{}] * 51)) == (413, "batch_too_large")
    assert limited_site.client.post(EVENTS, json=[{}] * 50).status_code == 422
    for body in (b"[" + b"1," * 2_000_000 + b"1]", b"[" + b"{}," * 1_500_000 + b"{}]", b"[" + b"1," * 100_000 + b"1]"):
        assert code(site.client.post(EVENTS, content=body, headers=JSON)) == (413, "batch_too_large")
    lines = b"{}\n" * 100_000
    answer = site.client.post(EVENTS, content=lines, headers={"content-type": "application/x-ndjson"})
    assert code(answer) == (413, "batch_too_large")


def test_too_many_units_are_refused(limited_site: Site) -> None:
    assert code(limited_site.client.post(ASSIGN, json={"units": ["u"] * 51})) == (413, "batch_too_large")


def test_a_study_of_a_million_candidates_is_refused(site: Site) -> None:
    document = {
        "name": "huge",
        "baseline": {"a": 0, "b": 0},
        "parameters": {"a": list(range(1000)), "b": list(range(1000))},
        "metrics": {"x": {"event": "x", "aggregate": "count", "cap": 1}},
        "goal": {"maximize": "x"},
    }
    answer = site.client.post("/v1/studies", json=document)
    assert code(answer) == (422, "invalid_study_file")
    assert "parameters" in answer.json()["error"]["problems"]


def test_unknown_fields_are_refused_by_name(site: Site) -> None:
    answer = site.client.post(ASSIGN, json={"unit": "ann", "propensity": 0.5})
    assert code(answer) == (400, "bad_request")
    assert "propensity" in answer.json()["error"]["message"]
    answer = site.client.patch("/v1/studies/feed", json={"action": "explode"})
    assert (code(answer), answer.json()["error"]["field"]) == ((400, "bad_request"), "action")


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "limit=0", "limit=1001", "after=1&after=2", "what=1", "after=%ff", "limit=1e3"]
)
def test_a_bad_query_is_refused(site: Site, query: str) -> None:
    assert code(site.client.get(f"/v1/studies/feed/rounds?{query}")) == (400, "bad_request")


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "x", ""])
def test_a_bad_wait_is_refused(site: Site, wait: str) -> None:
    assert code(site.client.get(f"/v1/studies/feed/policy?wait={wait}")) == (400, "bad_request")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/studies/feed/assign HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /v1/studies/feed/assign HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal",
    ],
)
def test_a_slow_caller_is_disconnected(limited_site: Site, sent: bytes) -> None:
    heard = talk(limited_site, sent)
    assert b"HTTP/1.1 408" in heard
    assert heard.endswith(b'{"error":{"code":"timeout","message":"the request did not arrive in time"}}')


def test_a_slow_caller_is_disconnected_at_the_second_request(limited_site: Site) -> None:
    host, port = limited_site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


def test_a_drip_does_not_buy_time(limited_site: Site) -> None:
    host, port = limited_site.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.settimeout(0.05)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(1200):
            try:
                connection.sendall(b"X: y\r\n")
                if connection.recv(1000).startswith(b"HTTP/1.1 408"):
                    return
            except TimeoutError:
                continue
    raise AssertionError("it was heard for a minute")


def test_a_neighbour_is_served_meanwhile(limited_site: Site) -> None:
    host, port = limited_site.url.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port)), timeout=60) for _ in range(50)]
    try:
        for each in slow:
            each.sendall(b"POST /v1/studies/feed/assign HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{")
        assert limited_site.client.post(ASSIGN, json={"unit": "ann"}).status_code == 200
    finally:
        for each in slow:
            each.close()


def test_more_requests_than_allowed_are_asked_to_come_back(serve: Serve) -> None:
    site = serve(max_concurrent=1, retry_after=7)
    site.running.application.context.active_requests = 1
    answer = site.client.get("/v1/studies")
    assert code(answer) == (503, "overloaded")
    assert answer.headers["retry-after"] == "7"
    site.running.application.context.active_requests = 0
    assert site.client.get("/v1/studies").status_code == 200


def test_slow_work_is_answered_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.limit_time(0.2)
    answered = threading.Event()
    monkeypatch.setattr(site.running.service, "studies", lambda: answered.wait(60))
    answer = site.client.get("/v1/studies")
    answered.set()
    assert code(answer) == (503, "timeout")
    assert answer.headers["retry-after"] == "1"


def test_every_study_name_is_safe_in_a_path(site: Site) -> None:
    for name in ("..", "%2e%2e", "a%2Fb", "a%00b", "x" * 5000, "'; DROP TABLE events; --", "<script>", "%F0%9F%98%80"):
        answer = site.client.get(f"/v1/studies/{name}/policy")
        assert answer.status_code in (400, 404), answer.text
        assert answer.headers["content-type"] == "application/json"
        json.loads(answer.text)


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b'"' + b'\\"' * 50 + b"[" * 50, False),
        (b'{"a": "' + b"[" * 50 + b'"}', False),
        (b'{"a\\\\": ' + b"[" * 50, True),
        (b'["a\\"]", ' + b"[" * 50, True),
        (b"[]" * 50, False),
        (b"[" * 32 + b"]" * 32, False),
        (b"[" * 33 + b"]" * 33, True),
        (b'["\\', False),
        (b"[" * 32 + b'"' + b'\\"' * 2_000_000, False),
        (b"[" * 32 + b'"\\' * 1_000_000, False),
    ],
    ids=range(10),
)
def test_depth_is_counted_outside_strings_and_in_one_pass(body: bytes, deep: bool) -> None:
    try:
        check_depth(body, 32)
    except ApiError:
        assert deep
    else:
        assert not deep
