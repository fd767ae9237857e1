"""Quantities and stop levels of a study, as the statistics take them."""

from __future__ import annotations

from pasto.inference import Quantity, ValueRange
from pasto.inference.guardrail_evidence import Basis, StopLevel
from pasto.metrics import Column
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import GuardrailSpec


def build_quantities(spec: StudySpec) -> dict[str, Quantity]:
    """Return every metric by its columns, ratios as ratios.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> build_quantities(read_spec(EXAMPLE, "yaml"))["like_rate"]
    Quantity(numerator=1, denominator=2)
    """
    places = {column.name: place for place, column in enumerate(spec.columns)}
    return {
        name: Quantity(
            places[metric.numerator.name], None if metric.denominator is None else places[metric.denominator.name]
        )
        for name, metric in spec.metrics.items()
    }


def build_stop_levels(spec: StudySpec) -> tuple[StopLevel, ...]:
    """Return the level at which each guardrail stops the study, with the range of its metric.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> [(level.name, level.value, level.relative) for level in build_stop_levels(read_spec(EXAMPLE, "yaml"))]
    [('like_rate', -0.05, True)]
    """
    metric_quantities = build_quantities(spec)
    stop_levels = []
    for rail in spec.guardrails:
        metric = spec.metrics[rail.metric]
        level = rail.stop_at
        stop_levels.append(
            StopLevel(
                name=rail.name,
                quantity=metric_quantities[rail.metric],
                value=level.number / 100.0 if level.relative else level.number,
                relative=level.relative,
                at_most=not rail.lower,
                within=_range(metric.numerator),
                denominator_within=None if metric.denominator is None else _range(metric.denominator),
                basis=find_stop_basis(spec, rail),
            )
        )
    return tuple(stop_levels)


def find_stop_basis(spec: StudySpec, rail: GuardrailSpec) -> Basis | None:
    """Return the basis on which a stop level in the metric's own units is judged; None for a percentage.

    The basis is the control of the same rounds, if there is one. A level that is not above zero cannot be a share
    of the control, so whole days are judged, as in a study without a control.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> for text in (EXAMPLE, EXAMPLE.replace("stop_at: -5%", "stop_at: 0.01")):
    ...     spec = read_spec(text, "yaml")
    ...     print(find_stop_basis(spec, spec.guardrails[0]))
    None
    control
    """
    if rail.stop_at.relative:
        return None
    return "control" if spec.traffic.control > 0 and rail.stop_at.number > 0 else "days"


def _range(column: Column) -> ValueRange | None:
    if column.low is None or column.high is None:
        return None
    return ValueRange(column.low, column.high)
