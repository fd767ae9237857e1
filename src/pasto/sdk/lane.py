"""A thread that does one thing over and over, and never dies of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pasto.sdk.backoff import CAP
from pasto.sdk.journal import Journal


class Lane:
    """Runs a step, waits as long as it says, and runs it again, until it is stopped.

    >>> import threading
    >>> ran = threading.Event()
    >>> lane = Lane("example", lambda: (ran.set(), 60.0)[1], Journal())
    >>> lane.start(); ran.wait(5); lane.stop(5)
    True
    """

    def __init__(self, name: str, step: Callable[[], float], journal: Journal) -> None:
        self._name = name
        self._step = step
        self._journal = journal
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._passed = threading.Condition()

    def start(self) -> None:
        """Begin, unless it runs already; RuntimeError where the system gives no thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"pasto-{self._name}", daemon=True)
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """Run the step now instead of when it is due."""
        self._wake.set()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, looking after each step; returns whether it does."""
        with self._passed:
            return self._passed.wait_for(condition, timeout)

    def stop(self, timeout: float) -> None:
        """End after the step that is running, waiting for that at most so many seconds."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            try:
                delay = self._step()
            except Exception as error:
                self._journal.note(f"{self._name} failed unexpectedly: {type(error).__name__}: {error}")
                delay = CAP
            with self._passed:
                self._passed.notify_all()
            if not self._stopped:
                self._wake.wait(delay)
                self._wake.clear()
