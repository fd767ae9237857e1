"""Signed exposures over HTTP: only callers with the scope evaluate can create exposures that count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pasto_sdk import Client, Request, Response
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.http_transport import HttpTransport

if TYPE_CHECKING:
    from tests.service.http.conftest import Site

HEADER = "pasto-signing-key"
SCOPES = {
    "ops": ["admin"],
    "ranker": ["evaluate", "ingest"],
    "web": ["evaluate"],
    "logger": ["ingest"],
    "viewer": ["read", "ingest"],
}


class SigningSite:
    """Service with a signed and an unsigned study, and a key of each kind."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.study("feed", exposures={"signed": True})
        site.study("plain")
        self.keys: dict[str, str] = {}
        for name, scopes in SCOPES.items():
            answer = site.client.post("/v1/keys", json={"name": name, "scopes": scopes})
            answer.raise_for_status()
            self.keys[name] = answer.json()["key"]
            site.client.headers["authorization"] = f"Bearer {self.keys['ops']}"

    def policy(self, key: str, study: str = "feed", **headers: str) -> Any:
        sent = {"authorization": f"Bearer {self.keys[key]}", **headers}
        return self.site.client.get(f"/v1/studies/{study}/policy", headers=sent)

    def post(self, key: str, *events: dict[str, Any], study: str = "feed") -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.keys[key]}"}
        answer = self.site.client.post(f"/v1/studies/{study}/events", json=list(events), headers=headers)
        return dict(answer.json())

    def exposure(self, unit: str, study: str = "feed", **fields: Any) -> dict[str, Any]:
        policy = self.site.running.service.policy_cache.current(study)
        drawn = {"version": policy.version, "candidate": policy.draw(unit).name}
        return {"type": "exposure", "id": f"id of {unit}", "unit": unit, **drawn, **fields}

    def sign(self, event: dict[str, Any], study: str = "feed", key: str = "") -> dict[str, Any]:
        parts = {name: event[name] for name in ("version", "unit", "candidate")}
        signing_key = key or self.policy("ranker").headers[HEADER]
        return {**event, "signature": sign_exposure(signing_key, study=study, **parts)}

    def counted(self, study: str = "feed") -> tuple[int, int]:
        """Return the counted exposures and the rejected events of the report."""
        accounting = self.site.client.get(f"/v1/studies/{study}/report").json()["accounting"]
        lines = accounting["keys"]
        return sum(line["exposures"] for line in lines), sum(line["rejected"] for line in lines)


@pytest.fixture
def signing(serve: Callable[..., Any]) -> SigningSite:
    return SigningSite(serve())


def test_only_a_valid_signature_makes_an_exposure_count(signing: SigningSite) -> None:
    ann, bob = signing.exposure("ann"), signing.exposure("bob")
    forged = {**ann, "id": "forged", "signature": "0" * 64}
    other_unit = {**bob, "id": "other unit", "signature": signing.sign(ann)["signature"]}
    other_study = {**signing.sign(ann, study="plain"), "id": "other study"}
    other_key = {**signing.sign(ann, key="guess"), "id": "other key"}
    accents = {**ann, "id": "accents", "signature": "é" * 64}
    refused = [ann, forged, other_unit, other_study, other_key, accents]
    for key in ("logger", "ranker"):
        answer = signing.post(key, *({**event, "id": f"{key} {event['id']}"} for event in refused))
        assert (answer["accepted"], len(answer["rejected"])) == (0, len(refused))
        reasons = [one["reason"] for one in answer["rejected"]]
        assert reasons[0].startswith("signature is missing, and this study takes signed exposures only")
        assert all(reason.startswith("signature is not that of this study") for reason in reasons[1:])
    assert signing.post("logger", signing.sign(ann), signing.sign(bob))["accepted"] == 2
    signing.site.until(lambda: signing.counted() == (2, 2 * len(refused)))


def test_a_signature_of_the_wrong_length_is_refused_with_the_fix(signing: SigningSite) -> None:
    reason = signing.post("ranker", signing.exposure("ann", signature="abc"))["rejected"][0]["reason"]
    assert "signature" in reason
    assert "64 characters" in reason


def test_only_a_key_that_may_evaluate_sees_the_signing_key(signing: SigningSite) -> None:
    keys = {name: signing.policy(name).headers.get(HEADER) for name in ("ops", "ranker", "web", "viewer", "logger")}
    assert len(keys["ranker"]) == 64
    assert (keys["ops"], keys["web"]) == (keys["ranker"], keys["ranker"])
    assert (keys["viewer"], keys["logger"]) == (None, None)
    assert signing.policy("logger").status_code == 403
    answer = signing.policy("ranker")
    assert answer.headers["cache-control"] == "no-store"
    assert keys["ranker"] not in answer.text
    unchanged = signing.policy("ranker", **{"if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.headers[HEADER]) == (304, keys["ranker"])
    for path in ("", "/report", "/audit"):
        assert keys["ranker"] not in signing.site.client.get(f"/v1/studies/feed{path}").text


def test_what_is_not_learned_from_needs_no_signature(signing: SigningSite) -> None:
    fallback = signing.exposure("ann", fallback=True)
    override = signing.exposure("bob", override=True)
    metric = {"type": "metric", "id": "m", "unit": "ann", "name": "like"}
    assert signing.post("logger", fallback, override, metric)["accepted"] == 3


def test_what_the_service_decides_needs_no_signature(signing: SigningSite) -> None:
    headers = {"authorization": f"Bearer {signing.keys['web']}"}
    answer = signing.site.client.post("/v1/studies/feed/assign", json={"unit": "ann"}, headers=headers)
    assert answer.status_code == 200
    signing.site.until(lambda: signing.counted() == (1, 0))


def test_a_study_that_does_not_ask_for_signatures_is_as_before(signing: SigningSite) -> None:
    answer = signing.policy("ranker", "plain")
    assert HEADER not in answer.headers
    assert answer.headers["cache-control"] == "no-cache"
    assert "signed" not in answer.json()
    assert signing.policy("ranker").json()["signed"] is True
    plain, extra = signing.exposure("ann", "plain"), signing.exposure("bob", "plain", signature="0" * 64)
    assert signing.post("logger", plain, extra, study="plain")["accepted"] == 2
    assert "exposures" not in signing.site.running.service.policy_cache.snapshot("plain").spec.document


def test_the_sdk_signs_what_it_decides(signing: SigningSite, tmp_path: Path) -> None:
    with Client(signing.site.url, study="feed", api_key=signing.keys["ranker"], cache=tmp_path) as client:
        assert client.wait_until_ready(60)
        for number in range(20):
            client.assign(f"unit {number} é").track("like")
        assert client.flush(60)
        status = client.status()
        assert (status["rejected"], status["dropped"]) == ({}, 0)
    signing.site.until(lambda: signing.counted() == (20, 0))
    secret = signing.policy("ranker").headers[HEADER].encode()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    assert not any(secret in file.read_bytes() for file in files)


def test_the_sdk_keeps_exposures_until_it_has_the_key(signing: SigningSite, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "study": "feed",
        "api_key": signing.keys["ranker"],
        "cache": tmp_path,
        "background": False,
    }
    with Client(signing.site.url, **options) as first:
        assert first.wait_until_ready(60)
    now = [0.0]
    posts: list[Request] = []
    http = HttpTransport()

    def transport(request: Request) -> Response:
        if request.method == "POST":
            posts.append(request)
        return http(request)

    with Client(signing.site.url, **options, transport=transport, clock=lambda: now[0]) as client:
        assert client.assign("ann").reason == "SPLIT"  # by the policy on disk
        assert not client.flush(60)
        assert posts == []
        assert client.wait_until_ready(60)  # an answer 304 brings the key
        now[0] += 120.0
        assert client.flush(60)
        assert (len(posts), client.status()["rejected"]) == (1, {})
    http.close()
    signing.site.until(lambda: signing.counted() == (1, 0))


def test_the_sdk_explains_why_a_key_without_evaluate_cannot_sign(signing: SigningSite) -> None:
    options: dict[str, Any] = {"study": "feed", "api_key": signing.keys["viewer"], "cache": None, "background": False}
    with Client(signing.site.url, **options) as client:
        assert client.wait_until_ready(60)
        client.assign("ann")
        assert client.flush(60)
        assert [reason[:20] for reason in client.status()["rejected"]] == ["signature is missing"]
