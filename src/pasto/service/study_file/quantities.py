"""A study's metrics and guardrails in the words of the statistics: columns, ranges and floors."""

from __future__ import annotations

from pasto.inference import Quantity, ValueRange
from pasto.inference.guardrail_evidence import Basis, StopLevel
from pasto.metrics import Column
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import GuardrailSpec


def quantities(spec: StudySpec) -> dict[str, Quantity]:
    """Every metric by its columns, ratios as ratios.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> quantities(read_spec(EXAMPLE, "yaml"))["like_rate"]
    Quantity(numerator=1, denominator=2)
    """
    places = {column.name: place for place, column in enumerate(spec.columns)}
    return {
        name: Quantity(
            places[metric.numerator.name], None if metric.denominator is None else places[metric.denominator.name]
        )
        for name, metric in spec.metrics.items()
    }


def floors(spec: StudySpec) -> tuple[StopLevel, ...]:
    """Where each guardrail's traffic is pulled, with the range its metric was given.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> [(floor.name, floor.value, floor.relative) for floor in floors(read_spec(EXAMPLE, "yaml"))]
    [('like_rate', -0.05, True)]
    """
    known = quantities(spec)
    found = []
    for rail in spec.guardrails:
        metric = spec.metrics[rail.metric]
        level = rail.stop_at
        found.append(
            StopLevel(
                name=rail.name,
                quantity=known[rail.metric],
                value=level.number / 100.0 if level.relative else level.number,
                relative=level.relative,
                at_most=not rail.lower,
                within=_range(metric.numerator),
                denominator_within=None if metric.denominator is None else _range(metric.denominator),
                basis=floor_basis(spec, rail),
            )
        )
    return tuple(found)


def floor_basis(spec: StudySpec, rail: GuardrailSpec) -> Basis | None:
    """Return what a floor in the metric's own units is judged against; None for a percentage.

    The control of the same rounds, if there is one. A level that is not above zero is not a share of anything, so
    there whole days are judged, as in a study without a control.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> for text in (EXAMPLE, EXAMPLE.replace("stop_at: -5%", "stop_at: 0.01")):
    ...     spec = read_spec(text, "yaml")
    ...     print(floor_basis(spec, spec.guardrails[0]))
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
