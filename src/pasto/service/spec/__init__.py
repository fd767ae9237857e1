"""The study file: what a study may serve, what it measures, what it is for."""

from pasto.service.spec.amounts import Level
from pasto.service.spec.example import EXAMPLE
from pasto.service.spec.fields import FIELDS
from pasto.service.spec.parse import parse_spec
from pasto.service.spec.reading import load_spec, read_document, read_spec
from pasto.service.spec.spec import Rail, Rounds, Spec, Traffic

__all__ = [
    "EXAMPLE",
    "FIELDS",
    "Level",
    "Rail",
    "Rounds",
    "Spec",
    "Traffic",
    "load_spec",
    "parse_spec",
    "read_document",
    "read_spec",
]
