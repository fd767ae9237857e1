"""Periodic thread: the one kind of background thread of a service."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Event, Thread, current_thread


class PeriodicThread:
    """Daemon thread that runs a step, waits, and runs it again until it is stopped; it survives exceptions.

    >>> steps: list[int] = []
    >>> thread = PeriodicThread("example", lambda: steps.append(1), 0.001)
    >>> thread.start()
    >>> thread.wait_for(lambda: len(steps) >= 3, timeout=20)
    True
    >>> thread.stop()
    True
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        interval: float,
        *,
        log: logging.Logger | None = None,
        waits_first: bool = False,
    ) -> None:
        self._name = name
        self._step = step
        self._interval = interval
        self._log = log or logging.getLogger("pasto.service")
        self._waits_first = waits_first
        self._stop = Event()
        self._thread: Thread | None = None
        self._step_done = Condition()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """True after `stop`; a long step checks it to end early."""
        return self._stop.is_set()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._stop = Event()  # of its own: a thread that outlived its stop must not go on
            self._thread = Thread(target=self._run, args=(self._stop,), name=f"pasto-{self._name}", daemon=True)
            self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop after the running step, and wait for it up to `timeout` seconds; returns whether the thread ended."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is None or thread is current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, checked after each step; returns whether it does."""
        with self._step_done:
            return self._step_done.wait_for(condition, timeout)

    def _run(self, stop: Event) -> None:
        if self._waits_first:
            stop.wait(self._interval)
        while not stop.is_set():
            try:
                self._step()
            except Exception as error:
                self._log.warning("%s failed and runs again: %s: %s", self._name, type(error).__name__, error)
            with self._step_done:
                self._step_done.notify_all()
            stop.wait(self._interval)
