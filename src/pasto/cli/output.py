"""Output of commands: tables and lines as text, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from pasto.cli.means_file import MeansTable
from pasto.control_characters import escape_control, escape_json
from pasto.formatting import format_lift, format_number, format_percent

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.blend import Blend
    from pasto.objective import Guardrail, Objective
    from pasto.segmented_blend import SegmentedBlend
    from pasto.sim import Progress

UNWRAPPED = 10_000
"""Width of output that is not a terminal: a program that reads a pipe wraps the lines."""

PROGRESS_SECONDS = 10.0
"""Seconds between two lines of progress if there is no terminal."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints names as they are, with colours only on a terminal."""
    from pasto.cli.safe_console import SafeConsole

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")  # a terminal that cannot show ± gets a ? instead of a traceback
    screen = SafeConsole(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = UNWRAPPED
    return screen


def format_local_time(at: float) -> str:
    """Return a moment in the terminal's own time zone, with its offset from UTC.

    >>> datetime.fromisoformat(format_local_time(0.0)).timestamp()
    0.0
    """
    return datetime.fromtimestamp(at, UTC).astimezone().isoformat(sep=" ", timespec="seconds")


def print_facts(screen: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print a line for each label and value; a long value goes on below itself."""
    indent = " " * 15
    for label, value in facts:
        lines = wrap(value, max(screen.width - len(indent), 20), break_long_words=False, break_on_hyphens=False)
        screen.print(f"  {label:<12} " + f"\n{indent}".join(lines or [""]), soft_wrap=True)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text with its control characters escaped; line ends and tabs stay.

    Names and reasons in a store come from other people, and a terminal would obey control characters in them.
    """
    click.echo(escape_control(text, keep="\n\t"), err=err, nl=nl)


def print_json(value: Any) -> None:
    """Print one JSON value; records become objects, arrays become lists, and NaN and infinity become null."""
    click.echo(escape_json(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)))


def _plain(value: Any) -> Any:
    if is_dataclass(value) or hasattr(value, "__struct_fields__"):
        from pasto.report.records import write_record

        return write_record(value)
    if hasattr(value, "tolist"):  # of numpy, which need not be loaded to print
        value = value.tolist()
    match value:
        case dict():
            return {str(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case float():
            return value if math.isfinite(value) else None
    return value


def print_table(
    screen: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    styles: Sequence[str] = (),
    text: Collection[int] = (0,),
) -> None:
    """Print a table, or row by row if the terminal is too narrow; `text` are the columns without numbers."""
    from rich.table import Table

    if title:
        screen.print(title, style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, name in enumerate(header):
        table.add_column(escape_control(name), justify="left" if place in text else "right", no_wrap=True)
    safe = [[escape_control(cell) for cell in row] for row in rows]
    styled = list(zip(safe, [*styles, *[""] * len(rows)], strict=False))
    for row, style in styled:
        table.add_row(*row, style=style)
    unlimited = screen.options.update(max_width=UNWRAPPED)
    if screen.measure(table, options=unlimited).maximum <= screen.width:
        screen.print(table)
        return
    for row, style in styled:
        screen.print(row[0], style=style or "bold")
        for name, cell in zip(header[1:], row[1:], strict=True):
            if cell:
                screen.print(f"  {name} {cell}")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show progress on stderr: a bar for each label on a terminal, otherwise a line every few seconds."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(screen)
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=screen, transient=True) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done, total=total)

        yield report


def _lines(screen: Console) -> Progress:
    """Return a function that prints progress, at most one line every `PROGRESS_SECONDS`."""
    last = monotonic()

    def report(label: str, done: int, total: int) -> None:
        nonlocal last
        if monotonic() - last >= PROGRESS_SECONDS:
            last = monotonic()
            screen.print(f"{label}: {done / total:.0%}")

    return report


def as_value(blend: Blend, objective: Objective) -> dict[str, Any]:
    """Return a blend as a JSON value, with candidates by name."""
    gain = blend.gain
    return {
        "objective": str(objective),
        "blend": {blend.names[k]: blend.probabilities[k] for k in blend.support},
        "feasible": blend.feasible,
        "value": blend.value,
        "metrics": dict(blend.metrics),
        "lifts": dict(blend.lifts),
        "prices": dict(blend.prices),
        "shortfalls": dict(blend.shortfalls),
        "best_single": None if blend.best_single is None else blend.names[blend.best_single],
        "best_single_value": blend.best_single_value,
        "gain": {
            "over": blend.names[gain.candidate],
            "value": gain.value,
            "goal": gain.goal,
            "violations": dict(gain.violations),
        },
    }


def print_answer(screen: Console, blend: Blend, objective: Objective, table: MeansTable, baseline: str | None) -> None:
    """Print a blend that was solved from a table of means."""
    from rich.text import Text

    screen.print(str(objective), style="bold")
    screen.print()
    _print_candidates(screen, blend, objective, table, baseline)
    screen.print()
    if blend.lifts:
        lifts = ", ".join(f"{metric} {format_lift(lift / 100)}" for metric, lift in blend.lifts.items())
        screen.print(f"The blend against {baseline}: {lifts}.")
    for name, rail in zip(objective.names, objective.guardrails, strict=True):
        screen.print(Text.assemble(f"{rail}: ", *describe_standing(name, rail, blend, objective)))
    screen.print(describe_gain(blend, objective))
    if not blend.feasible:
        missed = [
            f"{name} by {format_number(blend.shortfalls[name])}" for name in objective.hard if name in blend.shortfalls
        ]
        screen.print(
            "No blend of these candidates meets every hard guardrail. The one above comes nearest; it misses "
            f"{' and '.join(missed)}.",
            style="bold red",
        )


def _print_candidates(
    screen: Console, blend: Blend, objective: Objective, table: MeansTable, baseline: str | None
) -> None:
    """Print the metrics and missed guardrails of the blend, its candidates, the best single one and the baseline."""
    import numpy as np

    from pasto.optimize import summarize_blend

    means = np.array([table.metrics[metric] for metric in objective.metrics])
    others = {name: np.array(row) for name, row in table.metrics.items() if name not in objective.metrics}
    place = None if baseline is None else table.names.index(baseline)

    def alone(candidate: int) -> Blend:
        shares = np.zeros(len(table.names))
        shares[candidate] = 1.0
        return summarize_blend(shares, means, objective, names=table.names, baseline=place, others=others)

    lines = [("blend", "100%", blend, "bold")]
    for candidate in blend.support:
        lines.append((table.names[candidate], format_percent(blend.probabilities[candidate]), alone(candidate), ""))
    kind = "best single" if blend.best_single is not None else "least bad single"
    lines.append((f"{kind}: {table.names[blend.gain.candidate]}", "", alone(blend.gain.candidate), "dim"))
    if place is not None:
        lines.append((f"baseline: {baseline}", "", alone(place), "dim"))
    rows = [
        [label, share, *(format_number(one.metrics[metric]) for metric in blend.metrics), ", ".join(one.shortfalls)]
        for label, share, one, _ in lines
    ]
    header = ["", "share", *blend.metrics, "misses"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    print_table(screen, header, rows, styles=[style for *_, style in lines], text={0, len(blend.metrics) + 2})


def describe_standing(name: str, rail: Guardrail, blend: Blend, objective: Objective) -> tuple[tuple[str, str], str]:
    """Return whether the blend meets a guardrail, with a colour, and the price of the guardrail."""
    return _describe_status(rail, blend.shortfalls.get(name), blend.prices[name], blend.feasible, objective)


def _describe_status(
    rail: Guardrail, missed: float | None, price: float, feasible: bool, objective: Objective
) -> tuple[tuple[str, str], str]:
    from pasto.report.summary import price_text

    relaxed = f"; {price_text(rail, objective, price)}." if feasible else "."
    if missed is None:
        return ("met", "green"), relaxed
    amount = format_number(missed) + (" percentage points" if rail.relative else "")
    if rail.penalty is None:
        return (f"missed by {amount}", "red"), "."
    return (f"short by {amount}, which its penalty allows", "yellow"), relaxed


def as_segmented_value(blend: SegmentedBlend, objective: Objective) -> dict[str, Any]:
    """Return a segmented blend as a JSON value, with candidates by name."""

    def mixture(probabilities: Sequence[float]) -> dict[str, float]:
        return {name: share for name, share in zip(blend.names, probabilities, strict=True) if share}

    return {
        "objective": str(objective),
        "segments": {
            name: {
                "share": segment.share,
                "blend": mixture(segment.probabilities),
                "metrics": dict(segment.metrics),
                "lifts": dict(segment.lifts),
                "prices": dict(segment.prices),
                "shortfalls": dict(segment.shortfalls),
            }
            for name, segment in blend.segments.items()
        },
        "feasible": blend.feasible,
        "value": blend.value,
        "metrics": dict(blend.metrics),
        "lifts": dict(blend.lifts),
        "prices": dict(blend.prices),
        "shortfalls": dict(blend.shortfalls),
        "best_single": None if blend.best_single is None else blend.names[blend.best_single],
        "best_single_value": blend.best_single_value,
        "common_blend": mixture(blend.common_probabilities),
        "common_metrics": dict(blend.common_metrics),
        "common_value": blend.common_value,
        "gain_over_common": blend.gain_over_common,
        "gain_over_single": blend.gain_over_single,
    }


def print_segmented_answer(screen: Console, blend: SegmentedBlend, objective: Objective, baseline: str | None) -> None:
    """Print the blends of segments that were solved from tables of means."""
    from rich.text import Text

    screen.print(str(objective), style="bold")
    screen.print()
    header = ["", "traffic", "blend", *blend.metrics]
    rows = [["all segments", "100%", "", *(format_number(value) for value in blend.metrics.values())]]
    for name, segment in blend.segments.items():
        mixture = blend.describe_mixture(segment.probabilities)
        metrics = [format_number(segment.metrics[metric]) for metric in blend.metrics]
        rows.append([name, format_percent(segment.share), mixture, *metrics])
    common = [format_number(blend.common_metrics[metric]) for metric in blend.metrics]
    rows.append(["one blend for all", "", blend.describe_mixture(blend.common_probabilities), *common])
    print_table(screen, header, rows, styles=["bold", *[""] * len(blend.segments), "dim"], text={0, 2})
    screen.print()
    if blend.lifts:
        lifts = ", ".join(f"{metric} {format_lift(lift / 100)}" for metric, lift in blend.lifts.items())
        screen.print(f"All segments against {baseline}: {lifts}.")
    for name, rail in objective.guardrails_within(None).items():
        status = _describe_status(rail, blend.shortfalls.get(name), blend.prices[name], blend.feasible, objective)
        screen.print(Text.assemble(f"{rail}: ", *status))
    for place, part in blend.segments.items():
        for name, rail in objective.guardrails_within(place).items():
            status = _describe_status(rail, part.shortfalls.get(name), part.prices[name], blend.feasible, objective)
            screen.print(Text.assemble(f"{rail}, in {place}: ", *status))
    screen.print(describe_segmented_gain(blend))
    if not blend.feasible:
        missed = " and ".join(f"{name} by {format_number(amount)}" for name, amount in blend.all_shortfalls().items())
        screen.print(
            f"No blends of these candidates meet every hard guardrail. Those above come nearest; they miss {missed}.",
            style="bold red",
        )


def describe_segmented_gain(blend: SegmentedBlend) -> str:
    """Return the gain of a blend for each segment over one blend, and over one candidate, for everybody."""
    unit = " percent" if blend.percent else ""
    value = format_number(blend.value)
    single = "no single candidate meets every hard guardrail"
    if blend.best_single is not None:
        single = (
            f"{format_number(blend.best_single_value)} for the best single candidate, {blend.names[blend.best_single]}"
        )
    if blend.gain_over_common is None:
        common = "" if blend.common_value is not None else "No blend for everybody meets every hard guardrail. "
        return f"{common}f = {value} for the blends of segments; {single}."
    if blend.gain_over_common <= 1e-9 * (1.0 + abs(blend.value)):
        return f"Segments are worth nothing here: one blend for everybody has the same f = {value}; {single}."
    return (
        f"Segments are worth {format_number(blend.gain_over_common)}{unit}: f = {value} for a blend for each, "
        f"{format_number(blend.common_value)} for one blend for everybody; {single}."
    )


def describe_gain(blend: Blend, objective: Objective) -> str:
    """Return the gain of mixing over the best single candidate."""
    over = blend.names[blend.gain.candidate]
    if blend.gain.value is None:
        breaks = " and ".join(f"{name} by {format_number(amount)}" for name, amount in blend.gain.violations.items())
        text = f"No single candidate meets every hard guardrail; {over}, the least bad one, misses {breaks}."
        if len(blend.support) == 1:
            return text
        better = "better" if blend.gain.goal >= 0 else "worse"
        return f"{text} The blend's goal is {format_number(abs(blend.gain.goal))} {better} than its."
    if len(blend.support) == 1:
        best = format_number(blend.value)
        return f"Mixing buys nothing here: the single candidate {over} is the best blend, f = {best}."
    return (
        f"Mixing is worth {format_number(blend.gain.value)}{' percent' if objective.relative else ''}: f = "
        f"{format_number(blend.value)} for the blend, "
        f"{format_number(blend.value - blend.gain.value)} for the best single "
        f"candidate, {over}."
    )
