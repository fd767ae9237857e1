"""OpenFeature Remote Evaluation Protocol (OFREP): a study is an object flag, and each of its parameters is a flag."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from pasto.errors import InputError, LifecycleError, StoreError, UnknownStudyError
from pasto.service.http.body import check_depth
from pasto.service.http.policies import BucketKey, assignment_reason, bucket_key, list_buckets
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import JSON, HttpResponse, encode
from pasto.service.http.schemas import FlagRequest
from pasto.service.ingest import DrawnUnit
from pasto.space import Candidates, Space
from pasto_sdk.enrolment import NO_ATTRIBUTES, Attributes
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket, Value

REQUEST = msgspec.json.Decoder(FlagRequest)
JSON_DECODER = msgspec.json.Decoder()
CODES = {404: "FLAG_NOT_FOUND", 400: "PARSE_ERROR", 415: "PARSE_ERROR"}


@dataclass(frozen=True, slots=True)
class FlagContextError(Exception):
    """Error for which the protocol has its own code."""

    code: str
    details: str


async def evaluate_flag(call: HttpRequest) -> HttpResponse:
    """Evaluate a flag for a unit."""
    key = call.path("key")
    try:
        unit, attributes = await _read_context(call)
        name, _, parameter = key.partition(".")
        policy = await _read_policy(call, name)
        flags = _flag_bodies(call, policy).get(parameter)
        if flags is None or key == f"{name}.":
            raise FlagContextError(
                "FLAG_NOT_FOUND", f"there is no flag {key[:100]!r}; a flag is named study, or study.parameter"
            )
        bucket = _draw_bucket(policy, unit, attributes)
    except FlagContextError as error:
        return _error_response(404 if error.code == "FLAG_NOT_FOUND" else 400, error.code, error.details, key)
    if bucket is policy.not_enrolled:
        call.context.metrics.count_not_enrolled(name, "ofrep")
    elif call.settings.ofrep_exposures != "none":
        drawn = DrawnUnit(unit, bucket, policy.find_cluster(attributes))
        call.context.exposures.add(policy, drawn, call.key_prefix)
    call.context.metrics.count_decisions(name, "ofrep")
    return HttpResponse(200, flags[bucket_key(bucket)])


async def evaluate_flags(call: HttpRequest) -> HttpResponse:
    """Evaluate all flags for a unit; 304 if the caller has them."""
    try:
        unit, attributes = await _read_context(call)
        policies = [
            policy
            for name in sorted(call.service.policy_cache.names())
            if call.may(("evaluate",), name)
            for policy in _current_policies(call, name)
        ]
        cells = [_draw_bucket(policy, unit, attributes) for policy in policies]
    except FlagContextError as error:
        return _error_response(400, error.code, error.details)
    digest = hashlib.sha256(unit.encode())
    for policy, bucket in zip(policies, cells, strict=True):
        digest.update(policy.checksum.encode())
        digest.update((policy.find_cluster(attributes) or "").encode())
        if bucket is policy.not_enrolled:
            digest.update(b"not_enrolled")
        elif bucket.segment is not None:
            digest.update(b"%d:%b" % (len(bucket.segment), bucket.segment.encode()))
    etag = f'"{digest.hexdigest()[:32]}"'
    if call.settings.ofrep_exposures == "all":
        for policy, bucket in zip(policies, cells, strict=True):
            if bucket is not policy.not_enrolled:
                drawn = DrawnUnit(unit, bucket, policy.find_cluster(attributes))
                call.context.exposures.add(policy, drawn, call.key_prefix)
    if etag in (call.header(b"if-none-match") or ""):
        return HttpResponse(304, b"", ((b"etag", etag.encode()),))
    flags = [
        flags[bucket_key(bucket)]
        for policy, bucket in zip(policies, cells, strict=True)
        for flags in _flag_bodies(call, policy).values()
    ]
    for policy, bucket in zip(policies, cells, strict=True):
        call.context.metrics.count_decisions(policy.study, "ofrep")
        if bucket is policy.not_enrolled:
            call.context.metrics.count_not_enrolled(policy.study, "ofrep")
    return HttpResponse(200, b'{"flags":[' + b",".join(flags) + b"]}", (*JSON, (b"etag", etag.encode())))


def convert_error(response: HttpResponse) -> HttpResponse:
    """Convert an error response to the protocol's form; 401 and 403 have no body."""
    if response.status in (401, 403):
        return HttpResponse(
            response.status, b"", tuple(header for header in response.headers if header[0] != b"content-type")
        )
    message = JSON_DECODER.decode(response.body)["error"]["message"]
    extra = tuple(header for header in response.headers if header not in JSON)
    return _error_response(response.status, CODES.get(response.status, "GENERAL"), message, headers=extra)


def _error_response(
    status: int, code: str, details: str, key: str | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> HttpResponse:
    body = {"errorCode": code, "errorDetails": details}
    return HttpResponse(status, encode({"key": key, **body} if key is not None else body), JSON + headers)


async def _read_context(call: HttpRequest) -> tuple[str, Attributes]:
    """Return the targeting key of the request's context, and the whole context as attributes."""
    body = await call.body()

    def read() -> FlagRequest | None:
        check_depth(body, call.settings.depth_limit)
        return REQUEST.decode(body) if body else None

    try:
        flag_request = await call.decode(body, read)
    except msgspec.ValidationError as error:
        raise FlagContextError("INVALID_CONTEXT", f"the evaluation context cannot be read: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FlagContextError("PARSE_ERROR", f"the body must be JSON: {error}") from None
    context = None if flag_request is None else flag_request.context
    attributes: Attributes = NO_ATTRIBUTES if context is None or context is msgspec.UNSET else context
    unit = attributes.get("targetingKey")
    if unit is None or unit == "":
        raise FlagContextError("TARGETING_KEY_MISSING", "the context needs a targetingKey, the unit to decide for")
    if not isinstance(unit, str):
        raise FlagContextError("INVALID_CONTEXT", f"the targetingKey must be a string, got {type(unit).__name__}")
    return unit, attributes


async def _read_policy(call: HttpRequest, name: str) -> PublishedPolicy:
    try:
        if not call.may(("evaluate",), name):
            raise UnknownStudyError.named(name)
        return await call.drawn_policy(name)
    except (UnknownStudyError, LifecycleError) as error:
        raise FlagContextError("FLAG_NOT_FOUND", str(error)) from None


def _current_policies(call: HttpRequest, name: str) -> Iterator[PublishedPolicy]:
    """Yield the study's policy, if it has one."""
    try:
        yield call.service.policy_cache.drawn(name)
    except (UnknownStudyError, LifecycleError, StoreError):
        return


def _draw_bucket(policy: PublishedPolicy, unit: str, attributes: Attributes) -> Bucket:
    try:
        return policy.draw(unit, attributes)
    except InputError as error:
        raise FlagContextError("INVALID_CONTEXT", f"the targetingKey is not a valid unit: {error}") from None


FlagBodies = dict[str, dict[BucketKey, bytes]]
_bodies_cache: dict[str, tuple[PublishedPolicy, FlagBodies]] = {}


def _flag_bodies(call: HttpRequest, policy: PublishedPolicy) -> FlagBodies:
    """Return all response bodies of a policy by parameter and bucket; "" is the object of all parameters."""
    cached = _bodies_cache.get(policy.study)
    if cached is None or cached[0] is not policy:
        spec = call.service.policy_cache.snapshot(policy.study).spec
        cached = _bodies_cache[policy.study] = (policy, dict(_encode_flags(policy, _float_parameters(spec.candidates))))
    return cached[1]


def _encode_flags(policy: PublishedPolicy, floats: frozenset[str]) -> Iterator[tuple[str, dict[BucketKey, bytes]]]:
    buckets = list_buckets(policy)
    values = {bucket.candidate: _with_stable_types(bucket.values, floats) for bucket in buckets}
    for parameter in ("", *policy.baseline.values):
        key = f"{policy.study}.{parameter}" if parameter else policy.study
        yield (
            parameter,
            {
                bucket_key(bucket): encode(
                    {
                        "key": key,
                        "value": values[bucket.candidate][parameter] if parameter else values[bucket.candidate],
                        "reason": assignment_reason(policy, bucket),
                        "variant": bucket.name,
                        "metadata": {
                            "study": policy.study,
                            "candidate": bucket.name,
                            "propensity": bucket.propensity,
                            "round": policy.round,
                            "version": policy.version,
                            "arm": bucket.arm,
                            **({} if bucket.segment is None else {"segment": bucket.segment}),
                        },
                    }
                )
                for bucket in buckets
            },
        )


def _float_parameters(candidates: Candidates | Space) -> frozenset[str]:
    """Return the parameters that are fractions in any candidate of the study, served or not.

    >>> sorted(_float_parameters(Candidates.from_rows([{"weight": 1, "depth": 3}, {"weight": 0.5, "depth": 4}])))
    ['weight']
    """
    if isinstance(candidates, Space):
        columns = {name: parameter.levels(2) for name, parameter in candidates.parameters.items()}
    else:
        columns = dict(zip(candidates.parameters, zip(*candidates.table, strict=True), strict=True))
    return frozenset(name for name, values in columns.items() if any(isinstance(value, float) for value in values))


def _with_stable_types(values: Mapping[str, Value], floats: frozenset[str]) -> dict[str, Value]:
    """Convert values so that each parameter has one type: a client that asks for a float rejects 1.

    >>> _with_stable_types({"weight": 1, "depth": 3}, frozenset({"weight"}))
    {'weight': 1.0, 'depth': 3}
    """
    return {name: float(value) if name in floats else value for name, value in values.items()}
