"""Reading a document field by field, gathering everything that is wrong before complaining."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping

from pasto.errors import StudyFileError

LARGEST = 1e15
"""The largest number that a definition may hold, as for anything measured."""

_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother, _short.maxdict, _short.maxlist = 2, 60, 60, 4, 6


def show_value(value: object) -> str:
    """A value as an error message quotes it: never long, never deep.

    >>> show_value([1, 2, [3, [4]]])
    '[1, 2, [3, [...]]]'
    """
    try:
        return _short.repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def nearest_name(given: object, known: Iterable[str]) -> str:
    """A hint at the known name that was probably meant, or the names there are.

    >>> nearest_name("guardrail", ["goal", "guardrails"]), nearest_name("zzz", ["goal", "unit"])
    ("did you mean 'guardrails'?", 'there are goal, unit')
    """
    names = list(known)
    close = difflib.get_close_matches(str(given)[:200], names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else "there are none"


class ProblemList:
    """What is wrong with a document so far, by the field's path.

    >>> problems = ProblemList()
    >>> problems.fields("traffic", {"contrl": 0.1}, ("control", "explore"))
    {}
    >>> problems.found
    {'traffic.contrl': "is no field here; did you mean 'control'?"}
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, path: str, problem: str) -> None:
        """Note a problem; the first one of a field is kept."""
        self.found.setdefault(path, problem)

    def take(self, error: StudyFileError) -> None:
        """Note every problem that another reader found."""
        for path, problem in error.problems.items():
            self.add(path, problem)

    def refuse(self) -> None:
        """Raise everything that was found, if anything was."""
        if self.found:
            raise StudyFileError(self.found)

    def fields(
        self, path: str, given: object, known: Iterable[str], old_names: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        """Return the known fields of a mapping, and note all others; `old_names` maps former names to today's."""
        if not isinstance(given, Mapping):
            self.add(path, f"must be a mapping of fields, got {show_value(given)}")
            return {}
        names = list(known)
        found = {}
        for key, value in given.items():
            if key in names:
                found[str(key)] = value
            else:
                label = key if isinstance(key, str) else show_value(key)
                new_name = (old_names or {}).get(label)
                if new_name is None:
                    self.add(within(path, label[:80]), f"is no field here; {nearest_name(key, names)}")
                else:
                    self.add(within(path, label), f"is now called {new_name}; rename it")
                    found.setdefault(new_name, value)  # so that what else is wrong with it is noted, too
        return found

    def text(self, path: str, given: object, most: int = 200) -> str | None:
        """A printable text of 1 to `most` characters; anything else is noted."""
        if not isinstance(given, str):
            self.add(path, f"must be text, got {show_value(given)}; put it in quotes")
        elif not 0 < len(given) <= most or not given.isprintable() or given != given.strip():
            self.add(
                path, f"must be 1 to {most} printable characters without spaces at its ends, got {show_value(given)}"
            )
        else:
            return given
        return None

    def number(self, path: str, given: object, *, low: float = -LARGEST, high: float = LARGEST) -> float | None:
        """A finite number in a range; anything else is noted."""
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            cure = "; write it without quotes, with a point and a signed exponent if any (1.0e+3)"
            self.add(path, f"must be a number, got {show_value(given)}{cure if isinstance(given, str) else ''}")
        elif not low <= given <= high:  # NaN is nowhere
            self.add(path, f"must be a number from {low:g} to {high:g}, got {show_value(given)}")
        else:
            return float(given) + 0.0
        return None


def within(path: str, name: object) -> str:
    """The path of a field inside another.

    >>> within("metrics", "likes"), within("", "name")
    ('metrics.likes', 'name')
    """
    return f"{path}.{name}" if path else str(name)
