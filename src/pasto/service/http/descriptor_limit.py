"""Connection budget: the number of connections that fit into the process's file descriptors."""

from __future__ import annotations

import contextlib
import logging
import resource
from dataclasses import dataclass
from pathlib import Path

from pasto.service.settings import Settings

log = logging.getLogger("pasto.server")

MAX_DESCRIPTORS = 1_048_576
"""Upper limit of the requested descriptors; some systems allow far more than a service needs."""
MIN_CONNECTIONS = 1_000
"""Connections that are allowed if they fit, even if the settings allow fewer callers."""


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
