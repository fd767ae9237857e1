"""OpenAPI document, generated from the table of routes and the schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from pasto import __version__
from pasto.service.http.responses import ErrorBody
from pasto.service.http.routes import ADMIN, ROUTES, Route
from pasto.service.http.schemas import FlagError

REFERENCE = "#/components/schemas/{name}"
PATH_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "name": {"type": "string", "description": "Name of the study.", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
    "prefix": {"type": "string", "description": "Public part of the key.", "pattern": "^[0-9a-f]{12}$"},
    "webhook": {"type": "string", "description": "Name of the webhook.", "pattern": "^[a-z][a-z0-9_]{0,39}$"},
    "key": {"type": "string", "description": "study, or study.parameter.", "pattern": "^[A-Za-z0-9_.-]{1,200}$"},
}
ID = {"type": "string", "minLength": 1, "maxLength": 128}
UNIT = {"type": "string", "minLength": 1, "maxLength": 256}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53}
COUNTS = {"type": "object", "additionalProperties": COUNT}
STREAM = {"source": {"type": "string", "minLength": 1, "maxLength": 128}, "sequence": COUNT}


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
                "version": COUNT,
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
                "version": COUNT,
                "candidate": {"type": "string"},
            },
        ),
        _event(
            "exposure_counts",
            ["source", "sequence", "version", "assigned", "dropped"],
            {"version": COUNT, "assigned": COUNTS, "dropped": COUNTS},
        ),
    ]
}
WHO: dict[str, Any] = {
    "name": "Pasto-Who",
    "in": "header",
    "description": "Name of the caller for the audit log, after the name of its key; percent-encoded if not ASCII.",
    "schema": {"type": "string", "pattern": "^[ -$&-~]{1,100}$"},
}
POLICY = {
    "type": "object",
    "description": "Published policy, byte for byte.",
    "required": ["format", "study", "version", "round", "state", "mode", "salt", "baseline", "candidates", "cells"],
    "properties": {
        "signed": {"type": "boolean", "description": "Whether exposures need a signature."},
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
"""Request bodies with several media types, by the names used in the table of routes."""


@cache
def encode_document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(build_document())


def build_document() -> dict[str, Any]:
    """Build the document.

    >>> sorted(build_document()["paths"]["/v1/studies"])
    ['get', 'post']
    """
    schemas = list(dict.fromkeys(kind for route in ROUTES for kind in _route_schemas(route)))
    shapes, components = msgspec.json.schema_components([*schemas, ErrorBody, FlagError], ref_template=REFERENCE)
    components = msgspec.json.decode(msgspec.json.encode(components))  # defaults of records become JSON
    references = dict(zip([*schemas, ErrorBody, FlagError], shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references)
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


def _route_schemas(route: Route) -> list[Any]:
    kinds = [kind for each in route.responses.values() for kind in (each if isinstance(each, tuple) else (each,))]
    named = [kind for kind in kinds if kind is not None and not isinstance(kind, str)]
    return named if route.request is None or isinstance(route.request, str) else [route.request, *named]


def _operation(route: Route, references: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": {str(status): _response(kind, references) for status, kind in route.responses.items()},
    }
    error = references[FlagError] if route.errors else references[ErrorBody]
    operation["responses"]["default"] = {
        "description": "An error.",
        "content": {"application/json": {"schema": error}},
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS[name]}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ] + [
        {"name": field.name, "in": "query", "description": field.meaning, "schema": field.schema}
        for field in route.query
    ]
    if route.scopes == ADMIN and route.method != "GET":
        parameters.append(WHO)
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        content = (
            BODIES[route.request]
            if isinstance(route.request, str)
            else {"application/json": {"schema": references[route.request]}}
        )
        operation["requestBody"] = {"required": not route.optional, "content": content}
    if route.scopes:
        operation["security"] = [{"key": []}]
        operation["description"] = f"Needs the scope {' or '.join(route.scopes)}{_describe_reach(route)}."
    return operation


def _describe_reach(route: Route) -> str:
    """Return for which studies a caller of a route needs its scope."""
    if "{name}" in route.path:
        return " for the study"
    return " for one study at least" if route.somewhere else " for all studies"


def _response(kind: Any, references: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    if kind is None:
        return {"description": "Not modified."}
    if isinstance(kind, str) and "/" in kind:
        return {"description": "Text.", "content": {kind: {"schema": {"type": "string"}}}}
    schema: dict[str, Any]
    further: dict[str, Any] = {}
    if isinstance(kind, tuple):
        further = {each: {"schema": {"type": "string"}} for each in kind if isinstance(each, str)}
        schema = {"anyOf": [references[each] for each in kind if not isinstance(each, str)]}
    else:
        schema = {"$ref": REFERENCE.format(name=kind)} if isinstance(kind, str) else references[kind]
    return {"description": "Success.", "content": {"application/json": {"schema": schema}, **further}}


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z]+", route.path.replace("/v1/", "/").lower())
    return "_".join([route.method.lower(), *words])
