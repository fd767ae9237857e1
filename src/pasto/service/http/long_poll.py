"""Callers that wait for a study's policy to change: one event a study, however many wait."""

from __future__ import annotations

import asyncio
import contextlib


class LongPollHub:
    """Wakes everyone who waits for a study; made for one event loop, and told of changes from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Callers that may wait at once."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}
        self.number = 0
        """How many wait now."""
        self.ended = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the loop in which callers will wait."""
        self._loop = loop

    def changed(self, study: str) -> None:
        """Wake those who wait for a study; may be called from any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(self._wake, study)

    def event(self, study: str) -> asyncio.Event:
        """What to wait on; take it before looking at the policy, so that no change falls in between."""
        event = self._events.get(study)
        if event is None:
            event = self._events[study] = asyncio.Event()
        return event

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for a change, or until the time is up or the service ends."""
        if self.ended:
            return
        self.number += 1
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self.number -= 1

    def end(self) -> None:
        """Send everyone away: the service is going."""
        self.ended = True
        for study in list(self._events):
            self._wake(study)

    def _wake(self, study: str) -> None:
        event = self._events.pop(study, None)
        if event is not None:
            event.set()
