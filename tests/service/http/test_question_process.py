"""Question process: byte-identical answers outside the service's process, and no process remains afterwards."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pasto.dashboard import Dashboard
from pasto.dashboard.chart_data import answer_tradeoff
from pasto.service.http.question_process import QuestionFailedError, QuestionProcess
from pasto.service.http.responses import AnsweredError, ApiError
from pasto.service.http.studies import answer_replay, answer_report, answer_what_if
from pasto.service.http.worker_pools import PoolFullError
from pasto.service.settings import Settings
from pasto.store import open_store
from tests.service.http.question_stubs import answer_pid, compute_without_end, die, die_once, fail, write

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

ENOUGH = 120.0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuestionProcess]:
    """Return a question process over a store that this process holds."""
    where = str(tmp_path_factory.mktemp("store"))
    store = open_store(where)
    process = QuestionProcess(Settings(store=where, retry_after=7))
    yield process
    process.close()
    store.close()


def computed_in(process: QuestionProcess) -> int:
    return int(process.compute(answer_pid, ENOUGH).body)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_question_is_computed_in_another_process(process: QuestionProcess) -> None:
    pid = computed_in(process)
    assert pid == process.pid != os.getpid()
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert computed_in(process) == pid


def test_a_killed_process_is_replaced(process: QuestionProcess, tmp_path: Path) -> None:
    pid = computed_in(process)
    os.kill(pid, signal.SIGKILL)
    replaced = computed_in(process)
    assert replaced != pid
    assert int(process.compute(partial(die_once, file=str(tmp_path / "died")), ENOUGH).body) not in (pid, replaced)


def test_a_question_that_kills_every_process_is_asked_to_come_back(process: QuestionProcess) -> None:
    with pytest.raises(ApiError) as refused:
        process.compute(die, ENOUGH)
    assert (refused.value.status, refused.value.headers) == (503, ((b"retry-after", b"7"),))
    assert computed_in(process) == process.pid


def test_a_hanging_process_is_killed(process: QuestionProcess, tmp_path: Path) -> None:
    file = tmp_path / "computing"
    with pytest.raises(TimeoutError):
        process.compute(partial(compute_without_end, file=str(file)), 0.5)
    assert process.pid is None
    assert not (file.exists() and is_running(int(file.read_text())))


def test_errors_are_the_same_as_in_a_thread(process: QuestionProcess) -> None:
    with pytest.raises(QuestionFailedError, match="ZeroDivisionError"):
        process.compute(fail, ENOUGH)
    with pytest.raises(AnsweredError) as answered:
        process.compute(partial(answer_replay, name="feed"), ENOUGH)
    answer = answered.value.response
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (404, "unknown_study")
    with pytest.raises(AnsweredError) as answered:
        process.compute(write, ENOUGH)
    assert b"store_unavailable" in answered.value.response.body


def test_no_process_is_left_or_started_after_the_end(process: QuestionProcess) -> None:
    own = QuestionProcess(Settings(store="nowhere"))
    pid = computed_in_nowhere(own)
    own.close()
    assert not is_running(pid)
    with pytest.raises(PoolFullError):
        own.compute(answer_pid, ENOUGH)


def computed_in_nowhere(process: QuestionProcess) -> int:
    """Ask about a store that does not exist: the question fails, and the process lives on."""
    with pytest.raises(AnsweredError) as answered:
        process.compute(answer_pid, ENOUGH)
    assert answered.value.response.status == 503
    assert process.pid is not None
    return process.pid


@pytest.fixture(scope="module")
def learned(serve_long: Serve, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a service with a question process, and a study that learned a round."""
    where = str(tmp_path_factory.mktemp("served"))
    site = serve_long(store=where, poll=60, pages=lambda service: Dashboard(service).routes)
    column = {"event": "seen", "aggregate": "sum", "range": [0, 9]}
    site.study(
        metrics={"x": {**column, "value": "x"}, "y": {**column, "value": "y"}},
        goal={"maximize": "x"},
        guardrails=[{"metric": "y", "at_least": 1}],
        rounds={"every": "1h"},
    )
    units = [f"unit {number}" for number in range(400)]
    drawn = site.client.post("/v1/studies/feed/assign", json={"units": units}).json()
    events = [
        {
            "type": "metric",
            "id": unit["unit"],
            "unit": unit["unit"],
            "name": "seen",
            "version": drawn["version"],
            "candidate": unit["candidate"],
            "fields": {"x": unit["values"]["like_weight"] + place % 3, "y": 3 - unit["values"]["like_weight"]},
        }
        for place, unit in enumerate(drawn["assignments"])
    ]
    site.client.post("/v1/studies/feed/events", json=events).raise_for_status()
    site.client.post("/v1/studies/feed/rounds/close").raise_for_status()
    return site


def test_answers_are_the_same_to_the_byte(learned: Site) -> None:
    service, client = learned.running.service, learned.client
    question: dict[str, Any] = {"keep": ["y >= 2.5"]}
    asked = client.post("/v1/studies/feed/what-if", json=question)
    assert (asked.status_code, asked.content) == (200, answer_what_if(service, "feed", question).body)
    asked = client.post("/v1/studies/feed/replay")
    assert (asked.status_code, asked.content) == (200, answer_replay(service, "feed").body)
    asked = client.get("/studies/feed/tradeoff?at0=2")
    same = answer_tradeoff(service, "feed", {0: 2.0}, 0)
    assert json.loads(same.body)["tradeoff"]["curve"]
    assert (asked.status_code, asked.content) == (200, same.body)
    assert asked.headers["cache-control"] == "no-store"
    asked = client.get("/v1/studies/feed/report")
    same = answer_report(service, "feed", "json", 0)
    assert asked.json() == {**json.loads(same.body), "age": asked.json()["age"]}
    process = learned.running.application.context.question_process
    assert process is not None
    assert process.pid is not None


def test_errors_are_the_same(learned: Site) -> None:
    learned.study("new")
    asked = learned.client.post("/v1/studies/new/what-if", json={})
    assert (asked.status_code, asked.json()["error"]["code"]) == (409, "nothing_learned")
    asked = learned.client.post("/v1/studies/feed/what-if", json={"drop": ["nothing"]})
    assert (asked.status_code, asked.json()["error"]["code"]) == (400, "bad_request")


def test_pages_show_what_the_process_computed(learned: Site) -> None:
    assert ">400</td>" in learned.client.get("/studies/feed/answer").text
    saved = learned.client.get("/studies/feed/report.html")
    assert saved.status_code == 200
    assert "attachment" in saved.headers["content-disposition"]


def test_a_failure_in_the_process_is_an_internal_error(learned: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pasto.service.http.studies.answer_replay", fail)
    asked = learned.client.post("/v1/studies/feed/replay")
    assert (asked.status_code, asked.json()["error"]["code"]) == (500, "internal_error")


def test_the_end_of_a_service_leaves_no_process(serve: Serve, tmp_path: Path) -> None:
    site = serve(store=str(tmp_path / "store"))
    site.study()
    site.client.get("/v1/studies/feed/report").raise_for_status()
    process = site.running.application.context.question_process
    assert process is not None
    pid = process.pid
    assert pid is not None
    site.running.stop()
    site.until(lambda: not is_running(pid))


def test_a_store_in_memory_has_no_question_process(site: Site) -> None:
    assert site.running.application.context.question_process is None
