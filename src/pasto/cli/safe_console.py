"""Console that commands print to: the console of rich, with control characters in texts escaped."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from pasto.control_characters import escape_control, find_control


class SafeConsole(Console):
    """Console that escapes the control characters of a text, except line ends and tabs."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects with escaped texts; an escaped text has one style and loses the colours of its parts."""
        super().print(*map(_safe, objects), **options)


def _safe(printed: Any) -> Any:
    if isinstance(printed, str):
        return escape_control(printed, keep="\n\t")
    if isinstance(printed, Text) and find_control(printed.plain.replace("\n", "")):
        return Text(escape_control(printed.plain, keep="\n\t"), printed.style)
    return printed
