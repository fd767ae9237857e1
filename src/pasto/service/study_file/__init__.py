"""Study files: their fields, their parser and the studies that they describe."""

from pasto.service.study_file.json_schema import build_json_schema
from pasto.service.study_file.loader import EXAMPLE, load_document, load_spec, read_document, read_spec
from pasto.service.study_file.parser import parse_spec, upgrade_document
from pasto.service.study_file.schema import FIELDS
from pasto.service.study_file.spec import GuardrailLevel, GuardrailSpec, RoundsSpec, StudySpec, TrafficSpec

__all__ = [
    "EXAMPLE",
    "FIELDS",
    "GuardrailLevel",
    "GuardrailSpec",
    "RoundsSpec",
    "StudySpec",
    "TrafficSpec",
    "build_json_schema",
    "load_document",
    "load_spec",
    "parse_spec",
    "read_document",
    "read_spec",
    "upgrade_document",
]
