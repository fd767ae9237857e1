"""The study file: what a study may serve, what it measures, what it is for."""

from pasto.service.study_file.amounts import GuardrailLevel
from pasto.service.study_file.loader import EXAMPLE, load_spec, read_document, read_spec
from pasto.service.study_file.parser import parse_spec
from pasto.service.study_file.schema import FIELDS
from pasto.service.study_file.spec import GuardrailSpec, RoundsSpec, StudySpec, TrafficSpec
from pasto.service.study_file.upgrade import upgrade_document

__all__ = [
    "EXAMPLE",
    "FIELDS",
    "GuardrailLevel",
    "GuardrailSpec",
    "RoundsSpec",
    "StudySpec",
    "TrafficSpec",
    "load_spec",
    "parse_spec",
    "read_document",
    "read_spec",
    "upgrade_document",
]
