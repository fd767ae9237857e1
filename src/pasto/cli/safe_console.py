"""The console that commands print to: rich's, with control characters in names and texts escaped."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from pasto.control_characters import escape_control, find_control


class SafeConsole(Console):
    """A console that shows the control characters of what it is given to print; line ends stay."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; texts are escaped first, and one that has to be loses its colours within."""
        super().print(*map(_safe, objects), **options)


def _safe(printed: Any) -> Any:
    if isinstance(printed, str):
        return escape_control(printed, keep="\n\t")
    if isinstance(printed, Text) and find_control(printed.plain.replace("\n", "")):
        return Text(escape_control(printed.plain, keep="\n\t"), printed.style)
    return printed
