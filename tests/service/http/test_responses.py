"""Error responses: of the library, of the store, and of unexpected exceptions."""

from __future__ import annotations

import errno
import json
import logging
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pasto import errors
from pasto.service.http.responses import STATUSES, error_response
from pasto.store.disk_errors import is_disk_full

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

EXPOSURE = {"type": "metric", "id": "1", "unit": "ann", "name": "like"}


def status_and_code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def every_error() -> list[type[errors.PastoError]]:
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.PastoError)]


def test_every_error_of_the_library_has_an_answer() -> None:
    unforeseen = {"PastoError", "SolverError", "UnknownAssignmentError", "AlreadyAnsweredError"}
    given: dict[type, tuple[Any, ...]] = {
        errors.StudyFileError: ({"a": "b"},),
        errors.LayerShareError: ("is 70%; archive or shrink {}", "search (40%)"),
        errors.MissingExtraError: ("what it needs", "serve"),
    }
    for kind in every_error():
        error = kind(*given.get(kind, ("what came and the cure",)))
        found = error_response(error, 3)
        if kind.__name__ in unforeseen:
            assert found is None
        else:
            assert found is not None
            assert 400 <= found.status < 600
            body = json.loads(found.body)["error"]
            assert set(body) <= {"code", "message", "field", "problems"}
            assert body["message"]
            assert ((b"retry-after", b"3") in found.headers) == (found.status == 503)


def test_a_bad_study_file_names_every_field() -> None:
    found = error_response(errors.StudyFileError({"goal": "is missing", "unit": "is 3"}), 1)
    assert found is not None
    assert found.status == 422
    assert json.loads(found.body)["error"]["problems"] == {"goal": "is missing", "unit": "is 3"}


def test_codes_are_unique() -> None:
    assert len({code for _, code in STATUSES.values()}) == len(STATUSES)


def test_a_full_disk_is_found_behind_what_it_caused() -> None:
    error = errors.StoreError("could not be written")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert is_disk_full(error)
    found = error_response(error, 1)
    assert found is not None
    assert found.status == 507
    assert (b"retry-after", b"1") in found.headers
    assert not is_disk_full(errors.StoreError("else"))


def test_sqlite_reports_a_full_disk() -> None:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE t (x)")
        with pytest.raises(sqlite3.OperationalError) as raised:
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
        assert is_disk_full(raised.value)
    finally:
        connection.close()


def failing(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def failed(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future

    return fail


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.StoreBusyError("full"), 503, "store_busy"),
        (errors.StoreError("gone"), 503, "store_unavailable"),
        (OSError(errno.ENOSPC, "No space left on device"), 507, "storage_full"),
        (RuntimeError("secret"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("kind", [failing, failed], ids=["refused", "not kept"])
def test_events_that_are_not_stored_are_not_acknowledged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, kind: Any, error: Exception, status: int, code: str
) -> None:
    site = serve(retry_after=9)
    site.study()
    with monkeypatch.context() as broken:
        broken.setattr(site.running.service.store, "append_events", kind(error))
        answer = site.client.post("/v1/studies/feed/events", json=[EXPOSURE])
    assert status_and_code(answer) == (status, code)
    assert ("retry-after" in answer.headers) == (status in (503, 507))
    assert "secret" not in answer.text
    again = site.client.post("/v1/studies/feed/events", json=[EXPOSURE])
    assert again.json() == {"accepted": 1, "duplicates": 0, "rejected": []}


def test_a_file_that_may_not_grow_is_reported_as_full_until_space_is_free(serve: Serve, tmp_path: Path) -> None:
    site = serve(store=str(tmp_path / "store"))
    site.study()
    store: Any = site.running.service.store

    def pages(most: int) -> None:
        store._write(lambda connection: connection.execute(f"PRAGMA max_page_count = {most}").fetchall())

    events = [{**EXPOSURE, "id": str(k), "unit": "u" * 200} for k in range(2000)]
    pages(1)  # no more than there are now
    assert status_and_code(site.client.post("/v1/studies/feed/events", json=events)) == (507, "storage_full")
    assert site.client.get("/v1/studies/feed").status_code == 200
    pages(1_000_000)
    assert site.client.post("/v1/studies/feed/events", json=events).json()["accepted"] == 2000


def test_a_store_that_does_not_answer_in_time_is_busy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.study()
    site.client.get("/v1/studies/feed/policy").raise_for_status()  # the study is cached after this
    site.limit_time(0.2)
    never: Future[Any] = Future()
    monkeypatch.setattr(site.running.service, "ingest", lambda *_, **__: never)
    answer = site.client.post("/v1/studies/feed/events", json=[EXPOSURE])
    assert status_and_code(answer) == (503, "store_busy")
    assert not never.cancelled()


def test_an_unforeseen_error_is_found_in_the_log_by_its_number(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve()
    monkeypatch.setattr(site.running.service, "studies", failing(ZeroDivisionError("secret")))
    with caplog.at_level(logging.ERROR, "pasto.http"):
        answer = site.client.get("/v1/studies")
    assert status_and_code(answer) == (500, "internal_error")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert vars(record)["error_id"] in answer.text
    assert record.exc_info is not None


def test_readiness_follows_the_store(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    site.running.application.context.store_health.cache_seconds = 0.0
    store = site.running.service.store
    broken_methods = {
        "list_keys": failing(errors.StoreError("gone")),
        "check_writable": failed(OSError(errno.EIO, "x")),
    }
    for method, broken in broken_methods.items():
        with monkeypatch.context() as patched:
            patched.setattr(store, method, broken)
            answer = site.client.get("/readyz")
            assert answer.status_code == 503
            assert answer.json()["status"] == "unavailable"
            assert "store" in answer.json()["problems"][0]
        assert site.client.get("/readyz").status_code == 200
    assert site.client.get("/healthz").json() == {"status": "ok"}


def test_counters_are_served_without_a_store(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    assert "pasto_store_up 1.0" in site.client.get("/metrics").text
    monkeypatch.setattr(site.running.service.store, "list_studies", failing(errors.StoreError("gone")))
    metrics = site.client.get("/metrics").text
    assert "pasto_store_up 0.0" in metrics
    assert "pasto_requests_total" in metrics


def test_replays_leave_threads_for_others(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve(question_threads=2)
    site.study()
    site.study("other")
    going, end = threading.Event(), threading.Event()

    def slow(_: str) -> dict[str, Any]:
        going.set()
        end.wait(60)
        return {"identical": True, "rounds": 0, "first_difference": None}

    monkeypatch.setattr(site.running.service, "replay", slow)
    path = "/v1/studies/feed/replay"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(httpx.post, site.url + path, timeout=60)
        assert going.wait(60)
        second = site.client.post("/v1/studies/other/replay")
        assert status_and_code(second) == (503, "overloaded")
        assert site.client.get("/v1/studies/feed/report").status_code == 200
        end.set()
        assert first.result().status_code == 200
    assert site.client.post(path).status_code == 200


def test_readiness_follows_the_scheduler(serve: Serve) -> None:
    site = serve()
    site.running.scheduler.stop()
    answer = site.client.get("/readyz")
    assert answer.status_code == 503
    assert "scheduler" in answer.json()["problems"][0]


def test_the_router_refuses_in_the_same_form(site: Site) -> None:
    assert status_and_code(site.client.get("/nowhere")) == (404, "not_found")
    assert status_and_code(site.client.get("/v1/studies/")) == (404, "not_found")
    answer = site.client.put("/v1/studies")
    assert status_and_code(answer) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert status_and_code(site.client.get("/v1/studies/feed/assign")) == (405, "method_not_allowed")
    head = site.client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")
