"""Layers: intervals of a hash line that studies get when they are created, so that no two of them share a unit.

A study holds one interval, in millionths of the line. It stays while the study runs, and is free when the study is
archived or its draft is deleted. A larger share grows into free neighbouring space, and a smaller one keeps the start,
so units stay with their study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from pasto.errors import LayerShareError, StudyFileError
from pasto.service.study_file.spec import LAYER_PARTS, LayerSpec, plain
from pasto.store import LayerSliceRow

Interval = tuple[int, int]
"""Start and end, in millionths of a layer."""


class LayerSliceRecord(Struct, frozen=True):
    """Interval of a layer that a study holds, in shares of the layer."""

    study: str
    state: str
    start: float
    until: float


class LayerRecord(Struct, frozen=True):
    """Layer with its studies."""

    name: str
    unit: str
    """Unit that its studies assign."""
    free: float
    """Share that no study holds."""
    largest_free: float
    """Share of the longest free interval: the most that a new study can get."""
    slices: tuple[LayerSliceRecord, ...]
    """Intervals by start."""


def describe_layers(slices: Iterable[LayerSliceRow]) -> list[LayerRecord]:
    """Return the layers of slices that are sorted by layer and start."""
    layers = []
    for name, group in groupby(slices, lambda row: row.layer):
        rows = tuple(group)
        gaps = find_gaps(rows)
        layers.append(
            LayerRecord(
                name,
                rows[0].unit,
                sum(until - start for start, until in gaps) / LAYER_PARTS,
                max((until - start for start, until in gaps), default=0) / LAYER_PARTS,
                tuple(
                    LayerSliceRecord(row.study, row.state, row.start / LAYER_PARTS, row.until / LAYER_PARTS)
                    for row in rows
                ),
            )
        )
    return layers


def find_gaps(slices: Iterable[LayerSliceRow]) -> list[Interval]:
    """Return the free intervals between slices of one layer that are sorted by start.

    >>> find_gaps([LayerSliceRow("home", "user", 100_000, 400_000), LayerSliceRow("home", "user", 400_000, 900_000)])
    [(0, 100000), (900000, 1000000)]
    """
    gaps, end = [], 0
    for row in slices:
        if row.start > end:
            gaps.append((end, row.start))
        end = max(end, row.until)
    return [*gaps, (end, LAYER_PARTS)] if end < LAYER_PARTS else gaps


def allot_slice(
    layer: LayerSpec, unit: str, slices: Sequence[LayerSliceRow], present: LayerSliceRow | None = None
) -> LayerSliceRow:
    """Return the slice of a study in a layer; StudyFileError if its share is not free.

    `slices` are those of all other studies, by layer and start. `present` is the slice that the study holds in this
    layer, if it holds one: the new slice contains it or is part of it. A new study gets the shortest free interval that
    is long enough.

    >>> taken = [LayerSliceRow("home", "user", 0, 400_000, "feed", "learning")]
    >>> allot_slice(LayerSpec("home", 300_000), "user", taken)
    LayerSliceRow(layer='home', unit='user', start=400000, until=700000, study='', state='')
    >>> allot_slice(LayerSpec("home", 700_000), "user", taken)
    Traceback (most recent call last):
    ...
    pasto.errors.LayerShareError: layer.share is 70%, and layer home has 60% free: 40% to 100%; archive or shrink ...
    """
    others = [row for row in slices if row.layer == layer.name]
    if others and others[0].unit != unit:
        raise StudyFileError(
            {
                "unit": f"is {unit}, and the studies of layer {layer.name} assign by {others[0].unit}; a layer keeps "
                "units of one kind apart, so write the same unit or another layer"
            }
        )
    gaps = find_gaps(others)
    if present is not None:
        start, until = _resize(layer, (present.start, present.until), gaps, others)
    elif layer.start is not None:
        start, until = layer.start, layer.start + layer.parts
        if not any(low <= start and until <= high for low, high in gaps):
            raise StudyFileError(
                {
                    "layer.start": f"is {_percent(start)}, and the interval up to {_percent(until)} is not free; "
                    f"{_describe_gaps(layer.name, gaps)}; leave start out, and the service chooses a free interval"
                }
            )
    else:
        fitting = [gap for gap in gaps if gap[1] - gap[0] >= layer.parts]
        if not fitting:
            raise LayerShareError(_describe_shortage(layer, gaps), _list_studies(others))
        start = min(fitting, key=lambda gap: (gap[1] - gap[0], gap[0]))[0]
        until = start + layer.parts
    return LayerSliceRow(layer.name, unit, start, until)


def _resize(layer: LayerSpec, present: Interval, gaps: Sequence[Interval], others: Sequence[LayerSliceRow]) -> Interval:
    """Return an interval that contains the present one or is part of it."""
    start, until = present
    low, high = next(gap for gap in gaps if gap[0] <= start and until <= gap[1])
    if layer.parts <= until - start:
        return start, start + layer.parts
    if high - low < layer.parts:
        raise LayerShareError(
            f"is {_percent(layer.parts)}, and the study has {_percent(until - start)} of layer "
            f"{layer.name} with {_percent(high - low - until + start)} free next to it. An interval cannot be "
            "moved while the study runs, because its units would change; archive or shrink {}, or ask for at most "
            f"{_percent(high - low)}",
            _list_studies(row for row in others if row.until == low or row.start == high),
        )
    until = min(high, start + layer.parts)
    return until - layer.parts, until


def _describe_shortage(layer: LayerSpec, gaps: Sequence[Interval]) -> str:
    parts = f"is {_percent(layer.parts)}, and {_describe_gaps(layer.name, gaps)}"
    if sum(until - start for start, until in gaps) >= layer.parts:
        longest = max(until - start for start, until in gaps)
        parts += f"; a study needs one free interval, and the longest has {_percent(longest)}"
    return parts + "; archive or shrink one of: {}"


def _describe_gaps(layer: str, gaps: Sequence[Interval]) -> str:
    if not gaps:
        return f"layer {layer} has nothing free"
    free = _percent(sum(until - start for start, until in gaps))
    return f"layer {layer} has {free} free: " + ", ".join(f"{_percent(low)} to {_percent(high)}" for low, high in gaps)


def _list_studies(slices: Iterable[LayerSliceRow]) -> str:
    return ", ".join(f"{row.study} ({_percent(row.until - row.start)}, {row.state})" for row in slices)


def _percent(parts: int) -> str:
    """Return millionths as a percentage, in full.

    >>> _percent(400_000), _percent(125), _percent(333_333)
    ('40%', '0.0125%', '33.3333%')
    """
    return f"{plain(parts / 10_000)}%"
