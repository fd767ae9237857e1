"""What is asked of an engine: which units of which policy, and which columns."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.measure.definitions import Column


@dataclass(frozen=True, slots=True)
class Request:
    """The units exposed under one policy in a span of the store's sequence, and the columns wanted of them."""

    study: int
    version: int
    after: int
    """The span begins behind this sequence…"""
    until: int
    """…and ends with this one."""
    columns: tuple[Column, ...]
