"""Periodic thread: it survives exceptions, can be woken, and stops in time."""

import threading

from pasto_sdk.periodic_thread import PeriodicThread

TIMEOUT = 60.0


def test_a_step_that_fails_is_reported_and_runs_again() -> None:
    steps: list[int] = []
    reports: list[str] = []

    def step() -> None:
        steps.append(len(steps))
        if len(steps) == 1:
            raise RuntimeError("out of reach")

    thread = PeriodicThread("example", step, 0.001, reports.append)
    thread.start()
    assert thread.wait_for(lambda: len(steps) >= 2, TIMEOUT)
    assert thread.stop(TIMEOUT)
    assert reports == ["example failed and runs again: RuntimeError: out of reach"]


def test_a_thread_runs_until_it_is_stopped_and_does_not_start_again() -> None:
    steps: list[str] = []
    thread = PeriodicThread("example", lambda: steps.append(threading.current_thread().name), 0.001, print)
    thread.start()
    thread.start()
    assert thread.is_alive
    assert thread.wait_for(lambda: len(steps) > 1, TIMEOUT)
    assert thread.stop(TIMEOUT)
    assert (thread.is_alive, thread.is_stopping, set(steps)) == (False, True, {"pasto-example"})
    count = len(steps)
    thread.start()
    assert thread.stop(TIMEOUT)
    assert len(steps) == count


def test_a_thread_that_was_stopped_before_its_start_never_runs() -> None:
    steps: list[int] = []
    thread = PeriodicThread("example", lambda: steps.append(1), 0.001, print)
    assert thread.stop(TIMEOUT)
    thread.start()
    assert not thread.is_alive
    assert steps == []


def test_a_step_sets_its_next_time_and_can_be_woken() -> None:
    delays = [0.0, 0.0, TIMEOUT]
    steps: list[int] = []

    def step() -> float:
        steps.append(1)
        return delays[min(len(steps), len(delays)) - 1]

    thread = PeriodicThread("example", step, TIMEOUT, print)
    thread.start()
    assert thread.wait_for(lambda: len(steps) == 3, TIMEOUT)
    thread.wake()
    assert thread.wait_for(lambda: len(steps) == 4, TIMEOUT)
    assert thread.stop(TIMEOUT)


def test_a_long_step_is_not_waited_for_longer_than_asked() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait(TIMEOUT)

    thread = PeriodicThread("example", step, 0.001, print)
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
    thread = PeriodicThread("example", lambda: steps.append(1), TIMEOUT, print, waits_first=True)
    thread.start()
    assert thread.stop(TIMEOUT)
    assert steps == []
