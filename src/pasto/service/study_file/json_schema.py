"""JSON Schema of study files, made from the table of fields; editors complete and check YAML with it."""

from __future__ import annotations

from typing import Any

from pasto.document_validation import Field
from pasto.service.study_file.loader import read_document
from pasto.service.study_file.schema import SECTIONS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ONE_OF = ("one of two", "one of three")
_NO_DEFAULT = ("required", "—", *_ONE_OF)


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a study file.

    It describes names, kinds and limits of the fields. Rules that join several fields are only in the parser.

    >>> build_json_schema()["$defs"]["rounds"]["properties"]["every"]["examples"]
    ['30min']
    """
    sections = dict.fromkeys(field.section for field in SECTIONS)
    return {
        "$schema": DIALECT,
        "title": "PASTO study file",
        "description": "A study: what may be served, what is measured, what to raise and what must hold.",
        **_section_schema(""),
        "$defs": {section: _section_schema(section) for section in sections if section},
    }


def _section_schema(section: str) -> dict[str, Any]:
    fields = SECTIONS.section(section)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _field_schema(field) for field in fields},
        "additionalProperties": False,
    }
    required = [field.name for field in fields if field.default == "required"]
    if required:
        schema["required"] = required
    alternatives = [{"required": [field.name]} for field in fields if field.default in _ONE_OF]
    if alternatives:
        schema["oneOf"] = alternatives
    return schema


def _field_schema(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {**field.kind.schema, "description": field.meaning, "examples": [_value(field.example)]}
    if field.default not in _NO_DEFAULT and (" " not in field.default or field.default[0] in "{["):
        schema["default"] = _value(field.default)
    return schema


def _value(text: str) -> Any:
    """Return the value of a piece of YAML."""
    return read_document(f"value: {text}", "yaml")["value"]
