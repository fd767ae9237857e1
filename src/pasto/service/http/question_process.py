"""Question process: slow answers are computed outside the service, whose interpreter is left to ingest and changes.

Threads share one interpreter lock, so an answer that is computed in a thread of the service delays every batch and
every pause. A process of its own does not: it takes one processor at most, has a lower priority, and opens the store
for reading only. With 24 slow answers at a time, the p99 of a batch is 1.3 times as long as without; with threads it
was 9 times as long (`make chaos`). `concurrent.futures.ProcessPoolExecutor` cannot end an answer that takes too long,
and unpickles objects; here a question is the name of a function with plain arguments.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal, NamedTuple

import msgspec

from pasto.service.archive import Archive
from pasto.service.http.responses import AnsweredError, ApiError, HttpResponse, error_response, retry
from pasto.service.http.worker_pools import PoolFullError
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.store import open_store

log = logging.getLogger("pasto.questions")
Question = Callable[[Service], HttpResponse]
"""Function of a module that computes an answer, or a `partial` of one with plain keyword arguments."""
NICENESS = 10
"""Priority of the process: on a busy machine it gets about a tenth of the time that the service gets."""
OOM_SCORE = 500
"""Makes Linux end this process, and not the service, if memory runs out."""
START_SECONDS = 60.0
"""Time that a new process may take until it can compute; not part of a question's own limit."""
STUCK_SECONDS = 300.0
"""Time after which a question counts as stuck. Its callers have been answered long before, and may ask again."""
MAX_TRIES = 2
"""Processes in which one question is computed before its caller is asked to come back."""


class _Reply(NamedTuple):
    """Outcome of a question."""

    kind: Literal["answer", "refused", "failed", "ready"]
    response: HttpResponse | None = None
    traceback: str = ""


class QuestionFailedError(Exception):
    """An error in the question process that no rule foresees; the message is its traceback there."""


class QuestionProcess:
    """The process that computes a service's slow answers: started by the first question, and again if it dies.

    `compute` may be called by as many threads at once as the setting `question_threads` allows.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._worker: _Worker | None = None
        self._lock = Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none now."""
        with self._lock:
            return None if self._worker is None else self._worker.process.pid

    def compute(self, question: Question, seconds: float) -> HttpResponse:
        """Return the answer; AnsweredError if the question is refused, QuestionFailedError if it fails.

        After `seconds` the process is ended, and TimeoutError raised. The other questions in a process that ends are
        computed again by a new one. PoolFullError once this is closed.
        """
        for _ in range(MAX_TRIES):
            try:
                reply = self._try(question, seconds)
            except TimeoutError:
                log.warning("a question took longer than %g seconds, so its process was ended", seconds)
                raise
            except (EOFError, OSError) as error:
                if not self._closed:
                    log.warning("the question process ended, or could not be started: %r", error)
                continue
            if reply.response is None:
                raise QuestionFailedError(reply.traceback)
            if reply.kind == "refused":
                raise AnsweredError(reply.response)
            return reply.response
        raise ApiError(
            503,
            "overloaded",
            "the process that computes answers ended before this one was ready; ask again later",
            headers=retry(self._settings.retry_after),
        )

    def close(self) -> None:
        """End the process; questions under way raise PoolFullError."""
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            self._end(worker)

    def _try(self, question: Question, seconds: float) -> _Reply:
        """Have a question computed; the process is ended if that does not end in a reply."""
        with self._lock:
            if self._closed:
                raise PoolFullError
            if self._worker is None or self._worker.process.poll() is not None:
                self._worker = _Worker(self._settings)
            worker = self._worker
            channel = worker.free.pop()
        try:
            reply = channel.compute(question, seconds)
        except BaseException:
            self._end(worker)
            raise
        with self._lock:
            worker.free.append(channel)
        return reply

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            if self._worker is worker:
                self._worker = None
        worker.process.kill()
        worker.process.wait()


class _Worker:
    """A running process, with a channel to each of its threads."""

    def __init__(self, settings: Settings) -> None:
        pairs = [Pipe() for _ in range(settings.question_threads + 1)]
        theirs = [end.fileno() for _, end in pairs]
        command = f"from pasto.service.http.question_process import compute_answers; compute_answers({theirs})"
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        self.process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
            [sys.executable, "-P", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=theirs,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C ends the service, which ends this. A session of its own would make its low priority useless.
            process_group=0,
        )
        for _, end in pairs:
            end.close()
        self._lifeline, *channels = (end for end, _ in pairs)
        self.free = [_Channel(connection) for connection in channels]
        with contextlib.suppress(OSError):  # dead already: the first question finds out
            self._lifeline.send_bytes(
                msgspec.msgpack.encode(asdict(settings))
            )  # not in the command line: the store's address may have a password


class _Channel:
    """The connection to one thread of the process, which computes one answer at a time."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        self._connection = connection
        self._is_ready = False

    def compute(self, question: Question, seconds: float) -> _Reply:
        """Return what became of a question; TimeoutError after `seconds`, EOFError or OSError if the process died."""
        self._connection.send_bytes(_write_question(question))
        if not self._is_ready:
            self._receive(START_SECONDS)
            self._is_ready = True
        return self._receive(seconds)

    def _receive(self, seconds: float) -> _Reply:
        if not self._connection.poll(seconds):
            raise TimeoutError
        return msgspec.msgpack.decode(self._connection.recv_bytes(), type=_Reply)


def compute_answers(descriptors: Sequence[int]) -> None:
    """Compute answers, in the question process, until the service ends or dies.

    The first descriptor is a connection that only the service's end closes; each of the others is one for questions.
    """
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # a signal to all of the service's processes is for the service to act on
    os.nice(NICENESS)
    with contextlib.suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    lifeline: Connection[bytes, bytes] = Connection(descriptors[0])
    with contextlib.suppress(EOFError, OSError):
        service = _LazyService(Settings(**msgspec.msgpack.decode(lifeline.recv_bytes())))
        for descriptor in descriptors[1:]:
            Thread(target=_answer_questions, args=(Connection(descriptor), service), daemon=True).start()
        lifeline.recv_bytes()  # nothing comes: this ends with the service
    os._exit(0)  # also in the middle of a computation


def _answer_questions(connection: Connection[bytes, bytes], service: _LazyService) -> None:
    """Compute the answers that one channel asks for."""
    with contextlib.suppress(EOFError, OSError):  # the service is gone, and this process ends
        connection.send_bytes(msgspec.msgpack.encode(_Reply("ready")))
        while True:
            connection.send_bytes(msgspec.msgpack.encode(_reply(connection.recv_bytes(), service)))


def _reply(message: bytes, service: _LazyService) -> _Reply:
    try:
        question = _read_question(message)
        return _Reply("answer", question(service.open()))
    except Exception as error:
        known = error_response(error, service.settings.retry_after)
        return _Reply("failed", traceback=traceback.format_exc()) if known is None else _Reply("refused", known)


def _write_question(question: Question) -> bytes:
    """Return the name of a function and its keyword arguments as bytes; no code and no objects travel."""
    function: Any = question.func if isinstance(question, partial) else question
    arguments = question.keywords if isinstance(question, partial) else {}
    return msgspec.msgpack.encode((function.__module__, function.__name__, arguments))


def _read_question(message: bytes) -> Question:
    module, name, arguments = msgspec.msgpack.decode(message)
    return partial(getattr(importlib.import_module(module), name), **arguments)


class _LazyService:
    """The service of a question process, opened by its first question: what fails then is that question's error."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._service: Service | None = None
        self._lock = Lock()

    def open(self) -> Service:
        """Return the service, over a store that is open for reading only."""
        with self._lock:
            if self._service is None:
                archive = Archive(self.settings.archive) if self.settings.archive else None
                self._service = Service(open_store(self.settings.store, read_only=True), archive=archive)
            return self._service
