"""Generation cache: values that change only with a study's generation, computed once for all threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class GenerationCache(Generic[Value]):
    """The value of each study's latest generation; threads that ask for one being computed wait for it.

    >>> cache = GenerationCache[str]()
    >>> cache.get(1, 7, lambda: "computed"), cache.get(1, 7, lambda: "computed again")
    ('computed', 'computed')
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[int, Future[Value]]] = {}
        self._lock = Lock()

    def get(self, study: int, generation: int, compute: Callable[[], Value]) -> Value:
        """Return the value of a study's generation; an error of `compute` is raised and not cached."""
        with self._lock:
            known = self._values.get(study)
            if known is not None and known[0] == generation:
                future = known[1]
                is_new = False
            else:
                future, is_new = Future(), True
                if known is None or known[0] < generation:
                    self._values[study] = generation, future
        if not is_new:
            return future.result()
        try:
            future.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._values.get(study) == (generation, future):
                    del self._values[study]
            future.set_exception(error)
            raise
        return future.result()
