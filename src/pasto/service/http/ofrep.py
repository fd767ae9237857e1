"""Flags of the OpenFeature Remote Evaluation Protocol: a study is an object flag, each of its parameters a flag."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from pasto.errors import InputError, LifecycleError, StoreError, UnknownStudyError
from pasto.records import Value
from pasto.service.http.body import check_depth
from pasto.service.http.policies import reason
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import JSON, HttpResponse, encode
from pasto.service.http.schemas import FlagRequest
from pasto.space import Candidates, Space
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

REQUEST = msgspec.json.Decoder(FlagRequest)
PLAIN = msgspec.json.Decoder()
CODES = {404: "FLAG_NOT_FOUND", 400: "PARSE_ERROR", 415: "PARSE_ERROR"}


@dataclass(frozen=True, slots=True)
class FlagContextError(Exception):
    """A request that the protocol has its own word for."""

    code: str
    details: str


async def evaluate_flag(call: HttpRequest) -> HttpResponse:
    """One flag for one unit."""
    key = call.path("key")
    try:
        unit = await _unit(call)
        name, _, parameter = key.partition(".")
        policy = await _policy(call, name)
        flags = _written(call, policy).get(parameter)
        if flags is None or key == f"{name}.":
            raise FlagContextError(
                "FLAG_NOT_FOUND", f"there is no flag {key[:100]!r}: a flag is a study, or study.parameter"
            )
        cell = _draw(policy, unit)
    except FlagContextError as unfit:
        return _error(404 if unfit.code == "FLAG_NOT_FOUND" else 400, unfit.code, unfit.details, key)
    if call.settings.ofrep_exposures != "none":
        call.context.exposures.add(policy, unit, cell, call.key_prefix)
    call.context.meters.decisions(name, "ofrep")
    return HttpResponse(200, flags[cell.arm, cell.candidate])


async def evaluate_flags(call: HttpRequest) -> HttpResponse:
    """Every flag for one unit; 304 where the caller has them."""
    try:
        unit = await _unit(call)
        policies = [policy for name in sorted(call.service.board.names()) for policy in _serving(call, name)]
        cells = [_draw(policy, unit) for policy in policies]
    except FlagContextError as unfit:
        return _error(400, unfit.code, unfit.details)
    digest = hashlib.sha256(unit.encode())
    for policy in policies:
        digest.update(policy.checksum.encode())
    tag = f'"{digest.hexdigest()[:32]}"'
    if call.settings.ofrep_exposures == "all":
        for policy, cell in zip(policies, cells, strict=True):
            call.context.exposures.add(policy, unit, cell, call.key_prefix)
    if tag in (call.header(b"if-none-match") or ""):
        return HttpResponse(304, b"", ((b"etag", tag.encode()),))
    flags = [
        flags[cell.arm, cell.candidate]
        for policy, cell in zip(policies, cells, strict=True)
        for flags in _written(call, policy).values()
    ]
    for policy in policies:
        call.context.meters.decisions(policy.study, "ofrep")
    return HttpResponse(200, b'{"flags":[' + b",".join(flags) + b"]}", (*JSON, (b"etag", tag.encode())))


def told(found: HttpResponse) -> HttpResponse:
    """Another error of the service in the protocol's own form; whoever may not pass is told nothing."""
    if found.status in (401, 403):
        return HttpResponse(found.status, b"", tuple(each for each in found.headers if each[0] != b"content-type"))
    message = PLAIN.decode(found.body)["error"]["message"]
    extra = tuple(each for each in found.headers if each not in JSON)
    return _error(found.status, CODES.get(found.status, "GENERAL"), message, headers=extra)


def _error(
    status: int, code: str, details: str, key: str | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> HttpResponse:
    body = {"errorCode": code, "errorDetails": details}
    return HttpResponse(status, encode({"key": key, **body} if key is not None else body), JSON + headers)


async def _unit(call: HttpRequest) -> str:
    """The targeting key of the request's context."""
    body = await call.body()

    def read() -> FlagRequest | None:
        check_depth(body, call.settings.depth_limit)
        return REQUEST.decode(body) if body else None

    try:
        asked = await call.reading(body, read)
    except msgspec.ValidationError as error:
        raise FlagContextError("INVALID_CONTEXT", f"the evaluation context cannot be read: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FlagContextError("PARSE_ERROR", f"the body is no JSON: {error}") from None
    context = None if asked is None else asked.context
    unit = None if context is None or context is msgspec.UNSET else context.targetingKey
    if unit is None or unit is msgspec.UNSET or unit == "":
        raise FlagContextError("TARGETING_KEY_MISSING", "the context needs a targetingKey: the unit to decide for")
    if not isinstance(unit, str):
        raise FlagContextError("INVALID_CONTEXT", f"the targetingKey must be a string, got {type(unit).__name__}")
    return unit


async def _policy(call: HttpRequest, name: str) -> PublishedPolicy:
    try:
        return await call.policy(name)
    except (UnknownStudyError, LifecycleError) as error:
        raise FlagContextError("FLAG_NOT_FOUND", str(error)) from None


def _serving(call: HttpRequest, name: str) -> Iterator[PublishedPolicy]:
    """The study's policy, where it has one."""
    try:
        yield call.service.board.current(name)
    except (UnknownStudyError, LifecycleError, StoreError):
        return


def _draw(policy: PublishedPolicy, unit: str) -> Bucket:
    try:
        return policy.draw(unit)
    except InputError as error:
        raise FlagContextError("INVALID_CONTEXT", f"the targetingKey does not do: {error}") from None


Written = dict[str, dict[tuple[str, int], bytes]]
_kept: dict[str, tuple[PublishedPolicy, Written]] = {}


def _written(call: HttpRequest, policy: PublishedPolicy) -> Written:
    """Every answer that a policy can give, by parameter ("" for all of them as an object) and cell, written once."""
    kept = _kept.get(policy.study)
    if kept is None or kept[0] is not policy:
        spec = call.service.board.standing(policy.study).spec
        kept = _kept[policy.study] = (policy, dict(_answers(policy, _floats(spec.candidates))))
    return kept[1]


def _answers(policy: PublishedPolicy, floats: frozenset[str]) -> Iterator[tuple[str, dict[tuple[str, int], bytes]]]:
    values = {cell.candidate: _steady(cell.values, floats) for cell in policy.cells}
    for parameter in ("", *policy.baseline.values):
        key = f"{policy.study}.{parameter}" if parameter else policy.study
        yield (
            parameter,
            {
                (cell.arm, cell.candidate): encode(
                    {
                        "key": key,
                        "value": values[cell.candidate][parameter] if parameter else values[cell.candidate],
                        "reason": reason(policy),
                        "variant": cell.name,
                        "metadata": {
                            "study": policy.study,
                            "candidate": cell.name,
                            "propensity": cell.propensity,
                            "round": policy.round,
                            "version": policy.version,
                            "arm": cell.arm,
                        },
                    }
                )
                for cell in policy.cells
            },
        )


def _floats(candidates: Candidates | Space) -> frozenset[str]:
    """The parameters that some candidate of the whole study gives a fraction, whether it is being served or not.

    >>> sorted(_floats(Candidates.from_rows([{"weight": 1, "depth": 3}, {"weight": 0.5, "depth": 4}])))
    ['weight']
    """
    if isinstance(candidates, Space):
        columns = {name: parameter.levels(2) for name, parameter in candidates.parameters.items()}
    else:
        columns = dict(zip(candidates.parameters, zip(*candidates.table, strict=True), strict=True))
    return frozenset(name for name, values in columns.items() if any(isinstance(value, float) for value in values))


def _steady(values: Mapping[str, Value], floats: frozenset[str]) -> dict[str, Value]:
    """Values of one type a parameter, whoever is drawn: a client that asks for a float refuses 1 and takes 1.0.

    >>> _steady({"weight": 1, "depth": 3}, frozenset({"weight"}))
    {'weight': 1.0, 'depth': 3}
    """
    return {name: float(value) if name in floats else value for name, value in values.items()}
