"""Slow questions: they use no thread of other requests, wait in a short queue, and equal ones are computed once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pasto.service.http.questions import Questions
from pasto.service.http.responses import HttpResponse
from pasto.service.http.worker_pools import PoolFullError, WorkerPool

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

WHAT_IF = "/v1/studies/feed/what-if"
ENOUGH = 120.0


class SlowQuestion:
    """Question that finishes when the test allows it, and counts its computations."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self, name: str, **question: Any) -> dict[str, Any]:
        with self._lock:
            self.count += 1
        self.begun.release()
        assert self.end.wait(ENOUGH)
        return {"name": name, "computed": self.count}


@contextmanager
def asking(site: Site, slow: SlowQuestion, questions: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Ask questions, each from a separate thread; they are answered at the end."""

    def ask(question: dict[str, Any]) -> httpx.Response:
        return client.post(WHAT_IF, json=question)

    with httpx.Client(base_url=site.url, timeout=ENOUGH) as client, ThreadPoolExecutor(len(questions)) as pool:
        try:
            yield [pool.submit(ask, question) for question in questions]
        finally:
            slow.end.set()


@pytest.fixture
def slow() -> SlowQuestion:
    return SlowQuestion()


def test_slow_questions_do_not_hold_up_events_a_pause_or_the_revocation_of_a_key(
    serve: Serve, slow: SlowQuestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve(threads=2, request_timeout=ENOUGH)
    site.study()
    key = site.running.application.context.keys.create("boss", ["admin"])
    site.client.headers["authorization"] = f"Bearer {key.key}"
    leaked = site.client.post("/v1/keys", json={"name": "leaked", "scopes": ["read"]}).json()
    monkeypatch.setattr(site.running.service, "what_if", slow)
    events = [{"type": "metric", "id": str(k), "unit": "ann", "name": "like"} for k in range(3000)]

    def ask(k: int) -> int:
        return reader.post(WHAT_IF, json={"keep": [f"like_rate >= -{k}%"]}).status_code

    headers = {"authorization": f"Bearer {leaked['key']}"}
    reader = httpx.Client(base_url=site.url, headers=headers, timeout=ENOUGH)
    with reader, ThreadPoolExecutor(24) as pool:
        try:
            asked = [pool.submit(ask, k) for k in range(24)]
            assert slow.begun.acquire(timeout=ENOUGH)
            assert slow.begun.acquire(timeout=ENOUGH)
            waiting = site.running.application.context.pools["questions"]
            site.until(lambda: waiting.waiting == 22)
            assert site.client.post("/v1/studies/feed/events", json=events).json()["accepted"] == 3000
            units = {"units": [f"unit {k}" for k in range(1000)]}
            assert len(site.client.post("/v1/studies/feed/assign", json=units).json()["assignments"]) == 1000
            paused = site.client.patch(
                "/v1/studies/feed", json={"action": "pause", "reason": "now", "hold": "baseline"}
            )
            assert paused.json()["state"] == "paused"
            assert site.client.delete(f"/v1/keys/{leaked['prefix']}").json() == {"revoked": True}
            assert site.client.get("/v1/studies/feed").json()["state"] == "paused"
            assert slow.count == 2
        finally:
            slow.end.set()
        assert {each.result() for each in asked} == {200}


def test_a_question_too_many_is_asked_to_come_back(
    serve: Serve, slow: SlowQuestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve(question_threads=1, max_questions=1, request_timeout=ENOUGH)
    site.study()
    monkeypatch.setattr(site.running.service, "what_if", slow)
    pool = site.running.application.context.pools["questions"]
    with asking(site, slow, [{"keep": ["like_rate >= -1%"]}, {"keep": ["like_rate >= -2%"]}]) as asked:
        site.until(lambda: pool.waiting == 1)
        assert "pasto_questions_waiting 1.0" in site.client.get("/metrics").text
        third = site.client.post(WHAT_IF, json={"keep": ["like_rate >= -3%"]})
        assert (third.status_code, third.json()["error"]["code"]) == (503, "overloaded")
        assert int(third.headers["retry-after"]) >= 1
        slow.end.set()
        assert [each.result().status_code for each in asked] == [200, 200]
    assert site.client.post(WHAT_IF, json={"keep": ["like_rate >= -3%"]}).status_code == 200


def test_equal_questions_are_computed_once_until_the_study_changes(
    serve: Serve, slow: SlowQuestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve(request_timeout=ENOUGH)
    site.study()
    monkeypatch.setattr(site.running.service, "what_if", slow)
    question = {"keep": ["like_rate >= -1%"]}
    with asking(site, slow, [question] * 5) as asked:
        site.until(lambda: site.running.application.context.active_requests == 5)
        assert slow.begun.acquire(timeout=ENOUGH)
        slow.end.set()
        assert [each.result().json()["computed"] for each in asked] == [1] * 5
    assert site.client.post(WHAT_IF, json=question).json()["computed"] == 1
    assert site.client.post(WHAT_IF, json={"keep": ["like_rate >= -2%"]}).json()["computed"] == 2
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
    assert site.client.post(WHAT_IF, json=question).json()["computed"] == 3


def test_a_failed_question_is_asked_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    assert site.client.post(WHAT_IF, json={}).json()["error"]["code"] == "nothing_learned"
    monkeypatch.setattr(site.running.service, "what_if", lambda name, **_: {"name": name})
    assert site.client.post(WHAT_IF, json={}).json() == {"name": "feed"}


def test_a_report_is_not_cached(site: Site) -> None:
    def logged() -> int:
        accounting = site.client.get("/v1/studies/feed/report").json()["accounting"]
        return sum(line["logged"] for line in accounting["candidates"])

    before = logged()
    site.client.post("/v1/studies/feed/assign", json={"units": ["ann", "bob"]}).raise_for_status()
    site.until(lambda: logged() == before + 2)


def run(work: Callable[[Questions, WorkerPool], Any], **settings: Any) -> None:
    """Run a coroutine over questions with a pool of one thread."""
    pool = WorkerPool("questions", 1, **settings)
    try:
        asyncio.run(work(Questions(pool, max_cached_bytes=10), pool))
    finally:
        pool.close()


def test_answers_are_cached_up_to_so_many_bytes() -> None:
    computed: list[str] = []

    def answer(text: str) -> Callable[[], HttpResponse]:
        def work() -> HttpResponse:
            computed.append(text)
            return HttpResponse(200, text.encode())

        return work

    async def ask(questions: Questions, _: WorkerPool) -> None:
        for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
            found = await questions.ask(("kind", text), answer(text), seconds=ENOUGH, cache=True)
            assert found.body == text.encode()

    run(ask)
    assert computed == ["aaaa", "bbbb", "cccc", "bbbb"]  # the least recently used one was dropped for cccc


def test_a_question_that_no_caller_waits_for_is_not_begun() -> None:
    end, begun = threading.Event(), threading.Event()

    def first() -> HttpResponse:
        begun.set()
        assert end.wait(ENOUGH)
        return HttpResponse(200)

    async def ask(questions: Questions, pool: WorkerPool) -> None:
        under_way = asyncio.ensure_future(questions.ask(("kind", 1), first, seconds=ENOUGH))
        await asyncio.to_thread(begun.wait, ENOUGH)
        with pytest.raises(TimeoutError):
            await questions.ask(("kind", 2), lambda: pytest.fail("begun"), seconds=0.01)
        assert questions.pending("kind") == 1
        end.set()
        assert (await under_way).status == 200
        again = await questions.ask(("kind", 2), lambda: HttpResponse(204), seconds=ENOUGH)
        assert again.status == 204

    run(ask)


def test_callers_are_answered_when_the_service_ends() -> None:
    end, begun = threading.Event(), threading.Event()

    def first() -> HttpResponse:
        begun.set()
        assert end.wait(ENOUGH)
        return HttpResponse(200)

    async def ask(questions: Questions, pool: WorkerPool) -> None:
        asked = [
            asyncio.ensure_future(questions.ask(("kind", 1), first, seconds=ENOUGH)),
            asyncio.ensure_future(questions.ask(("kind", 2), lambda: HttpResponse(200), seconds=ENOUGH)),
        ]
        await asyncio.to_thread(begun.wait, ENOUGH)
        pool.close()
        with pytest.raises(PoolFullError):
            await asked[1]
        assert not asked[0].done()
        questions.close()
        with pytest.raises(PoolFullError):
            await asked[0]
        with pytest.raises(PoolFullError):
            await questions.ask(("kind", 3), first, seconds=ENOUGH)
        end.set()

    run(ask)
