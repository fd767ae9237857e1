"""Exposures that the service decides itself, gathered for a moment so that they are written together."""

from __future__ import annotations

import asyncio

from pasto.service.service import Service
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

PAUSE = 0.01
"""Seconds that an exposure may wait for company."""
MANY = 1_000
"""Exposures that are written without waiting any longer."""


class Exposures:
    """Gathers exposures by study and key, and hands them on before any event that comes after them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[tuple[str, str | None], tuple[PublishedPolicy, list[tuple[str, Bucket]]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, policy: PublishedPolicy, unit: str, cell: Bucket, key: str | None = None) -> None:
        """Take in one exposure, decided for the caller with a key."""
        place = (policy.study, key)
        found = self._waiting.get(place)
        if found is None or found[0] is not policy:
            if found is not None:
                self.flush()
            found = self._waiting[place] = (policy, [])
        found[1].append((unit, cell))
        if len(found[1]) >= MANY:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self.flush)

    def flush(self) -> None:
        """Hand on what was gathered, in order; whatever is taken in afterwards is written after it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for (study, key), (policy, drawn) in waiting.items():
            self._service.expose_all(study, policy, drawn, key=key)
