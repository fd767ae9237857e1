"""The OpenAPI document, made from the table of routes and the records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from pasto import __version__
from pasto.service.http.routes import ADMIN, ROUTES, Route
from pasto.service.http.schemas import ErrorBody, FlagError

REFERENCE = "#/components/schemas/{name}"
NAMES: Mapping[str, Mapping[str, Any]] = {
    "name": {"type": "string", "description": "The study's name.", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
    "prefix": {"type": "string", "description": "The key's public part.", "pattern": "^[0-9a-f]{12}$"},
    "key": {"type": "string", "description": "A study, or study.parameter.", "pattern": "^[A-Za-z0-9_.-]{1,200}$"},
}
ID = {"type": "string", "minLength": 1, "maxLength": 128}
UNIT = {"type": "string", "minLength": 1, "maxLength": 256}
WHOLE = {"type": "integer", "minimum": 0, "maximum": 2**53}
COUNTS = {"type": "object", "additionalProperties": WHOLE}
STREAM = {"source": {"type": "string", "minLength": 1, "maxLength": 128}, "sequence": WHOLE}


def _event(kind: str, required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, "id": ID, **properties, **STREAM},
        "required": ["type", "id", *required],
        "additionalProperties": False,
    }


EVENT = {
    "oneOf": [
        _event(
            "exposure",
            ["unit", "version", "candidate"],
            {
                "unit": UNIT,
                "version": WHOLE,
                "candidate": {"type": "string"},
                "fallback": {"type": "boolean"},
                "override": {"type": "boolean"},
                "signature": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            },
        ),
        _event(
            "metric",
            ["unit", "name"],
            {
                "unit": UNIT,
                "name": {"type": "string"},
                "fields": {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean"]}},
                "version": WHOLE,
                "candidate": {"type": "string"},
            },
        ),
        _event(
            "exposure_counts",
            ["source", "sequence", "version", "assigned", "dropped"],
            {"version": WHOLE, "assigned": COUNTS, "dropped": COUNTS},
        ),
    ]
}
WHO: dict[str, Any] = {
    "name": "Pasto-Who",
    "in": "header",
    "description": "Who asks, for the audit log; percent-encoded if it is not ASCII. A key's own name comes before it.",
    "schema": {"type": "string", "pattern": "^[ -$&-~]{1,100}$"},
}
POLICY = {
    "type": "object",
    "description": "The document of a published policy, exactly as it was published.",
    "required": ["format", "study", "version", "round", "state", "mode", "salt", "baseline", "candidates", "cells"],
    "properties": {
        "signed": {"type": "boolean", "description": "Whether the study takes signed exposures only."},
        "sha256": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "The last field: the SHA-256 of the text without it.",
        },
    },
}
BODIES: Mapping[str, Mapping[str, Any]] = {
    "StudyFile": {
        "application/json": {"schema": {"type": "object", "description": "A study file.", "required": ["name"]}},
        "application/yaml": {"schema": {"type": "string"}},
        "application/toml": {"schema": {"type": "string"}},
    },
    "Events": {
        "application/json": {
            "schema": {
                "oneOf": [
                    {"type": "array", "items": {"$ref": REFERENCE.format(name="Event")}},
                    {
                        "type": "object",
                        "properties": {"events": {"type": "array", "items": {"$ref": REFERENCE.format(name="Event")}}},
                        "required": ["events"],
                        "additionalProperties": False,
                    },
                ]
            }
        },
        "application/x-ndjson": {"schema": {"type": "string"}},
    },
}
"""Bodies that have several forms, by the name that the table gives them."""


@cache
def interface() -> bytes:
    """The document, as it is served."""
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """The document as a plain value.

    >>> sorted(document()["paths"]["/v1/studies"])
    ['get', 'post']
    """
    records = list(dict.fromkeys(kind for route in ROUTES for kind in _records(route)))
    shapes, components = msgspec.json.schema_components([*records, ErrorBody, FlagError], ref_template=REFERENCE)
    components = msgspec.json.decode(msgspec.json.encode(components))  # defaults of records become JSON
    found = dict(zip([*records, ErrorBody, FlagError], shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "PASTO",
            "version": __version__,
            "description": "Learn the best blend of settings on live traffic.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Event": EVENT, "Policy": POLICY},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _records(route: Route) -> list[Any]:
    kinds = [kind for each in route.answers.values() for kind in (each if isinstance(each, tuple) else (each,))]
    named = [kind for kind in kinds if kind is not None and not isinstance(kind, str)]
    return named if route.request is None or isinstance(route.request, str) else [route.request, *named]


def _operation(route: Route, found: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _identity(route),
        "summary": route.summary,
        "responses": {str(status): _answer(kind, found) for status, kind in route.answers.items()},
    }
    error = found[FlagError] if route.errors else found[ErrorBody]
    operation["responses"]["default"] = {
        "description": "An error.",
        "content": {"application/json": {"schema": error}},
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": NAMES[name]}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ] + [{"name": each.name, "in": "query", "description": each.meaning, "schema": each.schema} for each in route.query]
    if route.scopes == ADMIN and route.method != "GET":
        parameters.append(WHO)
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        content = (
            BODIES[route.request]
            if isinstance(route.request, str)
            else {"application/json": {"schema": found[route.request]}}
        )
        operation["requestBody"] = {"required": not route.optional, "content": content}
    if route.scopes:
        operation["security"] = [{"key": []}]
        operation["description"] = f"Needs a key with the scope {' or '.join(route.scopes)}."
    return operation


def _answer(kind: Any, found: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    if kind is None:
        return {"description": "Nothing changed."}
    if isinstance(kind, str) and "/" in kind:
        return {"description": "Text.", "content": {kind: {"schema": {"type": "string"}}}}
    schema: dict[str, Any]
    further: dict[str, Any] = {}
    if isinstance(kind, tuple):
        further = {each: {"schema": {"type": "string"}} for each in kind if isinstance(each, str)}
        schema = {"anyOf": [found[each] for each in kind if not isinstance(each, str)]}
    else:
        schema = {"$ref": REFERENCE.format(name=kind)} if isinstance(kind, str) else found[kind]
    return {"description": "Done.", "content": {"application/json": {"schema": schema}, **further}}


def _identity(route: Route) -> str:
    words = re.findall(r"[a-z]+", route.path.replace("/v1/", "/").lower())
    return "_".join([route.method.lower(), *words])
