"""Reasons and names for the audit log, which are printed on terminals later."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from pasto.service.study_file import EXAMPLE, read_document

if TYPE_CHECKING:
    from tests.service.http.conftest import Site

BAD = ["\x1b[2Jgone", "bell\x07", "two\nlines", "tab\t", "c1 \x9b31m", "\u202eturned", "\u2066isolated", "line\u2028"]
GOOD = ["", "plain", "Über 50 %", "用户 👍🏽", "می‌خواهم", "שלום"]


@pytest.fixture(scope="module")
def draft(site: Site) -> Site:
    site.study("draft", start=False)
    return site


@pytest.mark.parametrize("reason", BAD, ids=ascii)
def test_a_reason_with_control_characters_is_refused(draft: Site, reason: str) -> None:
    client = draft.client
    document = {**read_document(EXAMPLE, "yaml"), "name": "draft"}
    asked = f"reason={quote(reason)}"
    answers = [
        client.post(f"/v1/studies?{asked}", json={**document, "name": "another"}),
        client.put(f"/v1/studies/draft?{asked}", json=document),
        client.delete(f"/v1/studies/draft?{asked}"),
        client.patch("/v1/studies/feed", json={"action": "pause", "reason": reason}),
        client.post("/v1/studies/feed/rounds/close", json={"reason": reason}),
        client.patch("/v1/studies/draft", json={"action": "start"}, headers={"Pasto-Who": quote(reason)}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        error = answer.json()["error"]
        assert error["code"] == "invalid_text"
        assert "must be one line without control characters, got \\" in error["message"]
        assert reason not in error["message"]
    assert client.get("/v1/studies/draft").json()["state"] == "draft"
    assert client.get("/v1/studies/feed").json()["round"] == 1


@pytest.mark.parametrize("reason", GOOD, ids=ascii)
def test_a_reason_in_any_language_is_stored(draft: Site, reason: str) -> None:
    document = {**read_document(EXAMPLE, "yaml"), "name": "draft"}
    assert draft.client.put(f"/v1/studies/draft?reason={quote(reason)}", json=document).status_code == 200
    assert draft.client.get("/v1/studies/draft/audit").json()["audit"][-1]["reason"] == reason
