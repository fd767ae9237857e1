"""Whether a study can give its metrics the time they ask for: windows after exposure, and look-backs before a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pasto.measure import Column, Metric
from pasto.measure.document import Problems
from pasto.measure.spans import written_span
from pasto.service.spec.sourced import Sourced


def check_times(problems: Problems, metrics: Mapping[str, Metric], maturity: float, source: Sourced | None) -> None:
    """Note windows that are not over when a round is learned, and tables that do not say when something happened.

    >>> likes = Metric("likes", Column("likes", "like", None, "count", window=7200.0))
    >>> problems = Problems()
    >>> check_times(problems, {"likes": likes}, 3600.0, None)
    >>> list(problems.found)
    ['metrics.likes.window']
    """
    for path, column in _windows(metrics):
        if column.window is not None and column.window > maturity:
            told, have = written_span(column.window), written_span(maturity)
            problems.add(
                path,
                f"of {told} is longer than rounds.maturity of {have}: units that come at a round's end would be "
                f"measured before their window is over; raise rounds.maturity to {told}, or shorten the window",
            )
    if source is None:
        return
    timed = [path for path, _ in _windows(metrics)]
    timed += [f"metrics.{name}.covariate" for name, metric in metrics.items() if metric.covariate is not None]
    if not timed:
        return
    named = [("source.exposures", source.tables.exposures.time)]
    named += [(f"source.events[{place}]", table.time) for place, table in enumerate(source.tables.events)]
    for path, time in named:
        if time is None:
            problems.add(f"{path}.time", f"is missing; {timed[0]} needs to know when things happened: name the column")


def _windows(metrics: Mapping[str, Metric]) -> Iterator[tuple[str, Column]]:
    """Every column with a window, and where the file states it."""
    for name, metric in metrics.items():
        for place, column in enumerate(metric.columns):
            if column.window is not None:
                half = "" if metric.denominator is None else f".ratio[{place}]"
                yield f"metrics.{name}{half}.window", column
