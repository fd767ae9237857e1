"""A report told to people: in sections, as text, and as one page that needs nothing beside it."""

from pasto.report.telling.answered import what_if
from pasto.report.telling.page import page
from pasto.report.telling.sections import Section, sections
from pasto.report.telling.text import text

__all__ = ["Section", "page", "sections", "text", "what_if"]
