"""Fake service in memory, for tests of programs that embed the client."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

from pasto_sdk.errors import InputError
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.transport import Request, Response


class FakeService:
    """Transport that serves policies and stores events as the service does, without a network.

    >>> from pasto_sdk.policy import publish_policy
    >>> from pasto_sdk import Client
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("learner", 0, 0.5), ("learner", 1, 0.5)], valid_from=0, expires_after=86400)
    >>> service = FakeService(policy)
    >>> with Client("http://fake", study="feed", transport=service, cache=None, background=False) as client:
    ...     client.wait_until_ready()
    ...     client.assign("user 7").name
    ...     client.flush()
    True
    'b'
    True
    >>> [(event["unit"], event["candidate"]) for event in service.exposures]
    [('user 7', 'b')]
    """

    def __init__(self, policy: PublishedPolicy | None = None) -> None:
        self.fault: Callable[[Request], Response] | None = None
        """Function that responds instead of the service, or raises, to test how a program copes."""
        self.requests: list[Request] = []
        self.events: dict[str, dict[str, Any]] = {}
        """Accepted events, by id."""
        self._lock = threading.Lock()
        self.duplicates = 0
        self.policies: dict[int, PublishedPolicy] = {}
        self.current: PublishedPolicy | None = None
        if policy is not None:
            self.publish(policy)

    def publish(self, policy: PublishedPolicy) -> None:
        """Serve another policy from now on."""
        self.policies[policy.version] = self.current = policy

    @property
    def exposures(self) -> list[dict[str, Any]]:
        """Exposures, in order of arrival."""
        return [event for event in self._stored() if event["type"] == "exposure"]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metric events, in order of arrival."""
        return [event for event in self._stored() if event["type"] == "metric"]

    @property
    def tallies(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Latest exposure counts, by source and version."""
        latest: dict[tuple[str, int], dict[str, Any]] = {}
        for event in self._stored():
            place = (event.get("source", ""), event.get("version", 0))
            if (
                event["type"] == "exposure_counts"
                and event["sequence"] > latest.get(place, {"sequence": 0})["sequence"]
            ):
                latest[place] = event
        return latest

    def _stored(self) -> list[dict[str, Any]]:
        """Copy the events, because another thread may add one while a test reads them."""
        with self._lock:
            return list(self.events.values())

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        self.requests.append(request)
        if self.fault is not None:
            return self.fault(request)
        return self._serve(request) if request.method == "GET" else self._take(request)

    def _serve(self, request: Request) -> Response:
        if self.current is None:
            return Response(404, {}, b'{"error": {"code": "unknown_study", "message": "no policy yet"}}')
        tag = f'"{self.current.checksum}"'
        if request.headers.get("If-None-Match") == tag:
            return Response(304, {"ETag": tag})
        return Response(200, {"ETag": tag}, self.current.text.encode())

    def _take(self, request: Request) -> Response:
        packed = request.headers.get("Content-Encoding") == "gzip"
        batch = json.loads(gzip.decompress(request.body) if packed else request.body)
        accepted, duplicates, refused = 0, 0, []
        with self._lock:
            for index, event in enumerate(batch):
                if event["id"] in self.events:
                    duplicates += 1
                elif (reason := self._find_fault(event)) is not None:
                    refused.append({"index": index, "id": event["id"], "reason": reason})
                else:
                    accepted += 1
                    self.events[event["id"]] = event
            self.duplicates += duplicates
        answer = {"accepted": accepted, "duplicates": duplicates, "rejected": refused}
        return Response(422 if len(refused) == len(batch) else 200, {}, json.dumps(answer).encode())

    def _find_fault(self, event: dict[str, Any]) -> str | None:
        """Return the reason to reject an event, or None; exposures are drawn again, as the service does."""
        version = event.get("version", 0)
        if version and version not in self.policies:
            return f"version is {version}, which was never published"
        if event["type"] == "exposure_counts" or not version or event.get("fallback") or event.get("override"):
            return None
        policy = self.policies[version]
        drawn_by = event["unit"] if policy.cluster is None else event.get("cluster")
        if drawn_by is None:
            return "cluster is missing" if event["type"] == "exposure" else None
        try:
            cell = policy.redraw(drawn_by, event.get("segment"))
        except InputError as error:
            return str(error)
        if cell is policy.not_enrolled and event["type"] == "exposure":
            return f"unit is not enrolled in version {version}"
        drawn = cell.name
        return None if drawn == event.get("candidate", drawn) else f"candidate is not what version {version} draws"
