"""What commands print with: tables and lines for people, JSON for machines, progress on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from textwrap import wrap
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from pasto.control_characters import escape_control, escape_json

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.sim import Progress

UNWRAPPED = 10_000
"""The width of what is not a terminal: whoever reads a pipe wraps for himself."""
PAUSE = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def console(*, stderr: bool = False) -> Console:
    """A console that prints names as they are, coloured only where a terminal wants colour."""
    from pasto.cli.terminal import SafeConsole

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")  # a terminal that cannot show ± gets a ? instead of a traceback
    screen = SafeConsole(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = UNWRAPPED
    return screen


def print_facts(screen: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print a line for each label and value; a long value goes on below itself."""
    indent = " " * 15
    for label, value in facts:
        lines = wrap(value, max(screen.width - len(indent), 20), break_long_words=False, break_on_hyphens=False)
        screen.print(f"  {label:<12} " + f"\n{indent}".join(lines or [""]), soft_wrap=True)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text with its control characters escaped; line ends and tabs stay.

    What a store or a service says holds names and reasons that somebody else wrote, and a terminal would obey them.
    """
    click.echo(escape_control(text, keep="\n\t"), err=err, nl=nl)


def print_json(value: Any) -> None:
    """One JSON value on stdout; arrays become lists, and NaN and infinity null."""
    click.echo(escape_json(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)))


def _plain(value: Any) -> Any:
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
    """A table, row by row where the terminal is too narrow for it; `text` are the columns that hold no numbers."""
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


def number(value: float) -> str:
    """A number with five digits that matter; rounding errors are shown as 0.

    >>> number(0.031254789), number(-1e-17), number(1234567.8), number(2.0)
    ('0.031255', '0', '1,234,568', '2')
    """
    if abs(value) < 1e-12 or not math.isfinite(value):
        return "0" if abs(value) < 1e-12 else str(value)
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.5g}"


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Progress on stderr: a bar for each label on a terminal, gone when the work is done; else a line now and then."""
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
    """Progress as lines of text, one every `PAUSE` seconds at most."""
    last = monotonic()

    def report(label: str, done: int, total: int) -> None:
        nonlocal last
        if monotonic() - last >= PAUSE:
            last = monotonic()
            screen.print(f"{label}: {done / total:.0%}")

    return report
