"""Questions for tests of the question process, which imports them by name."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from pasto.service.http.answers import Answer
from pasto.service.service import Service


def answer_pid(_: Service) -> Answer:
    """Compute for a while, and return where."""
    sum(number * number for number in range(100_000))
    return Answer(200, str(os.getpid()).encode())


def compute_without_end(_: Service, *, file: Path, **question: Any) -> Answer:
    """Write the id of this process into a file, and never answer."""
    partial = file.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(file)
    threading.Event().wait()
    return Answer(200)


def die_once(service: Service, *, file: Path) -> Answer:
    """Kill this process the first time."""
    if file.exists():
        return answer_pid(service)
    file.touch()
    return die(service)


def die(_: Service) -> Answer:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return Answer(200)


def fail(_: Service, **question: Any) -> Answer:
    """Fail as no rule foresees."""
    return Answer(1 // 0)


def write(service: Service) -> Answer:
    """Write into the store."""
    service.store.set_note("a", "b")
    return Answer(200)
