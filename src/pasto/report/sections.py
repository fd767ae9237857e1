"""Sections of a report: sentences, tables and the names of drawings, for text and for HTML."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pasto.formatting import (
    UNKNOWN,
    format_confidence,
    format_count,
    format_interval,
    format_lift,
    format_number,
    format_p_value,
    format_percent,
    format_time,
)
from pasto.report.data_quality_records import AccountingReport, QualityReport, SenderLine
from pasto.report.data_quality_text import departure_text
from pasto.report.guardrail_text import (
    SIDE_TEXT,
    basis_text,
    certificate_text,
    own_units_text,
    understated_text,
)
from pasto.report.lift_records import (
    ConfirmationReport,
    IntervalEstimate,
    LearningReport,
    LiftRecord,
    SampleRatioReport,
    WinnerReport,
)
from pasto.report.ramp_text import describe_ramp
from pasto.report.records import (
    BlendRecord,
    BrokenLimit,
    ClosedRoundRecord,
    ClusterReport,
    ConcurrentStudy,
    GuardrailReport,
    HeldRoundRecord,
    Report,
    TradeoffReport,
)
from pasto.report.verdict_records import StudyVerdict
from pasto.report.verdict_text import verdict_table

Row = tuple[str, ...]
MAX_ROWS = 20
"""Candidates or rounds that a table lists."""
MAX_BLENDS = 5
"""Blends that the table of the trade-off lists."""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One part of a report."""

    title: str
    sentences: tuple[str, ...] = ()
    header: Row = ()
    rows: tuple[Row, ...] = ()
    drawing: str | None = None
    """Name of the drawing that belongs here."""


def build_sections(report: Report) -> tuple[ReportSection, ...]:
    """Return the sections of a report that have content.

    >>> [(section.title, section.sentences) for section in build_sections(Report("feed", "draft", 0, 0))]
    [('feed: draft', ())]
    """
    return tuple(_sections(report))


def _sections(report: Report) -> Iterator[ReportSection]:
    yield _opening_section(report)
    if report.verdict is not None:
        yield verdict_section(report.verdict)
    if report.source_problem is not None:
        yield ReportSection("Source", (_UNMEASURED_TEXT,))
    if report.guardrail_monitor.tripped is not None:
        yield ReportSection("Guardrail monitor", (_REARM_TEXT,))
    if report.held:
        yield _held_section(report.held)
    if report.confirmation is not None and report.confirmation.lifts:
        yield from _confirmation_sections(report.confirmation)
    if report.learning is not None and report.learning.lifts:
        yield from _learning_sections(report.learning)
    if report.clusters is not None:
        yield cluster_section(report.clusters)
    if report.answer is not None:
        is_external = report.assigned_by == "external"
        yield _blend_section(report.answer, is_frozen=report.frozen is not None, is_external=is_external)
    if report.guardrails:
        yield _guardrail_section(report.guardrails)
    if report.prices:
        yield ReportSection("Prices", tuple(price.words for price in report.prices))
    if report.trade_off is not None and report.trade_off.blends:
        yield _tradeoff_section(report.trade_off)
    if report.concurrent:
        yield concurrent_section(report.concurrent)
    if report.quality is not None:
        yield quality_section(report.quality)
    if report.accounting is not None:
        yield from _accounting_sections(report.accounting)
    if report.history:
        yield _rounds_section(report.history)


_UNMEASURED_TEXT = "The round stays open and its policy is served until the source can be read; closing is tried again."
_REARM_TEXT = (
    "Everyone is served what the study held. Only `resume` with a reason re-arms it; evidence then starts from zero."
)
_EXTERNAL_TEXT = (
    "Another platform assigns the units, and the candidate that an exposure names counts. The sample ratio checks "
    "that it follows the published shares."
)


CONCURRENT_TEXT = (
    "These studies ran on units of this one at the same time. Each draws units by a hash of its own, so their effects "
    "are in all arms alike, and the comparisons between arms stay valid."
)


def concurrent_section(studies: Sequence[ConcurrentStudy]) -> ReportSection:
    """Return the section on other studies that ran on the same units.

    >>> concurrent_section([ConcurrentStudy("search", "learning", 0.0, None, 0.3)]).rows
    (('search', 'learning', '30.0%', '1970-01-01 00:00:00', 'now'),)
    """
    rows = tuple(
        (
            study.name,
            study.state,
            UNKNOWN if study.share is None else format_percent(study.share),
            format_time(study.since),
            "now" if study.until is None else format_time(study.until),
        )
        for study in studies[:MAX_ROWS]
    )
    sentences = [CONCURRENT_TEXT]
    if any(study.share is None for study in studies):
        sentences.append(
            "The share is unknown for a study of another unit, or one whose units another platform assigns."
        )
    if len(studies) > MAX_ROWS:
        sentences.append(f"The table lists {MAX_ROWS} of {len(studies)} studies.")
    return ReportSection(
        "Other studies on the same units",
        tuple(sentences),
        ("study", "state", "of this study's units", "since", "until"),
        rows,
    )


def cluster_section(report: ClusterReport) -> ReportSection:
    """Return the section on clusters with their design effects.

    >>> cluster_section(ClusterReport("school", "pupil", 50, 900, {"points": 9.0})).rows
    (('points', '9', '3 times as wide'),)
    """
    rows = tuple(
        (metric, format_number(effect), f"{format_number(math.sqrt(effect))} times as wide")
        for metric, effect in report.design_effects.items()
    )
    return ReportSection(
        "Clusters",
        (
            f"The latest measurement has {format_count(report.clusters, 'cluster')} ({report.cluster}) with "
            f"{format_count(report.members, 'unit')} ({report.unit}). A cluster is assigned as a whole, and intervals "
            "count clusters.",
            "The design effect is the variance by cluster over that of independent units. An interval that counted "
            "each unit by itself would be too narrow by its square root.",
        ),
        ("metric", "design effect", "interval by cluster") if rows else (),
        rows,
    )


def _opening_section(report: Report) -> ReportSection:
    sentences = []
    if report.assigned_by == "external":
        sentences.append(_EXTERNAL_TEXT)
    if report.ramp is not None:
        sentences.append(f"Ramp: {describe_ramp(report.ramp)}.")
    if report.problem and report.verdict is None:
        sentences.append(f"No answer yet: {report.problem}.")
    position = f", round {report.round} under policy {report.version}" if report.round else ""
    return ReportSection(f"{report.name}: {report.state}{position}", tuple(sentences))


VERDICT_DRAWING = "verdict"
"""Name of the drawing that stands for the whole section on a page."""


def verdict_section(verdict: StudyVerdict) -> ReportSection:
    """Return the decision as a title with its reason, and a line for each metric of the blend and the best single.

    >>> verdict = StudyVerdict("start", "Not started", "Nothing is served.", "", "", "learning", 0.95, True)
    >>> verdict_section(verdict).title, verdict_section(verdict).sentences
    ('Not started', ('Nothing is served.',))
    """
    sentences = tuple(text for text in (verdict.sentence, verdict.next_step, verdict.served) if text)
    return ReportSection(verdict.headline, sentences, *verdict_table(verdict), VERDICT_DRAWING)


def _held_section(held: Sequence[HeldRoundRecord]) -> ReportSection:
    sentence = (
        "These rounds are not learned, because events seem to be missing. A round is learned once they are there. "
        "Otherwise decide with `pasto round resolve`, as `learn` or `discard`."
    )
    rows = tuple(
        (
            str(record.round),
            finding.column or "any metric",
            f"{finding.units:,}",
            format_number(finding.expected) if finding.expected else "",
            format_number(finding.seen),
            format_p_value(finding.p_value),
            record.resolution or "to be decided",
        )
        for record in held
        for finding in record.findings
    )
    header = ("round", "metric", "units", "expected", "came", "p", "")
    return ReportSection("Rounds held back", (sentence,), header, rows)


# Lifts


def _learning_sections(learning: LearningReport) -> Iterator[ReportSection]:
    compared = (
        f"Against the control of the same rounds, {format_count(len(learning.rounds), 'round')}, each interval with "
        f"{format_confidence(learning.confidence)} confidence at any look. The blend and the best single candidate "
        "were chosen on these rounds and look better here than they are; a confirmation measures them without this "
        "bias."
    )
    sentences = (compared, *adjustment_sentences(learning.lifts), *range_sentences(learning.lifts))
    yield ReportSection("Lift while learning", sentences, *lift_table(learning.lifts), drawing="lifts")
    if learning.winner is not None:
        yield ReportSection("Single candidates", (_winner_text(learning.winner),))


def lift_table(lifts: Sequence[LiftRecord]) -> tuple[Row, tuple[Row, ...]]:
    """Return header and rows: relative and absolute lift of each target and metric, and the lift by other methods."""
    has_adjusted = any(lift.adjusted is not None for lift in lifts)
    has_range = any(map(_has_range_interval, lifts))
    rows = []
    for lift in lifts:
        row = [lift.target, lift.metric, _interval_text(lift.relative, percent=True)]
        if has_adjusted:
            row += _adjusted_cells(lift)
        if has_range:
            row.append(_range_cell(lift))
        row += [_interval_text(lift.absolute), format_number(lift.level), format_number(lift.control)]
        row.append(_DIRECTION_TEXT[lift.best.direction])
        rows.append(tuple(row))
    adjusted_header = ("adjusted", "variance reduced by") if has_adjusted else ()
    range_header = ("by its range",) if has_range else ()
    return ("", "metric", "relative", *adjusted_header, *range_header, "absolute", "level", "control", ""), tuple(rows)


_DIRECTION_TEXT = {"up": "rose", "down": "fell", "unclear": "not clear"}


def _adjusted_cells(lift: LiftRecord) -> list[str]:
    if lift.adjusted is None:
        return ["", ""]
    reduction = format_percent(lift.adjusted.variance_reduced_by, 0)
    return [_interval_text(lift.adjusted.relative, percent=True), reduction]


def _range_cell(lift: LiftRecord) -> str:
    if lift.bounded is None or not _has_range_interval(lift):
        return ""
    return _interval_text(lift.bounded.estimate, percent=lift.bounded.relative is not None)


def _has_range_interval(lift: LiftRecord) -> bool:
    """Return whether the interval by the metric's range has both of its ends."""
    return lift.bounded is not None and lift.bounded.estimate.is_bounded


def range_sentences(lifts: Sequence[LiftRecord]) -> tuple[str, ...]:
    """Return a sentence about intervals by a metric's range; nothing if there are none.

    >>> range_sentences([])
    ()
    """
    if not any(map(_has_range_interval, lifts)):
        return ()
    return ("An interval by a metric's range holds for few units too, and for any distribution within the range.",)


def adjustment_sentences(lifts: Sequence[LiftRecord]) -> tuple[str, ...]:
    """Return a sentence about the variance that covariates removed; nothing if no metric is adjusted."""
    reductions: dict[str, list[float]] = {}
    for lift in lifts:
        if lift.adjusted is not None:
            reductions.setdefault(lift.metric, []).append(lift.adjusted.variance_reduced_by or 0.0)
    parts = []
    for metric, shares in reductions.items():
        least, most = format_percent(min(shares), 0), format_percent(max(shares), 0)
        parts.append(f"{least if least == most else f'{least} to {most}'} in {metric}")
    if not parts:
        return ()
    return (f"Adjusted by what units did before they were assigned, variance is reduced by {', '.join(parts)}.",)


def _winner_text(winner: WinnerReport) -> str:
    if winner.winner is not None:
        return f"{winner.winner} beats the control and every other candidate in {winner.metric}, guardrails aside."
    if winner.beat_the_control:
        names = ", ".join(winner.beat_the_control[:MAX_ROWS])
        return (
            f"In {winner.metric} these beat the control, all claims together: {names}. None beats all the others yet."
        )
    return (
        f"{winner.best_looking} has the highest measured {winner.metric}, but no candidate is yet shown to differ from "
        "the control, all claims together."
    )


def _confirmation_sections(confirmation: ConfirmationReport) -> Iterator[ReportSection]:
    look = "at any look" if confirmation.sequential else "at the horizon that was set"
    units = ", ".join(f"{arm} {count:,}" for arm, count in confirmation.units.items())
    sentences = [
        f"Units stay in their arm and count once: {units}. Intervals hold with "
        f"{format_confidence(confirmation.confidence)} confidence {look}.",
        *adjustment_sentences(confirmation.lifts),
    ]
    if confirmation.note:
        sentences.append(confirmation.note)
    table = arm_table(confirmation.lifts)
    yield ReportSection("Confirmation", tuple(sentences), *table, drawing="confirmation")
    if confirmation.predicted:
        rows = tuple(
            (
                prediction.target,
                prediction.metric,
                format_lift(prediction.predicted),
                _interval_text(prediction.realised, percent=True),
                {True: "as predicted", False: "outside", None: ""}[prediction.inside],
            )
            for prediction in confirmation.predicted
        )
        sentence = "What the frozen answer promised on the rounds it was learned from, and what new units showed."
        yield ReportSection("Predicted and realised", (sentence,), ("", "metric", "predicted", "realised", ""), rows)


def arm_table(lifts: Sequence[LiftRecord]) -> tuple[Row, tuple[Row, ...]]:
    """Return header and rows: arms down, metrics across, relative lifts with their intervals and the adjusted ones."""
    cells = {}
    for lift in lifts:
        cells[lift.target, lift.metric] = _interval_text(lift.relative, percent=True)
        if lift.adjusted is not None:
            cells[lift.target, f"{lift.metric}, adjusted"] = _interval_text(lift.adjusted.relative, percent=True)
    metrics = list(dict.fromkeys(metric for _, metric in cells))
    targets = list(dict.fromkeys(target for target, _ in cells))
    return ("", *metrics), tuple((target, *(cells[target, metric] for metric in metrics)) for target in targets)


# The blend and its guardrails


def _blend_section(answer: BlendRecord, *, is_frozen: bool, is_external: bool) -> ReportSection:
    sentences = ["Frozen, and served as it is."] if is_frozen else []
    if answer.certificate is not None and (text := certificate_text(answer.certificate, answer.feasible)):
        sentences.append(text)
        if is_external:
            sentences.append("It relies on the candidates that exposures name: PASTO did not draw them.")
    shares = sorted(answer.probabilities.items(), key=lambda item: -item[1])
    rows = tuple((name, format_percent(share)) for name, share in shares[:MAX_ROWS])
    return ReportSection("The blend", tuple(sentences), ("candidate", "share"), rows)


def _guardrail_section(guardrails: Sequence[GuardrailReport]) -> ReportSection:
    rows = tuple(
        (
            guardrail.name,
            f"{SIDE_TEXT[guardrail.side]} {guardrail.at} ({_kind_text(guardrail)})",
            str(guardrail.floor),
            basis_text(guardrail.judged, guardrail.allowed),
            "" if guardrail.holds is None else format_percent(guardrail.holds),
            guardrail.state or "",
            format_p_value(guardrail.p_value),
        )
        for guardrail in guardrails
    )
    header = ("guardrail", "limit", "stop level", "judged", "blend holds it with", "monitor", "p")
    return ReportSection("Guardrails", own_units_text(guardrails), header, rows)


def _kind_text(guardrail: GuardrailReport) -> str:
    return "hard" if guardrail.penalty is None else f"soft, penalty {guardrail.penalty:g}"


def _tradeoff_section(trade_off: TradeoffReport) -> ReportSection:
    blends = sorted(trade_off.blends, key=lambda point: (point.x, point.y))
    chosen = {round(place * (len(blends) - 1) / (MAX_BLENDS - 1)) for place in range(MAX_BLENDS)}
    points = [] if trade_off.answer is None else [("the answer", trade_off.answer.x, trade_off.answer.y, "")]
    points += [("a blend", blends[place].x, blends[place].y, "") for place in sorted(chosen)]
    listed = trade_off.singles[:MAX_ROWS]
    points += [(single.name, single.x, single.y, _broken_text(single.broken)) for single in listed]
    sentences = [
        f"{trade_off.x} and {trade_off.y} as expected now, for the answer, for blends that reach the most of "
        f"{trade_off.x} at a level of {trade_off.y}, and for single candidates."
    ]
    more = len(trade_off.singles) - MAX_ROWS
    if more > 0:
        sentences.append(f"{more} more single candidates are in the JSON.")
    width = 4 if any(single.broken for single in listed) else 3
    rows: dict[Row, None] = dict.fromkeys(
        (name, format_number(x), format_number(y), broken)[:width] for name, x, y, broken in points
    )
    header = ("", trade_off.x, trade_off.y, "breaks")[:width]
    return ReportSection("Trade-off", tuple(sentences), header, tuple(rows), drawing="trade_off")


def _broken_text(broken: Sequence[BrokenLimit]) -> str:
    return "; ".join(
        f"{each.name} {format_number(each.level)}{each.unit}, limit {format_number(each.limit)}{each.unit}"
        for each in broken
    )


# Data quality, event counts and rounds


def quality_section(quality: QualityReport) -> ReportSection:
    """Return the section about the quality of the data."""
    rows = [("units measured", f"{quality.units:,}"), ("events", f"{quality.events:,}")]
    if quality.sample_ratio is not None:
        rows.append(("sample ratio", _sample_ratio_text(quality.sample_ratio)))
    rows += [("sender departs", departure_text(departure)) for departure in quality.departures]
    errors = "as rounds scatter"
    if quality.understated_errors:
        errors = f"too small: {understated_text(quality.understated_errors)}; nothing is certified"
    rows.append(("standard errors", errors))
    rows.append(("came too late to be learned", _share_text(quality.late.events, quality.late.share)))
    if quality.duplicates is not None:
        rows.append(("sent again and counted once", f"{quality.duplicates:,} since the service started"))
    rows += [
        (f"cut to its range: {column}", _share_text(clipped.units, clipped.share))
        for column, clipped in quality.clipped.items()
        if clipped.units
    ]
    rows.append(("events rejected by the service", f"{quality.rejected.events:,}"))
    rows += [("", f"{reason.events:,}: {reason.reason}") for reason in quality.rejected.reasons]
    rows += [
        ("decided and never logged", f"{quality.gap:,}"),
        ("numbers missing from senders", f"{quality.missing:,}"),
        ("metric events without an exposure", f"{quality.uncredited:,}"),
        ("fallbacks and overrides, left out", f"{quality.excluded:,}"),
    ]
    return ReportSection("Quality of the data", (), ("", ""), tuple(rows))


def _sample_ratio_text(ratio: SampleRatioReport) -> str:
    text = "as it should be"
    if ratio.suspect is not None:
        text = f"wrong: {ratio.suspect.arm} / {ratio.suspect.candidate or 'all candidates'}"
    return f"{text} (p = {format_p_value(ratio.p_value)})"


def _accounting_sections(accounting: AccountingReport) -> Iterator[ReportSection]:
    for kind, lines in (("key", accounting.keys), ("source", accounting.sources)):
        if lines:
            yield _sender_section(kind, lines)
    if accounting.candidates:
        yield _candidate_section(accounting)


def _sender_section(kind: str, lines: Sequence[SenderLine]) -> ReportSection:
    columns = list(dict.fromkeys(column for line in lines for column in line.means))
    rows = []
    for line in lines:
        name = line.sender or "none"
        name = f"{line.name} ({name})" if line.name else name
        counts = (f"{count:,}" for count in (line.units, line.exposures, line.metrics, line.rejected))
        means = (format_number(line.means[column]) if column in line.means else "" for column in columns)
        rows.append((f"{name}, departs" if line.departs else name, *counts, *means))
    header = (kind, "units learned", "exposures", "events", "rejected", *(f"mean {column}" for column in columns))
    return ReportSection(f"Senders by {kind}", (), header, tuple(rows))


def _candidate_section(accounting: AccountingReport) -> ReportSection:
    assigned: Counter[str | None] = Counter()
    dropped: Counter[str | None] = Counter()
    gaps: Counter[str | None] = Counter()
    for line in (line for version in accounting.versions for line in version.candidates):
        assigned[line.name] += line.assigned
        dropped[line.name] += line.dropped
        gaps[line.name] += line.gap
    candidates = sorted(accounting.candidates, key=lambda candidate: -candidate.logged)
    rows = []
    for candidate in candidates[:MAX_ROWS]:
        name = candidate.name
        counts = (candidate.logged, candidate.excluded, assigned[name], dropped[name], gaps[name])
        rows.append((name or "unknown", *(f"{count:,}" for count in counts)))
    latest = format_count(len(accounting.versions), "policy", "policies")
    sentences = [f"* as senders that number their events say, for the latest {latest}"]
    more = len(candidates) - MAX_ROWS
    if more > 0:
        sentences.insert(0, f"The {MAX_ROWS} candidates with the most exposures; {more} more are in the JSON.")
    header = ("candidate", "exposures", "left out", "decided*", "dropped*", "gap*")
    return ReportSection("Exposures by candidate", tuple(sentences), header, tuple(rows))


def _rounds_section(history: Sequence[ClosedRoundRecord]) -> ReportSection:
    rows = tuple(
        (
            str(close.round),
            str(close.version),
            close.state,
            f"{close.units:,}",
            "; ".join(close.problems) or ("" if close.state == close.next_state else f"then {close.next_state}"),
        )
        for close in reversed(history[-MAX_ROWS:])
    )
    return ReportSection("Latest rounds", (), ("round", "policy", "state", "units learned from", ""), rows)


def _interval_text(estimate: IntervalEstimate, *, percent: bool = False) -> str:
    return format_interval(estimate.value, estimate.low, estimate.high, percent=percent)


def _share_text(count: int, share: float | None) -> str:
    return f"{count:,}" if share is None else f"{count:,} ({format_percent(share, 2)})"
