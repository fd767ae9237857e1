"""Descriptor limit: the connections that fit into the process's file descriptors, and those that are open."""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pasto.service.http.responses import encode_response, problem_response, retry
from pasto.service.settings import Settings

if TYPE_CHECKING:
    from pasto.service.http.request_head_limits import LimitedConnection

log = logging.getLogger("pasto.server")

MAX_DESCRIPTORS = 1_048_576
"""Upper limit of the requested descriptors; some systems allow far more than a service needs."""
MIN_CONNECTIONS = 1_000
"""Connections that are allowed if they fit, even if the settings allow fewer callers."""
FULL_WARNING_SECONDS = 60.0
"""Seconds between two warnings that all connections are in use."""


@dataclass(frozen=True, slots=True)
class ConnectionBudget:
    """Number of connections that fit into a number of descriptors.

    >>> plan_connections(Settings(), descriptors=65_536, open_files=30)
    ConnectionBudget(descriptors=65536, needed=11286, connections=22000, waiters=10000)
    >>> plan_connections(Settings(), descriptors=1024, open_files=30)
    ConnectionBudget(descriptors=1024, needed=11158, connections=866, waiters=649)
    """

    descriptors: int
    needed: int
    """Descriptors that `max_waiters` and `max_concurrent` need."""
    connections: int
    waiters: int
    """Callers that may wait for a policy at once; other callers use the remaining connections."""


def plan_connections(settings: Settings, *, descriptors: int, open_files: int) -> ConnectionBudget:
    """Divide the descriptors among the store's files, waiting callers and other callers."""
    spare = max(16, min(256, descriptors // 8))
    callers = settings.max_waiters + settings.max_concurrent
    connections = max(1, min(descriptors - open_files - spare, max(MIN_CONNECTIONS, 2 * callers)))
    reserved = min(settings.max_concurrent, -(-connections // 4))
    return ConnectionBudget(
        descriptors=descriptors,
        needed=callers + open_files + spare,
        connections=connections,
        waiters=min(settings.max_waiters, connections - reserved),
    )


def claim_descriptors(settings: Settings) -> ConnectionBudget:
    """Raise the process's limit of open files as far as the system allows, and plan the connections.

    Log a warning if the settings need more.
    """
    budget = plan_connections(settings, descriptors=_raise_limit(), open_files=_count_open_files())
    if budget.descriptors < budget.needed:
        log.warning(
            "the system allows %d open files, and max_waiters %d and max_concurrent %d need %d; at most %d callers can "
            "wait for a policy at once. Raise the limit (LimitNOFILE= in a systemd unit, ulimit -Hn in a shell), or "
            "lower max_waiters",
            budget.descriptors,
            settings.max_waiters,
            settings.max_concurrent,
            budget.needed,
            budget.waiters,
        )
    return budget


class OpenConnections:
    """The open connections of a service, at most `capacity`.

    A new connection beyond that takes the place of the one that has been idle longest. A connection whose request is
    complete and not yet answered is never closed for another one.
    """

    def __init__(self, settings: Settings) -> None:
        self.request_timeout = settings.request_timeout
        self.keep_alive = float(settings.keep_alive)
        self.capacity = settings.max_waiters + settings.max_concurrent
        self.number = 0
        """Connections that are open now."""
        self._refusal = encode_response(
            problem_response(503, "overloaded", "all connections are in use", headers=retry(settings.retry_after))
        )
        self.idle: dict[LimitedConnection, None] = {}
        """Connections that may be closed for new ones, those that have been idle longest first."""
        self._warned_at = -FULL_WARNING_SECONDS

    def gauges(self) -> Iterator[tuple[str, str, float, None]]:
        """Yield the gauges of connections."""
        yield "pasto_connections", "Open connections.", self.number, None
        yield "pasto_connections_limit", "Connections that may be open at once.", self.capacity, None

    def add(self, connection: LimitedConnection, now: float) -> None:
        """Count a new connection, and close another one if there are too many."""
        self.number += 1
        self.idle[connection] = None
        if self.number <= self.capacity:
            return
        if now - self._warned_at >= FULL_WARNING_SECONDS:
            self._warned_at = now
            log.warning(
                "all %d connections are in use: idle ones are closed for new ones. Raise the limit of open files "
                "(LimitNOFILE= in a systemd unit, ulimit -n in a shell)",
                self.capacity,
            )
        oldest = next(iter(self.idle))
        del self.idle[oldest]
        oldest.close(self._refusal if oldest is connection else b"")

    def remove(self, connection: LimitedConnection) -> None:
        """Forget a closed connection."""
        self.number -= 1
        self.idle.pop(connection, None)


def _raise_limit() -> int:
    """Raise the soft limit of open files to the hard one, and return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = MAX_DESCRIPTORS if hard == unlimited else min(hard, MAX_DESCRIPTORS)
    if soft != unlimited and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than their hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return MAX_DESCRIPTORS if soft == unlimited else soft


def _count_open_files() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(list(Path(folder).iterdir()))
    return 64
