"""Measuring in PostgreSQL."""

from __future__ import annotations

from typing import Any

from pasto.measure.engines.request import Request
from pasto.measure.moments import Moments


def measure(connection: Any, request: Request) -> tuple[Moments, ...]:
    """The moments of every cell, sorted by arm and candidate."""
    raise NotImplementedError
