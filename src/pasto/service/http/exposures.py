"""Buffer of the exposures of the service's own decisions, written in batches."""

from __future__ import annotations

import asyncio

from pasto.service.service import Service
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

FLUSH_SECONDS = 0.01
"""Seconds that an exposure may stay in the buffer."""
MAX_BUFFERED_EXPOSURES = 1_000
"""Exposures of one study and key that are written at once."""


class ExposureBuffer:
    """Buffer of exposures by study and key, flushed before later events are stored."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches: dict[tuple[str, str | None], tuple[PublishedPolicy, list[tuple[str, Bucket]]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, policy: PublishedPolicy, unit: str, bucket: Bucket, key: str | None = None) -> None:
        """Add an exposure of a decision for the caller with a key."""
        batch_key = (policy.study, key)
        batch = self._batches.get(batch_key)
        if batch is None or batch[0] is not policy:
            if batch is not None:
                self.flush()
            batch = self._batches[batch_key] = (policy, [])
        batch[1].append((unit, bucket))
        if len(batch[1]) >= MAX_BUFFERED_EXPOSURES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass the buffered exposures to the store, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batches, self._batches = self._batches, {}
        for (study, key), (policy, drawn) in batches.items():
            self._service.expose_all(study, policy, drawn, key=key)
