"""Routes of a study's policy: read it, wait for the next one, assign units."""

from __future__ import annotations

from itertools import chain
from typing import Literal

import msgspec

from pasto.service.http.request import Context, HttpRequest
from pasto.service.http.responses import CLOSE, JSON, ApiError, Headers, HttpResponse, encode, retry
from pasto.service.http.schemas import AssignRequest, DrawnCandidate
from pasto.service.ingest import DrawnUnit
from pasto_sdk.enrolment import NO_ATTRIBUTES, Attributes
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

MAX_WAIT_SECONDS = 60.0
"""Seconds that a caller may wait for a policy to change."""
MAX_INLINE_UNITS = 500
"""Units up to which an assign request is answered in the event loop; more are decided in a thread."""
MAX_STORE_SILENCE_SECONDS = 60.0
"""Seconds without an answer of the store after which this node no longer serves policies."""
SIGNING_KEY = b"pasto-signing-key"
ASSIGN_REQUEST = msgspec.json.Decoder(AssignRequest)


async def get_policy(call: HttpRequest) -> HttpResponse:
    """Return the served policy, or 304 if the caller has it; with `wait`, wait for the next one."""
    name = call.path("name")
    wait = _wait_seconds(call)
    policy_cache, hub = call.service.policy_cache, call.context.long_poll
    etag = call.header(b"if-none-match")
    current = await call.policy(name)
    extra_headers: Headers = ()
    if wait and etag and _matches(etag, current):
        if hub.number >= hub.limit:
            # Respond now and close the connection, because other callers need it.
            extra_headers = (*CLOSE, *retry(call.settings.retry_after))
        else:
            event = hub.event(name)
            current = policy_cache.current(name)
            if _matches(etag, current):
                await hub.wait(event, wait)
                current = policy_cache.current(name)
    if policy_cache.silence > MAX_STORE_SILENCE_SECONDS:
        # Another node may have paused the study. Without a response, callers use their policy until it expires.
        raise ApiError(
            503,
            "store_unavailable",
            "the store does not answer, so this node does not know the current policy; ask another node",
            headers=retry(call.settings.retry_after),
        )
    extra_headers = (*await _signing_key(call, current), *extra_headers)
    etag_header = (b"etag", f'"{current.checksum}"'.encode())
    if etag and _matches(etag, current):
        return HttpResponse(304, b"", (etag_header, *extra_headers))
    return HttpResponse(200, current.text.encode(), (*JSON, etag_header, *extra_headers))


async def assign(call: HttpRequest) -> HttpResponse:
    """Decide for one unit or several, and log their exposures."""
    name = call.path("name")
    body = await call.json(ASSIGN_REQUEST)
    current = await call.drawn_policy(name)
    if body.unit is not msgspec.UNSET and body.units is msgspec.UNSET:
        return HttpResponse(200, decide_unit(call.context, name, current, body, call.key_prefix))
    if body.units is msgspec.UNSET or body.unit is not msgspec.UNSET:
        raise ApiError(400, "bad_request", "the body needs one unit in unit, or several in units", field="unit")
    if len(body.units) > call.settings.batch_limit:
        raise ApiError(
            413,
            "batch_too_large",
            f"a request may have {call.settings.batch_limit} units, got {len(body.units)}; send several requests",
            field="units",
        )
    units, attributes = body.units, _read_attributes(body)
    head, parts = _response_parts(current)
    context, outside = call.context, current.not_enrolled
    context.exposures.flush()

    def work() -> list[bytes]:
        cluster = current.find_cluster(attributes)
        cells = current.draw_many(units, attributes)
        drawn = [DrawnUnit(unit, bucket, cluster) for unit, bucket in zip(units, cells, strict=True)]
        context.metrics.count_not_enrolled(name, "assign", sum(bucket is outside for bucket in cells))
        call.service.expose_all(name, current, drawn, key=call.key_prefix)
        return [b'{"unit":%b,%b}' % (encode(unit), parts[bucket_key(bucket)]) for unit, bucket, _ in drawn]

    assignments = await call.run(work) if len(units) > MAX_INLINE_UNITS else work()
    context.metrics.count_decisions(name, "assign", len(units))
    return HttpResponse(200, head.replace(b'"unit":', b'"assignments":[') + b",".join(assignments) + b"]}")


def decide_unit(context: Context, name: str, current: PublishedPolicy, body: AssignRequest, key: str | None) -> bytes:
    """Decide for one unit, log its exposure for the caller's key, and return the response body.

    A unit that does not take part gets the baseline, and has no exposure.
    """
    unit = "" if body.unit is msgspec.UNSET else body.unit  # the callers have checked that there is one
    attributes = _read_attributes(body)
    bucket = current.draw(unit, attributes)
    if bucket is current.not_enrolled:
        context.metrics.count_not_enrolled(name, "assign")
    else:
        context.exposures.add(current, DrawnUnit(unit, bucket, current.find_cluster(attributes)), key)
    context.metrics.count_decisions(name, "assign")
    head, parts = _response_parts(current)
    return b"%b%b,%b}" % (head, encode(unit), parts[bucket_key(bucket)])


def _read_attributes(body: AssignRequest) -> Attributes:
    return NO_ATTRIBUTES if body.attributes is msgspec.UNSET else body.attributes


def assignment_reason(policy: PublishedPolicy, bucket: Bucket) -> Literal["SPLIT", "DEFAULT"]:
    """Return the reason of an assignment, as OpenFeature names it."""
    return "DEFAULT" if policy.state == "paused" or bucket is policy.not_enrolled else "SPLIT"


def list_buckets(policy: PublishedPolicy) -> tuple[Bucket, ...]:
    """Return all buckets that a unit may get: those of the policy, and the baseline for units that do not take part."""
    buckets = tuple(chain.from_iterable(policy.cells_by_segment.values())) or policy.cells
    return (*buckets, policy.not_enrolled) if policy.is_partial else buckets


BucketKey = tuple[str | None, str, int]
"""Segment, arm and candidate, which identify a bucket of a policy."""


def bucket_key(bucket: Bucket) -> BucketKey:
    """Return what identifies a bucket among those of its policy."""
    return bucket.segment, bucket.arm, bucket.candidate


def describe_bucket(policy: PublishedPolicy, bucket: Bucket) -> DrawnCandidate:
    """Return the fields of an assignment that depend on its bucket."""
    reason = assignment_reason(policy, bucket)
    segment = msgspec.UNSET if bucket.segment is None else bucket.segment
    return DrawnCandidate(
        bucket.name, bucket.candidate, dict(bucket.values), bucket.propensity, bucket.arm, reason, segment
    )


async def _signing_key(call: HttpRequest, policy: PublishedPolicy) -> Headers:
    """Return the Cache-Control header, and the signing key of exposures if the caller may have it."""
    if not policy.signed or not call.may(("evaluate",), policy.study):
        return ((b"cache-control", b"no-cache"),)
    key = await call.run(lambda: call.service.signing_key(policy.study))  # the first call reads the store
    return ((SIGNING_KEY, key.encode()), (b"cache-control", b"no-store"))


ResponseParts = tuple[bytes, dict[BucketKey, bytes]]
_parts_cache: dict[str, tuple[PublishedPolicy, ResponseParts]] = {}


def _response_parts(policy: PublishedPolicy) -> ResponseParts:
    """Return the start of an assign response and its end by bucket; encoded once per policy."""
    cached = _parts_cache.get(policy.study)
    if cached is None or cached[0] is not policy:
        head = b'{"study":%b,"version":%d,"round":%d,"unit":' % (encode(policy.study), policy.version, policy.round)
        parts = {bucket_key(bucket): encode(describe_bucket(policy, bucket))[1:-1] for bucket in list_buckets(policy)}
        cached = _parts_cache[policy.study] = (policy, (head, parts))
    return cached[1]


def _matches(etag: str, policy: PublishedPolicy) -> bool:
    """Return whether an If-None-Match header contains this policy."""
    if etag == f'"{policy.checksum}"':
        return True
    tags = [tag.strip().removeprefix("W/") for tag in etag.split(",")]
    return "*" in tags or f'"{policy.checksum}"' in tags


def _wait_seconds(call: HttpRequest) -> float:
    return call.duration("wait", call.query("wait").get("wait", 0.0), 0.0, MAX_WAIT_SECONDS)
