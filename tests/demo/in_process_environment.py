"""Environment of the demonstration inside the test's own process."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from pasto.demo.environment import USER
from pasto.report.records import Report
from pasto.service.service import Service
from pasto.service.study_records import StudyOverview
from pasto.store import Store, open_store
from pasto_sdk import Client
from pasto_sdk.transport import Request, Response


class InProcessEnvironment:
    """Service in this process on a store in memory, with an SDK client that calls it without a network."""

    address = "in-process"

    def __init__(self) -> None:
        self._store = open_store("memory:")
        self._service = Service(self._store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.shutdown()

    def create(self, document: Mapping[str, Any], seed: int) -> None:
        self._service.create(document, who=USER, seed=seed)
        self._service.change(document["name"], "start", who=USER)

    def client(self, study: str) -> Client:
        return Client(
            "http://in-process",
            study=study,
            cache=None,
            background=False,
            transport=lambda request: self._respond(study, request),
        )

    def close_round(self, study: str) -> int:
        return self._service.close_round(study, who=USER).next_version

    def confirm(self, study: str) -> int:
        return self._service.change(study, "confirm", who=USER, reason="learned enough").version

    def show(self, study: str) -> StudyOverview:
        return self._service.show(study)

    def report(self, study: str) -> Report:
        return self._service.report(study)

    @contextmanager
    def open_store(self) -> Iterator[Store]:
        yield self._store

    def _respond(self, study: str, request: Request) -> Response:
        if urlsplit(request.url).path.endswith("/policy"):
            policy = self._service.policy_cache.current(study)
            return Response(200, {"ETag": f'"{policy.checksum}"'}, policy.text.encode())
        is_gzip = request.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(request.body) if is_gzip else request.body
        accepted = self._service.ingest(study, self._service.decode(body)).result()
        return Response(200, {}, msgspec.json.encode(accepted))
