"""Poller of the policy: long polls, or requests at an interval if long polls do not work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pasto_sdk import policy_file
from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.errors import PolicyError
from pasto_sdk.event_sender import MIN_INTERVAL_SECONDS, Backoff
from pasto_sdk.policy_document import has_checksum
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.transport import Request, Response, Transport

MAX_LONG_POLL_SECONDS = 60.0
"""Longest time that the service holds a long poll."""
RESPONSE_TIMEOUT_SECONDS = 10.0
"""Time for a response beyond that of the long poll."""
MAX_LOST_LONG_POLLS = 3
"""Long polls lost in a row before plain requests are used: a proxy probably cuts them."""
PLAIN_POLLING_SECONDS = 600.0
"""Time of plain requests after that."""
SIGNING_KEY = "pasto-signing-key"
"""Header with the key that signs the exposures of a signed study."""
_CHECKSUM = re.compile(r'(?:W/)?"([0-9a-f]{64})')


class PolicyPoller:
    """Poller of the policy, one request a step.

    A long poll ends when the policy changes. Without long polls, or if they do not work, there is a request every
    `poll_interval` seconds. After a failure the next request is a plain one, so that a service that is back is seen
    at its first response.
    """

    def __init__(
        self,
        holder: PolicyHolder,
        transport: Transport,
        url: str,
        headers: Mapping[str, str],
        error_log: ErrorLog,
        *,
        poll_interval: float,
        file: Path | None = None,
        long_poll: bool = True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        random: Callable[[], float] | None = None,
    ) -> None:
        self._holder = holder
        self._transport = transport
        self._url = url
        self._headers = headers
        self._error_log = error_log
        self._poll_interval = poll_interval
        self._file = file
        self._uses_long_polls = long_poll
        self._clock = clock
        self._wall = wall
        self._backoff = Backoff(random)
        self._answered = False
        self._lost_long_polls = 0
        self._plain_until = 0.0
        self._saved_checksum = ""
        self._saved_contact = 0.0
        self._stopped = False

    def stop(self) -> None:
        """Stop: the end of the open long poll is then not a failure."""
        self._stopped = True

    def restore(self) -> None:
        """Load the policy that an earlier process saved on disk."""
        if self._file is None:
            return
        try:
            policy_file.delete_old_policies(self._file)
            saved = policy_file.load_policy(self._file)
            # A wrong clock makes the policy older, never newer.
            policy = self._holder.offer(saved.text, None, age=abs(self._wall() - saved.contact))
            self._saved_checksum, self._saved_contact = policy.checksum, saved.contact
        except FileNotFoundError:
            pass
        except Exception as error:
            self._error_log.note(f"the policy on disk is not used: {error}")

    def step(self) -> float:
        """Send one request; return the seconds until the next."""
        started = self._clock()
        long_poll = self._uses_long_polls and self._answered and started >= self._plain_until
        wait = min(self._poll_interval, MAX_LONG_POLL_SECONDS) if long_poll else 0.0
        try:
            response = self._transport(self._request(wait))
            problem = self._take(response)
        except Exception as error:
            if self._stopped:
                return MIN_INTERVAL_SECONDS
            return self._failed(f"{type(error).__name__}: {error}", wait)
        if problem:
            return self._failed(problem, wait, response.header("retry-after"))
        elapsed = self._clock() - started
        if wait:
            self._lost_long_polls = 0
        self._answered = True
        self._backoff.succeeded()
        self._save()
        long_poll_works = wait > 0 and (response.status == 200 or elapsed >= wait / 2)
        if long_poll_works or (self._plain_until <= started and not wait):
            return max(0.0, MIN_INTERVAL_SECONDS - elapsed)
        return max(MIN_INTERVAL_SECONDS, self._poll_interval * self._backoff.jitter() - elapsed)

    def _request(self, wait: float) -> Request:
        headers = dict(self._headers)
        if self._holder.live.policy is not None:
            headers["If-None-Match"] = f'"{self._holder.live.policy.checksum}"'
        url = f"{self._url}?wait={wait:g}" if wait else self._url
        return Request("GET", url, headers, timeout=wait + RESPONSE_TIMEOUT_SECONDS)

    def _take(self, response: Response) -> str | None:
        """Use a response; return the problem, if there is one."""
        if response.status in (200, 304) and (key := response.header(SIGNING_KEY)):
            self._holder.signing_key = key  # before the policy, because the sender waits for that
        if response.status == 304:
            return None if self._holder.confirm() else "the service answered 304, and no policy is held"
        if response.status == 409 and response.error == "wrong_state":
            self._holder.end()
            return f"{response.message or 'the study serves no policy'}; every unit gets the baseline"
        if response.status != 200:
            return f"the service answered {response.status}" + (f": {response.message}" if response.message else "")
        claimed = _CHECKSUM.match(response.header("etag"))
        if claimed is None and not has_checksum(response.body):
            return (
                "the answer cannot be checked: it needs a field sha256 or the document's SHA-256 as its ETag, and has "
                "neither; let no proxy change it, or upgrade the service"
            )
        try:
            self._holder.offer(response.body, claimed[1] if claimed else None)
        except PolicyError as error:
            return str(error)
        return None

    def _failed(self, problem: str, wait: float, retry_after: str = "") -> float:
        self._error_log.note(f"no policy from {self._url}: {problem}")
        self._answered = False
        if wait:
            self._lost_long_polls += 1
            if self._lost_long_polls >= MAX_LOST_LONG_POLLS:
                self._lost_long_polls = 0
                self._plain_until = self._clock() + PLAIN_POLLING_SECONDS
        return self._backoff.failed(retry_after)

    def _save(self) -> None:
        """Save a new policy on disk, and from time to time that it was confirmed."""
        policy = self._holder.live.policy
        if self._file is None or policy is None:
            return
        now = self._wall()
        due = max(60.0, policy.expires_after / 20)
        if policy.checksum == self._saved_checksum and abs(now - self._saved_contact) < due:
            return
        try:
            policy_file.save_policy(self._file, policy_file.SavedPolicy(policy.text, now))
        except OSError as error:
            self._error_log.note(f"the policy cannot be saved on disk: {error}")
        self._saved_checksum, self._saved_contact = policy.checksum, now
