"""Long polling: callers wait for a study's policy to change, on one event per study."""

from __future__ import annotations

import asyncio
import contextlib


class LongPollHub:
    """Hub that wakes the callers waiting for a study. They wait in one event loop; any thread reports changes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Maximum number of waiting callers."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}
        self.number = 0
        """Number of waiting callers."""
        self.ended = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop in which callers wait."""
        self._loop = loop

    def changed(self, study: str) -> None:
        """Wake the callers that wait for a study; may be called from any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(self._wake, study)

    def event(self, study: str) -> asyncio.Event:
        """Return the event to wait on. Get it before you read the policy, so that no change is missed."""
        event = self._events.get(study)
        if event is None:
            event = self._events[study] = asyncio.Event()
        return event

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for a change, for the end of the service, or until the time is up."""
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
        """Wake all callers, because the service ends."""
        self.ended = True
        for study in list(self._events):
            self._wake(study)

    def _wake(self, study: str) -> None:
        event = self._events.pop(study, None)
        if event is not None:
            event.set()
