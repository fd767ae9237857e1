"""Malformed requests: bad framing, invalid UTF-8, mutated bodies, costly small bodies and gzip bombs."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.floods import FLOOD_MEMORY_MB, connect, measured_attack
from tests.chaos.load import STUDY, create_studies
from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess

ASSIGN = f"/v1/studies/{STUDY}/assign"
EVENTS = f"/v1/studies/{STUDY}/events"
JSON = {"content-type": "application/json"}
GZIP = {**JSON, "content-encoding": "gzip"}
NDJSON = {"content-type": "application/x-ndjson"}
MUTATIONS = 400
ANSWER_SECONDS = 20.0
BODY = b'{"unit":"x"}'
HIDDEN = b"DELETE /v1/keys/000000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A second request in the body of the first: an answer to it means that it was smuggled in."""


def _framed(*lines: bytes, body: bytes = BODY) -> bytes:
    head = (f"POST {ASSIGN} HTTP/1.1".encode(), b"Host: localhost", b"Content-Type: application/json", *lines)
    return b"\r\n".join((*head, b"", b"")) + body


FRAMINGS: dict[str, bytes] = {
    "length and chunked": _framed(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
    "chunked and length": _framed(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n" + HIDDEN),
    "two lengths": _framed(b"Content-Length: 12", b"Content-Length: 0", body=BODY + HIDDEN),
    "a list of lengths": _framed(b"Content-Length: 12, 0", body=BODY + HIDDEN),
    "a length with a sign": _framed(b"Content-Length: +12"),
    "a negative length": _framed(b"Content-Length: -1"),
    "a length in hexadecimal": _framed(b"Content-Length: 0xc"),
    "a very large length": _framed(b"Content-Length: 99999999999999999999"),
    "an unknown coding": _framed(b"Transfer-Encoding: xchunked"),
    "chunked twice": _framed(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"),
    "chunked by a tab": _framed(b"Transfer-Encoding:\tchunked\x0b", body=b"0\r\n\r\n"),
    "a chunk size with a sign": _framed(b"Transfer-Encoding: chunked", body=b"-1\r\n\r\n"),
    "a chunk size that is not a number": _framed(b"Transfer-Encoding: chunked", body=b"xyz\r\n\r\n"),
    "a very large chunk": _framed(b"Transfer-Encoding: chunked", body=b"ffffffffffffffffff\r\n\r\n"),
    "a chunk longer than its size": _framed(b"Transfer-Encoding: chunked", body=b"1\r\nabc\r\n0\r\n\r\n"),
    "a folded header": _framed(b"X-Folded: a\r\n b", b"Content-Length : 12"),
    "a space before the colon": _framed(b"Content-Length : 12"),
    "a bare carriage return": b"GET /healthz HTTP/1.1\rHost: localhost\r\n\r\n",
    "a zero byte in a header": b"GET /healthz HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
    "a zero byte in the address": b"GET /health\x00z HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "another version": b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + bytes(range(100)),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "bytes": bytes(range(256)) * 4,
}


def send_bad_framing(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send requests with ambiguous ends: each is refused or answered once, and no body can contain a second request."""
    with _service(workshop, outcome) as node:
        for _ in range(repetitions):
            for name, sent in FRAMINGS.items():
                statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3})", _talk(node.url, sent))]
                for status in statuses:
                    outcome.count_status(status)
                outcome.require(len(statuses) <= 1, f"framing ({name}) was answered {len(statuses)} times: smuggled")
                if HIDDEN in sent:
                    is_refused = not statuses or statuses[0] >= 400
                    outcome.require(is_refused, f"framing ({name}) was answered {statuses}")
            outcome.repetitions += len(FRAMINGS)
        _require_alive(outcome, node)


def send_invalid_utf8(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send invalid UTF-8 in every field of every JSON route of the OpenAPI document."""
    with _service(workshop, outcome) as node, node.client() as client:
        bodies = dict(json_routes(client))
        for _ in range(repetitions):
            for (method, path), example in bodies.items():
                for body in invalid_utf8(example):
                    answer = client.request(method, path, content=body, headers=JSON)
                    outcome.count_status(answer.status_code)
                    is_refused = 400 <= answer.status_code < 500
                    outcome.require(is_refused, f"invalid UTF-8 in {method} {path} was answered {answer.status_code}")
                    outcome.repetitions += 1
        _require_alive(outcome, node)


def send_mutated_bodies(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send valid bodies with random bytes changed, cut and repeated to every JSON route."""
    rng = workshop.random("mutations")
    with _service(workshop, outcome) as node, node.client() as client:
        bodies = list(json_routes(client))
        failed: set[str] = set()
        for turn in range(repetitions):
            (method, path), example = bodies[turn % len(bodies)]
            body = mutate(json.dumps(example).encode(), rng)
            headers = GZIP if turn % 10 == 9 else JSON
            answer = client.request(method, path, content=body, headers=headers)
            outcome.count_status(answer.status_code)
            outcome.repetitions += 1
            if answer.status_code == 500 and path not in failed:
                failed.add(path)
                outcome.broken.append(f"{method} {path} was answered 500 to {body[:80]!r}")
        _require_alive(outcome, node)


def send_costly_bodies(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send small bodies that are costly to read, four a second, next to a neighbour."""
    maps = "".join(f"- {{a: {number}}}\n" for number in range(5_000))
    costly: list[tuple[str, bytes, dict[str, str]]] = [
        (EVENTS, b"1\n" * 19_999, NDJSON),
        (EVENTS, b"{}\n" * 19_999, NDJSON),
        (EVENTS, b"[" + b"{}," * 9_998 + b"{}]", JSON),
        (EVENTS, b"[" * 50_000, JSON),
        (ASSIGN, b'{"units":[' + b'"",' * 9_998 + b'""]}', JSON),
        ("/v1/studies", f"name: x\nmetrics:\n{maps}".encode(), {"content-type": "application/yaml"}),
        ("/v1/studies", b"a = " + b"[" * 20_000, {"content-type": "application/toml"}),
    ]
    with (
        _service(workshop, outcome) as node,
        node.client() as client,
        measured_attack(workshop, node, outcome, memory_mb=FLOOD_MEMORY_MB),
    ):
        for _ in range(repetitions):
            for path, body, headers in costly:
                answer = client.post(path, content=body, headers=headers)
                outcome.count_status(answer.status_code)
                is_refused = 400 <= answer.status_code < 500 or answer.status_code == 503
                outcome.require(is_refused, f"a costly body to {path} was answered {answer.status_code}")
                outcome.repetitions += 1
                time.sleep(0.25)


def send_gzip_bombs(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Send bodies that unpack to a far larger size."""
    zeros = gzip.compress(b"0" * 50_000_000, 6)
    bombs = {
        "50 MB": zeros,
        "in two layers": gzip.compress(zeros),
        "of many members": gzip.compress(b" " * 100_000, 6) * 300,
        "of empty members": gzip.compress(b"") * 50_000,
        "cut": zeros[: len(zeros) // 2],
        "quotes": gzip.compress(b'"' * 4_900_000, 6),
    }
    with (
        _service(workshop, outcome) as node,
        node.client() as client,
        measured_attack(workshop, node, outcome, memory_mb=FLOOD_MEMORY_MB),
    ):
        for _ in range(repetitions):
            for name, bomb in bombs.items():
                for path in (EVENTS, ASSIGN, "/v1/studies"):
                    answer = client.post(path, content=bomb, headers=GZIP)
                    outcome.count_status(answer.status_code)
                    is_refused = 400 <= answer.status_code < 500
                    outcome.require(is_refused, f"a gzip bomb ({name}) to {path} was answered {answer.status_code}")
                    outcome.repetitions += 1


def json_routes(client: httpx.Client) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield method and path of every route that accepts JSON, from the OpenAPI document, with a valid body."""
    interface = client.get("/openapi.json").raise_for_status().json()
    for path, methods in interface["paths"].items():
        for method, operation in methods.items():
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                filled = path.replace("{name}", STUDY).replace("{prefix}", "0" * 12).replace("{key}", STUDY)
                yield (method.upper(), filled), EXAMPLES.get((method.upper(), path), {"reason": "text"})


EXAMPLES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/studies/{name}/events"): [
        {"type": "metric", "id": "text", "unit": "text", "name": "seen", "fields": {"x": 1.5, "y": "text"}}
    ],
    ("POST", "/v1/studies/{name}/assign"): {"unit": "text", "units": ["text"]},
    ("POST", "/v1/studies/{name}/units/erase"): {"unit": "text", "reason": "text"},
    ("POST", "/v1/studies/{name}/events/archive"): {"delete_older": "text"},
    ("POST", "/v1/studies/{name}/rounds/resolve"): {"round": 999, "resolution": "learn", "reason": "text"},
    ("POST", "/v1/studies/{name}/what-if"): {"keep": ["text"], "only": ["text"], "maximize": ["text"]},
    ("POST", "/v1/studies/{name}/replay"): {"text": "text"},
    ("PATCH", "/v1/studies/{name}"): {"action": "text", "reason": "text"},
    ("POST", "/v1/keys"): {"name": "text", "scopes": ["text"]},
    ("POST", "/v1/keys/{prefix}/rotate"): {"grace": "text"},
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): {"context": {"targetingKey": "text"}},
    ("POST", "/ofrep/v1/evaluate/flags"): {"context": {"targetingKey": "text"}},
}
"""Bodies with texts in every field; routes that are not named here take a reason or nothing."""


def invalid_utf8(example: Any) -> Iterator[bytes]:
    """Yield the body with each of its texts replaced by invalid UTF-8, and bodies that are invalid as a whole.

    >>> list(invalid_utf8({"a": "text"}))[0]
    b'{"a": "\\xff"}'
    """
    text = json.dumps(example).encode()
    wrong = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xe2\x82")
    places = [found.span() for found in re.finditer(rb'(?<=")text(?=")', text)]
    for number, (first, last) in enumerate(places):
        yield text[:first] + wrong[number % len(wrong)] + text[last:]
    for sequence in wrong:
        yield b'{"' + sequence + b'": 1}'
    yield b"\xff\xfe{\x00}\x00"


def mutate(body: bytes, rng: random.Random) -> bytes:
    """Return a body with a few of its bytes changed, cut, doubled or replaced by unusual ones."""
    changed = bytearray(body)
    awkward = (b"\x00", b"\xff", b'"', b"{", b"[", b"\\u0000", b"\\ud800", b"1e999", b"-", b"NaN", b"9" * 400, b"null")
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[place : place + rng.randrange(1, 8)]
            case 2:
                changed[place:place] = changed[place : place + rng.randrange(1, 40)]
            case _:
                changed[place:place] = rng.choice(awkward)
    return bytes(changed)


@contextmanager
def _service(workshop: Workshop, outcome: Outcome) -> Iterator[ServiceProcess]:
    with workshop.serving(workshop.store(outcome.store), "--request-timeout", "5") as node:
        create_studies(node)
        yield node


def _talk(url: str, sent: bytes) -> bytes:
    """Send bytes and read everything until the service closes or pauses for a moment."""
    answer = b""
    with connect(url) as connection:
        try:
            connection.sendall(sent)
            connection.settimeout(0.3)
            while part := connection.recv(65536):
                answer += part
        except OSError:
            pass
    return answer


def _require_alive(outcome: Outcome, node: ServiceProcess) -> None:
    with node.client() as client:
        answer = client.post(ASSIGN, json={"unit": "ann"})
        outcome.require(answer.status_code == 200, f"the service answered {answer.status_code} afterwards")


SCENARIOS = (
    Scenario("malformed", "bad framing", send_bad_framing, 2),
    Scenario("malformed", "invalid UTF-8", send_invalid_utf8, 1, 1, STORES),
    Scenario("malformed", "mutated bodies", send_mutated_bodies, 1_500, 200, STORES),
    Scenario("malformed", "costly small bodies", send_costly_bodies, 3),
    Scenario("malformed", "gzip bombs", send_gzip_bombs, 2),
)
