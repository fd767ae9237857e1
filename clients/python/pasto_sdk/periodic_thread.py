"""Periodic thread: the one kind of background thread that clients and the service use for repeated work.

The client needs only the standard library, whose `threading.Timer` starts a new thread for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Event, Thread, current_thread


class PeriodicThread:
    """Daemon thread that runs a step, waits, and runs it again until it is stopped; it survives exceptions.

    The wait is the number of seconds that the step returns, or `interval` if it returns None or fails. Failures are
    passed to `report` as one sentence. A stopped thread does not start again.

    >>> steps: list[int] = []
    >>> thread = PeriodicThread("example", lambda: steps.append(1), 0.001, print)
    >>> thread.start()
    >>> thread.wait_for(lambda: len(steps) >= 3, timeout=20)
    True
    >>> thread.stop()
    True
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float | None],
        interval: float,
        report: Callable[[str], object],
        *,
        waits_first: bool = False,
    ) -> None:
        self._name = name
        self._step = step
        self._interval = interval
        self._report = report
        self._waits_first = waits_first
        self._is_stopping = False
        self._wake = Event()
        self._thread: Thread | None = None
        self._step_done = Condition()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """True after `stop`; a long step checks it to end early."""
        return self._is_stopping

    def start(self) -> None:
        """Start the thread, unless it was started before; raise RuntimeError if the system gives no thread."""
        if self._thread is None and not self._is_stopping:
            thread = Thread(target=self._run, name=f"pasto-{self._name}", daemon=True)
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """Run the step now instead of when it is due."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop after the running step, and wait for it up to `timeout` seconds; return whether the thread ended."""
        self._is_stopping = True
        self._wake.set()
        if self._thread is None or self._thread is current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, checked after each step; return whether it does."""
        with self._step_done:
            return self._step_done.wait_for(condition, timeout)

    def _run(self) -> None:
        if self._waits_first:
            self._wait(self._interval)
        while not self._is_stopping:
            delay = None
            try:
                delay = self._step()
            except Exception as error:
                self._report(f"{self._name} failed and runs again: {type(error).__name__}: {error}")
            with self._step_done:
                self._step_done.notify_all()
            self._wait(self._interval if delay is None else delay)

    def _wait(self, seconds: float) -> None:
        if not self._is_stopping:
            self._wake.wait(seconds)
            self._wake.clear()
