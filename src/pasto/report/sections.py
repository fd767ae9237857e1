"""Sections of a report: sentences, tables and the names of drawings, for text and for HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pasto.formatting import (
    format_confidence,
    format_count,
    format_interval,
    format_lift,
    format_number,
    format_p_value,
    format_percent,
)
from pasto.report.guardrail_text import (
    SIDE_TEXT,
    basis_text,
    certificate_text,
    own_units_text,
    understated_text,
    verdict_text,
)
from pasto.report.sender_text import departure_text

Table = Sequence[Sequence[str]]
SHOWN = 20
"""Candidates that a table lists, those with the most units."""
SHOWN_BLENDS = 5
"""Blends that the table of the trade-off lists."""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One part of a report."""

    title: str
    words: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    drawing: str | None = None
    """Which of the report's drawings belongs here."""


def build_sections(report: Mapping[str, Any]) -> tuple[ReportSection, ...]:
    """The parts of a report, those that have something to say.

    >>> said = {"name": "feed", "state": "draft", "round": 0, "version": 0, "claims": "Nothing was measured yet."}
    >>> [(section.title, section.words) for section in build_sections(said)]
    [('feed: draft', ('Nothing was measured yet.',))]
    """
    return tuple(_sections(report))


def _sections(report: Mapping[str, Any]) -> Iterator[ReportSection]:
    yield _opening(report)
    if source := report.get("source_problem"):
        message = source["message"].rstrip(".")
        yield ReportSection("Source", (f"Round {source['round']} cannot be measured: {message}.", _UNMEASURED))
    breaker = report.get("breaker") or {}
    if breaker.get("tripped"):
        yield ReportSection("Breaker", (f"Tripped: {breaker['tripped']['reason']}", _REARM))
    if report.get("held"):
        yield _held(report["held"])
    if (confirmation := report.get("confirmation")) and confirmation.get("lifts"):
        yield from _confirmation(confirmation, report.get("claims"))
    learning = report.get("learning") or {}
    if learning.get("lifts"):
        rounds = learning["rounds"]
        compared = (
            f"Against the control of the same rounds, {format_count(len(rounds), 'round')}, each interval with "
            f"{format_confidence(learning['confidence'])} confidence at any look. The blend and the best "
            "single candidate were chosen on these rounds and look better here than they are; a confirmation measures "
            "them without this bias."
        )
        words = (compared, *adjusted_words(learning["lifts"]), *bounded_words(learning["lifts"]))
        yield ReportSection("Lift while learning", words, *lift_table(learning["lifts"]), drawing="lifts")
        if learning.get("winner"):
            yield ReportSection("Single candidates", (_winner(learning["winner"]),))
    if report.get("blend") or report.get("frozen"):
        yield _blend(report)
    if report.get("guardrails"):
        yield _guardrails(report["guardrails"])
    if report.get("prices"):
        yield ReportSection("Prices", tuple(price["words"] for price in report["prices"]))
    if (report.get("trade_off") or {}).get("blends"):
        yield _trade_off(report["trade_off"])
    if report.get("quality"):
        yield _quality(report["quality"])
    for label, lines in (("key", "keys"), ("source", "sources")):
        if (report.get("accounting") or {}).get(lines):
            yield _senders(label, report["accounting"][lines])
    if (report.get("accounting") or {}).get("candidates"):
        yield _books(report["accounting"])
    if report.get("history"):
        yield _rounds(report["history"])


_UNMEASURED = "The round stays open and its policy is served until the source can be read; closing is tried again."
_REARM = "Everyone is served what the study held. Only `resume` with a reason re-arms it; evidence then starts anew."


def _opening(report: Mapping[str, Any]) -> ReportSection:
    words = [report["claims"]] if report.get("claims") else []
    words += [contradiction["text"] for contradiction in report.get("contradictions") or ()]
    if report.get("problem"):
        words.append(f"No answer yet: {report['problem']}.")
    where = f", round {report['round']} under policy {report['version']}" if report.get("round") else ""
    return ReportSection(f"{report['name']}: {report['state']}{where}", tuple(words))


def _held(held: Sequence[Mapping[str, Any]]) -> ReportSection:
    words = (
        "These rounds are not learned, because events seem to be missing. A round is learned once they are there. "
        "Otherwise decide with `pasto round resolve`, as `learn` or `discard`.",
    )
    rows = tuple(
        (
            str(one["round"]),
            finding["column"] or "any metric",
            f"{finding['units']:,}",
            format_number(finding["expected"]) if finding["expected"] else "",
            format_number(finding["seen"]),
            format_p_value(finding["p_value"]),
            one["resolution"] or "to be decided",
        )
        for one in held
        for finding in one["findings"]
    )
    return ReportSection("Rounds held back", words, ("round", "metric", "units", "expected", "came", "p", ""), rows)


def lift_table(lifts: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return a row for each target and metric: relative and absolute lift, and the lift by other methods."""
    adjusted, bounded = any(lift.get("adjusted") for lift in lifts), any(map(_has_bounds, lifts))
    rows = []
    for lift in lifts:
        row = [lift["target"], lift["metric"], interval_text(lift["relative"], percent=True)]
        other = lift.get("adjusted")
        if adjusted:
            row += (
                [interval_text(other["relative"], percent=True), format_percent(other["variance_reduced_by"], 0)]
                if other
                else ["", ""]
            )
        if bounded:
            row.append(_by_range(lift))
        row += [interval_text(lift["absolute"]), format_number(lift["level"]), format_number(lift["control"])]
        row.append({"up": "rose", "down": "fell", "unclear": "not clear"}[(other or lift)["told"]])
        rows.append(tuple(row))
    more = [*(("adjusted", "variance reduced by") if adjusted else ()), *(("by its range",) if bounded else ())]
    return ("", "metric", "relative", *more, "absolute", "level", "control", ""), tuple(rows)


def _by_range(lift: Mapping[str, Any]) -> str:
    if not _has_bounds(lift):
        return ""
    bounded = lift["bounded"]
    return (
        interval_text(bounded["absolute"])
        if bounded["relative"] is None
        else interval_text(bounded["relative"], percent=True)
    )


def _has_bounds(lift: Mapping[str, Any]) -> bool:
    """Return whether the interval by the metric's range has both of its ends."""
    bounded = lift.get("bounded") or {"relative": None, "absolute": {"low": None, "high": None}}
    estimate = bounded["absolute"] if bounded["relative"] is None else bounded["relative"]
    return estimate["low"] is not None and estimate["high"] is not None


def bounded_words(lifts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence about lifts by a metric's range; nothing if there are none.

    >>> bounded_words([{"metric": "likes", "bounded": None}])
    ()
    """
    if not any(map(_has_bounds, lifts)):
        return ()
    return ("An interval by a metric's range holds for few units too, and for any distribution within the range.",)


def adjusted_words(lifts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return a sentence about the variance that covariates removed; nothing if no metric is adjusted.

    >>> adjusted_words([{"metric": "likes", "adjusted": {"variance_reduced_by": 0.434}}, {"metric": "watch"}])
    ('Adjusted by what units did before they were assigned, variance is reduced by 43% in likes.',)
    """
    found: dict[str, list[float]] = {}
    for lift in lifts:
        if lift.get("adjusted"):
            found.setdefault(lift["metric"], []).append(lift["adjusted"]["variance_reduced_by"] or 0.0)
    parts = []
    for metric, reductions in found.items():
        least, most = format_percent(min(reductions), 0), format_percent(max(reductions), 0)
        parts.append(f"{least if least == most else f'{least} to {most}'} in {metric}")
    if not parts:
        return ()
    return (f"Adjusted by what units did before they were assigned, variance is reduced by {', '.join(parts)}.",)


def _confirmation(confirmation: Mapping[str, Any], opening: str | None) -> Iterator[ReportSection]:
    when = "at the horizon that was set" if not confirmation["sequential"] else "at any look"
    units = ", ".join(f"{arm} {count:,.0f}" for arm, count in confirmation["units"].items())
    words = [
        # The report opens with the confirmation's claims if there is one; they need not be read twice.
        *([confirmation["claims"]] if confirmation["claims"] != opening else []),
        *((" ".join(verdict_text(confirmation["verdict"])),) if confirmation.get("verdict") else ()),
        f"Units stay in their arm and count once: {units}. Intervals hold with "
        f"{format_confidence(confirmation['confidence'])} confidence {when}.",
        *adjusted_words(confirmation["lifts"]),
    ]
    if confirmation.get("note"):
        words.append(confirmation["note"])
    yield ReportSection("Confirmation", tuple(words), *arm_table(confirmation["lifts"]), drawing="confirmation")
    if confirmation.get("predicted"):
        rows = tuple(
            (
                one["target"],
                one["metric"],
                format_lift(one["predicted"]),
                interval_text(one["realised"], percent=True),
                "as predicted" if one["inside"] else "outside" if one["inside"] is not None else "",
            )
            for one in confirmation["predicted"]
        )
        yield ReportSection(
            "Predicted and realised",
            ("What the frozen answer promised on the rounds it was learned from, beside what new units showed.",),
            ("", "metric", "predicted", "realised", ""),
            rows,
        )


def arm_table(lifts: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Arms down, metrics across, relative lifts with their intervals; beside them the adjusted ones."""
    cells = {}
    for lift in lifts:
        cells[lift["target"], lift["metric"]] = interval_text(lift["relative"], percent=True)
        if lift.get("adjusted"):
            cells[lift["target"], f"{lift['metric']}, adjusted"] = interval_text(
                lift["adjusted"]["relative"], percent=True
            )
    metrics = list(dict.fromkeys(metric for _, metric in cells))
    targets = list(dict.fromkeys(target for target, _ in cells))
    return ("", *metrics), tuple((target, *(cells[target, metric] for metric in metrics)) for target in targets)


def _winner(winner: Mapping[str, Any]) -> str:
    metric = winner["metric"]
    if winner["winner"] is not None:
        return f"{winner['winner']} beats the control and every other candidate in {metric}, guardrails aside."
    if winner["beat_the_control"]:
        some = ", ".join(winner["beat_the_control"][:SHOWN])
        return f"In {metric} these beat the control, all claims together: {some}. None beats all the others yet."
    return (
        f"{winner['best_looking']} has the highest measured {metric}, but no candidate is yet shown to differ from the "
        "control, all claims together."
    )


def _trade_off(trade_off: Mapping[str, Any]) -> ReportSection:
    blends = sorted(trade_off["blends"], key=lambda point: (point["x"], point["y"]))
    picked = {round(place * (len(blends) - 1) / (SHOWN_BLENDS - 1)) for place in range(SHOWN_BLENDS)}
    points = [("the answer", trade_off["answer"])] if trade_off.get("answer") else []
    points += [("a blend", blends[place]) for place in sorted(picked)]
    points += [(single["name"], single) for single in trade_off["singles"][:SHOWN]]
    more = len(trade_off["singles"]) - SHOWN
    words = [
        f"{trade_off['x']} and {trade_off['y']} as expected now, for the answer, for blends that reach the most of "
        f"{trade_off['x']} at a level of {trade_off['y']}, and for single candidates."
    ]
    if more > 0:
        words.append(f"{more} more single candidates are in the JSON.")
    rows = dict.fromkeys((name, format_number(point["x"]), format_number(point["y"])) for name, point in points)
    return ReportSection(
        "Trade-off", tuple(words), ("", trade_off["x"], trade_off["y"]), tuple(rows), drawing="trade_off"
    )


def _blend(report: Mapping[str, Any]) -> ReportSection:
    answer = report.get("frozen") or report["blend"]
    rows = sorted(answer["probabilities"].items(), key=lambda part: -part[1])
    words = []
    if report.get("frozen"):
        words.append("Frozen, and served as it is.")
    if answer.get("certificate") and (sure := certificate_text(answer["certificate"], answer.get("feasible", True))):
        words.append(sure)
    if answer.get("outlook"):
        words.append(f"Advice: {answer['outlook']['advice']}.")
    return ReportSection(
        "The blend", tuple(words), ("candidate", "share"), tuple((n, format_percent(p)) for n, p in rows[:SHOWN])
    )


def _guardrails(rails: Sequence[Mapping[str, Any]]) -> ReportSection:
    rows = []
    for rail in rails:
        kind = "hard" if rail["kind"] == "hard" else f"soft, penalty {rail['penalty']:g}"
        rows.append(
            (
                rail["name"],
                f"{SIDE_TEXT[rail['side']]} {rail['at']} ({kind})",
                str(rail["floor"]),
                basis_text(rail["judged"], rail["allowed"]),
                "" if rail["holds"] is None else format_percent(rail["holds"]),
                rail["state"] or "",
                format_p_value(rail["p_value"]),
            )
        )
    header = ("guardrail", "kept", "floor", "floor judged", "blend holds it with", "breaker", "p")
    return ReportSection("Guardrails", own_units_text(rails), header, tuple(rows))


def _quality(told: Mapping[str, Any]) -> ReportSection:
    rows = [("units measured", f"{told['units']:,}"), ("events", f"{told['events']:,}")]
    ratio = told.get("sample_ratio")
    if ratio is not None:
        suspect = ratio["suspect"]
        said = "as it should be"
        if suspect is not None:
            said = f"wrong: {suspect['arm']} / {suspect['candidate'] or 'all candidates'}"
        rows.append(("sample ratio", f"{said} (p = {format_p_value(ratio['p_value'])})"))
    rows += [("sender departs", departure_text(one)) for one in told.get("departures", ())]
    if "understated_errors" in told:
        factors = told["understated_errors"]
        said = f"too small: {understated_text(factors)}; nothing is certified" if factors else "as rounds scatter"
        rows.append(("standard errors", said))
    late = told["late"]
    rows.append(("came too late to be learned", _part(late["events"], late["share"])))
    if told.get("duplicates") is not None:
        rows.append(("sent again and counted once", f"{told['duplicates']:,} since the service started"))
    for column, cut in told["clipped"].items():
        if cut["units"]:
            rows.append((f"cut to its range: {column}", _part(cut["units"], cut["share"])))
    rejected = told.get("rejected") or {"events": 0, "reasons": ()}
    rows.append(("events rejected by the service", f"{rejected['events']:,}"))
    rows += [("", f"{one['events']:,}: {one['reason']}") for one in rejected["reasons"]]
    for label, key in (
        ("decided and never logged", "gap"),
        ("numbers missing from senders", "missing"),
        ("metric events of nobody exposed", "uncredited"),
        ("fallbacks and overrides, left out", "excluded"),
    ):
        rows.append((label, f"{told[key]:,}"))
    return ReportSection("Quality of the data", (), ("", ""), tuple(rows))


def _senders(kind: str, lines: Sequence[Mapping[str, Any]]) -> ReportSection:
    columns = list(dict.fromkeys(column for line in lines for column in line["means"]))
    rows = []
    for line in lines:
        name = line["sender"] or "none"
        name = f"{line['name']} ({name})" if line["name"] else name
        counts = (f"{line[key]:,}" for key in ("units", "exposures", "metrics", "rejected"))
        means = (format_number(line["means"][column]) if column in line["means"] else "" for column in columns)
        rows.append((f"{name}, departs" if line["departs"] else name, *counts, *means))
    header = (kind, "units learned", "exposures", "events", "rejected", *(f"mean {column}" for column in columns))
    return ReportSection(f"Senders by {kind}", (), header, tuple(rows))


def _books(accounting: Mapping[str, Any]) -> ReportSection:
    lost: dict[str, dict[str, int]] = {}
    for version in accounting["versions"]:
        for line in version["candidates"]:
            known = lost.setdefault(line["name"], {"assigned": 0, "dropped": 0, "gap": 0})
            for key in known:
                known[key] += line[key]
    lines = sorted(accounting["candidates"], key=lambda line: -line["logged"])
    rows = []
    for line in lines[:SHOWN]:
        sent = lost.get(line["name"], {"assigned": 0, "dropped": 0, "gap": 0})
        counts = (line["logged"], line["excluded"], sent["assigned"], sent["dropped"], sent["gap"])
        rows.append((line["name"] or "unknown", *(f"{count:,}" for count in counts)))
    more = len(lines) - SHOWN
    words = (f"The {SHOWN} candidates with the most exposures; {more} more are in the JSON.",) if more > 0 else ()
    header = ("candidate", "exposures", "left out", "decided*", "dropped*", "gap*")
    latest = format_count(len(accounting["versions"]), "policy", "policies")
    note = f"* as senders that number their events say, for the latest {latest}"
    return ReportSection("Exposures by candidate", (*words, note), header, tuple(rows))


def _rounds(history: Sequence[Mapping[str, Any]]) -> ReportSection:
    rows = tuple(
        (
            str(one["round"]),
            str(one["version"]),
            one["state"],
            f"{one['units']:,}",
            "; ".join(one["problems"]) or ("" if one["state"] == one["next_state"] else f"then {one['next_state']}"),
        )
        for one in reversed(history[-SHOWN:])
    )
    return ReportSection("Latest rounds", (), ("round", "policy", "state", "units learned from", ""), rows)


def interval_text(estimate: Mapping[str, float | None], *, percent: bool = False) -> str:
    """Return a number with the ends of its interval.

    >>> interval_text({"value": 0.0344, "low": 0.0215, "high": 0.0477}, percent=True)
    '+3.44% (+2.15% to +4.77%)'
    """
    return format_interval(estimate["value"], estimate["low"], estimate["high"], percent=percent)


def _part(count: int, share: float | None) -> str:
    return f"{count:,}" if share is None else f"{count:,} ({format_percent(share, 2)})"
