"""The one kind of background thread: it survives exceptions, stops in time, and can start again."""

import logging
import threading

import pytest

from pasto.service.periodic_thread import PeriodicThread

TIMEOUT = 60.0


def test_a_step_that_fails_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[int] = []

    def step() -> None:
        steps.append(len(steps))
        if len(steps) == 1:
            raise RuntimeError("out of reach")

    thread = PeriodicThread("example", step, 0.001, log=logging.getLogger("pasto.example"))
    with caplog.at_level(logging.WARNING, logger="pasto.example"):
        thread.start()
        assert thread.wait_for(lambda: len(steps) >= 2, TIMEOUT)
        assert thread.stop(TIMEOUT)
    assert [record.getMessage() for record in caplog.records] == [
        "example failed and runs again: RuntimeError: out of reach"
    ]


def test_a_stopped_thread_can_start_again() -> None:
    steps: list[str] = []
    thread = PeriodicThread("example", lambda: steps.append(threading.current_thread().name), 0.001)
    for _ in range(2):
        before = len(steps)
        thread.start()
        thread.start()
        assert thread.is_alive
        assert thread.wait_for(lambda before=before: len(steps) > before, TIMEOUT)  # type: ignore[misc]
        assert thread.stop(TIMEOUT)
        assert (thread.is_alive, thread.is_stopping) == (False, True)
    assert set(steps) == {"pasto-example"}


def test_a_long_step_is_not_waited_for_longer_than_asked() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait(TIMEOUT)

    thread = PeriodicThread("example", step, 0.001)
    thread.start()
    assert begun.wait(TIMEOUT)
    running = thread._thread
    assert running is not None
    assert not thread.stop(0.0)
    may_end.set()
    running.join(TIMEOUT)
    assert not running.is_alive()


def test_a_thread_that_waits_first_does_not_run_before_it_is_due() -> None:
    steps: list[int] = []
    thread = PeriodicThread("example", lambda: steps.append(1), TIMEOUT, waits_first=True)
    thread.start()
    assert thread.stop(TIMEOUT)
    assert steps == []
