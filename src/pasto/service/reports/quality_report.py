"""Quality report: late, lost, clipped, rejected and uncredited events, and the checks of the data."""

from __future__ import annotations

from collections.abc import Sequence

from pasto.inference.round_data import MeasuredRound
from pasto.report.data_records import AccountingReport, ClippedUnits, LateEvents, QualityReport, RejectedEvents
from pasto.report.lift_records import SampleRatioReport
from pasto.report.records import BlendRecord
from pasto.service.study_file import StudySpec


def report_quality(
    spec: StudySpec,
    rounds: Sequence[MeasuredRound],
    accounting: AccountingReport | None,
    answer: BlendRecord | None,
    sample_ratio: SampleRatioReport | None,
) -> QualityReport:
    """Report the quality of a study's data; without `accounting`, no event has been counted yet."""
    units = sum(entry.units for entry in rounds)
    certificate = None if answer is None else answer.certificate
    understated_errors = {} if certificate is None else certificate.understated_errors
    if accounting is None:
        return QualityReport(
            units=units,
            events=0,
            late=LateEvents(0, None),
            clipped={},
            uncredited=0,
            excluded=0,
            rejected=RejectedEvents(),
            missing=0,
            departures=(),
            gap=0,
            sample_ratio=sample_ratio,
            understated_errors=understated_errors,
        )
    events = accounting.events.exposures + accounting.events.metrics
    late = accounting.late.events
    return QualityReport(
        units=units,
        events=events,
        late=LateEvents(late, late / events if events else None),
        clipped=_count_clipped(spec, accounting, units),
        uncredited=accounting.events.uncredited,
        excluded=accounting.events.excluded,
        rejected=accounting.rejected,
        missing=accounting.senders.missing,
        departures=accounting.departures,
        gap=sum(version.gap for version in accounting.versions),
        sample_ratio=sample_ratio,
        understated_errors=understated_errors,
    )


def _count_clipped(spec: StudySpec, accounting: AccountingReport, units: int) -> dict[str, ClippedUnits]:
    if not units:
        return {}
    counts = {column.name: accounting.clipped.get(column.name, 0) for column in spec.columns}
    return {name: ClippedUnits(count, count / units) for name, count in counts.items()}
