"""Questions for tests of the question process, which imports them by name."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from pasto.service.http.responses import HttpResponse
from pasto.service.service import Service


def answer_pid(_: Service) -> HttpResponse:
    """Compute for a moment, and return the process id."""
    sum(number * number for number in range(100_000))
    return HttpResponse(200, str(os.getpid()).encode())


def compute_without_end(_: Service, *, file: str, **question: Any) -> HttpResponse:
    """Write the id of this process into a file, and never answer."""
    partial = Path(file).with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(file)
    threading.Event().wait()
    return HttpResponse(200)


def die_once(service: Service, *, file: str) -> HttpResponse:
    """Kill this process the first time."""
    if Path(file).exists():
        return answer_pid(service)
    Path(file).touch()
    return die(service)


def die(_: Service) -> HttpResponse:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return HttpResponse(200)


def fail(_: Service, **question: Any) -> HttpResponse:
    """Raise an error that no rule covers."""
    return HttpResponse(1 // 0)


def write(service: Service) -> HttpResponse:
    """Write into the store."""
    service.store.write_cache("a", "b")
    return HttpResponse(200)
