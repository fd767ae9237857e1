"""The one thread that writes: many callers' batches become one transaction."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from pasto.errors import StoreBusyError, StoreError
from pasto.store.ingest_plan import EventBatch
from pasto.store.rows import AppendResult

T = TypeVar("T")

GROUP = 2_000
"""Events that go into one transaction at most, unless one batch alone has more."""
WAITING = 50_000
"""Events that may wait; whoever comes then is told to come again."""


class WriteQueue:
    """Takes work from any thread and does it in order, in a thread of its own.

    Whatever waits while one transaction is written becomes the next: nobody waits for company, and a busy store pays
    for few of them. `append` writes a group and returns an answer a batch; where a group is refused for what
    is in it, its batches are tried one by one, so that none suffers for its neighbour.
    """

    def __init__(
        self, append: Callable[[Sequence[EventBatch]], Sequence[AppendResult]], *, waiting: int = WAITING
    ) -> None:
        self._append = append
        self._room = waiting
        self._waiting = 0
        self._work: deque[EventBatch | _Task] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pasto-store-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Events that wait."""
        return self._waiting

    def append(self, batch: EventBatch) -> Future[AppendResult]:
        """Queue a batch; StoreBusy, and nothing is taken, where too much is waiting."""
        self.require_open()  # before the lock: in a forked child it may never be free
        with self._change:
            self.require_open()
            if self._waiting and self._waiting + batch.size > self._room:
                raise StoreBusyError(
                    f"{self._waiting} events are waiting to be written; nothing was taken, send it again"
                )
            self._waiting += batch.size
            self._work.append(batch)
            self._change.notify()
        return batch.future

    def perform(self, action: Callable[[], T]) -> T:
        """Do something in the writing thread, after what is waiting, and return its result."""
        result: T = self.submit(action).result()
        return result

    def submit(self, action: Callable[[], T]) -> Future[T]:
        """Have something done in the writing thread, after what is waiting."""
        task = _Task(action)
        self.require_open()  # before the lock: in a forked child it may never be free
        with self._change:
            self.require_open()
            self._work.append(task)
            self._change.notify()
        return task.future

    def close(self) -> bool:
        """Finish what is waiting and end the thread; False where that was done before, or in another process."""
        if os.getpid() != self._process:
            return False
        with self._change:
            first, self._closed = not self._closed, True
            self._change.notify()
        self._thread.join()
        return first

    def require_open(self) -> None:
        """Raise StoreError in a process that was forked, and after closing."""
        if os.getpid() != self._process:
            raise StoreError("this store was opened before the process forked; open it in the child instead")
        if self._closed:
            raise StoreError("this store is closed; open it again")

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._work and not self._closed:
                    self._change.wait()
                if not self._work:
                    return
                taken = self._take()
            if isinstance(taken, _Task):
                taken.run()
            else:
                self._write(taken)

    def _take(self) -> _Task | list[EventBatch]:
        """The next thing to do, called with the lock held: one task, or as many batches as fit together."""
        first = self._work.popleft()
        if isinstance(first, _Task):
            return first
        group, size = [first], first.size
        while self._work:
            following = self._work[0]
            if isinstance(following, _Task) or size + following.size > GROUP:
                break
            group.append(following)
            size += following.size
            self._work.popleft()
        self._waiting -= size
        return group

    def _write(self, group: list[EventBatch]) -> None:
        # A caller that gave up cannot take its batch back once it is being written.
        group = [batch for batch in group if batch.future.set_running_or_notify_cancel()]
        if not group:
            return
        try:
            answers = self._append(group)
        except Exception as error:
            # The store itself failing fails them all; anything else is some batch's own fault, to be found alone.
            if len(group) == 1 or isinstance(error, StoreError):
                for batch in group:
                    batch.future.set_exception(_told(error))
            else:
                for batch in group:
                    self._alone(batch)
            return
        for batch, answer in zip(group, answers, strict=True):
            batch.future.set_result(answer)

    def _alone(self, batch: EventBatch) -> None:
        try:
            (answer,) = self._append([batch])
        except Exception as error:
            batch.future.set_exception(_told(error))
        else:
            batch.future.set_result(answer)


def _told(error: Exception) -> StoreError:
    """One kind of error, whatever the database or its driver called it."""
    if isinstance(error, StoreError):
        return error
    told = StoreError(f"the events could not be written: {error}; nothing of this batch was kept")
    told.__cause__ = error
    return told


class _Task:
    """Something to be done in turn, whatever it returns."""

    __slots__ = ("_action", "future")

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self.future: Future[Any] = Future()

    def run(self) -> None:
        try:
            self.future.set_result(self._action())
        except BaseException as error:
            self.future.set_exception(error)
