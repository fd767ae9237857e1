"""Validation of documents: a table of fields, and a list that gathers every problem before anything is refused.

A validator of JSON Schema is not enough: of 404 wrong study files in the tests of the parser, the published schema
rejects 343. The others break rules that join several fields. Its messages also lack the fix, such as the name that was
meant.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pasto.errors import StudyFileError

LARGEST = 1e15
"""Largest number that a definition may hold, as for every measured number."""
MAX_TEXT_CHARACTERS = 200

_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother, _short.maxdict, _short.maxlist = 2, 60, 60, 4, 6


def show_value(value: object) -> str:
    """Return a value as an error message quotes it: never long, never deep.

    >>> show_value([1, 2, [3, [4]]])
    '[1, 2, [3, [...]]]'
    """
    try:
        return _short.repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def nearest_name(given: object, names: Iterable[str]) -> str:
    """Return a hint at the name that was probably meant, or the possible names.

    >>> nearest_name("guardrail", ["goal", "guardrails"]), nearest_name("zzz", ["goal", "unit"])
    ("did you mean 'guardrails'?", 'there are goal, unit')
    """
    possible = list(names)
    close = difflib.get_close_matches(str(given)[:200], possible, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    listed = ", ".join(possible[:12])
    return f"there are {listed}{', …' if len(possible) > 12 else ''}" if possible else "there are none"


def within(path: str, name: object) -> str:
    """Return the path of a field inside another.

    >>> within("metrics", "likes"), within("", "name")
    ('metrics.likes', 'name')
    """
    return f"{path}.{name}" if path else str(name)


class ProblemList:
    """Problems of a document so far, by the path of their field.

    >>> problems = ProblemList()
    >>> problems.fields("traffic", {"contrl": 0.1}, ("control", "explore"))
    {}
    >>> problems.found
    {'traffic.contrl': "is not a field here; did you mean 'control'?"}
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, path: str, problem: str) -> None:
        """Note a problem; only the first one of a field counts."""
        self.found.setdefault(path, problem)

    def take(self, error: StudyFileError) -> None:
        """Note every problem that another reader found."""
        for path, problem in error.problems.items():
            self.add(path, problem)

    def refuse(self) -> None:
        """Raise StudyFileError with all problems, if there are any."""
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
        fields = {}
        for key, value in given.items():
            label = key if isinstance(key, str) else show_value(key)
            new_name = (old_names or {}).get(label)
            if key in names:
                fields[str(key)] = value
            elif new_name is None:
                self.add(within(path, label[:80]), f"is not a field here; {nearest_name(key, names)}")
            else:
                self.add(within(path, label), f"is now called {new_name}; rename it")
                fields.setdefault(new_name, value)  # so that its other problems are noted, too
        return fields

    def text(self, path: str, given: object, max_characters: int = MAX_TEXT_CHARACTERS) -> str | None:
        """Return a printable text of 1 to `max_characters` characters, or None and a problem."""
        if not isinstance(given, str):
            self.add(path, f"must be text, got {show_value(given)}; put it in quotes")
        elif not 0 < len(given) <= max_characters or not given.isprintable() or given != given.strip():
            limits = f"1 to {max_characters} printable characters without spaces at its ends"
            self.add(path, f"must be {limits}, got {show_value(given)}")
        else:
            return given
        return None

    def number(self, path: str, given: object, *, low: float = -LARGEST, high: float = LARGEST) -> float | None:
        """Return a finite number in a range, or None and a problem."""
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            cure = "; write it without quotes, with a point and a signed exponent if any (1.0e+3)"
            self.add(path, f"must be a number, got {show_value(given)}{cure if isinstance(given, str) else ''}")
        elif not low <= given <= high:  # NaN is nowhere
            self.add(path, f"must be a number from {low:g} to {high:g}, got {show_value(given)}")
        else:
            return float(given) + 0.0
        return None


Reader = Callable[[ProblemList, str, object], Any]


@dataclass(frozen=True, slots=True)
class FieldKind:
    """Kind of value that a field takes, declared once for the parser, the reference page and the JSON Schema."""

    name: str
    """Name on the reference page."""
    schema: Mapping[str, Any]
    """JSON Schema of a value. `#/$defs/SECTION` refers to the fields of a section."""
    read: Reader | None = None
    """Return the checked value, or note a problem. Without a reader the parser gets the value unchecked."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a document."""

    path: str
    """Names with points between; NAME stands for a name that the file's author chooses."""
    kind: FieldKind
    default: str
    """Default as a file writes it. "required", "one of two" and "one of three" have none; "—" means absent."""
    meaning: str
    example: str
    old_name: str = ""
    """Name in files of earlier versions; it is refused with a hint at today's name."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def section(self) -> str:
        """Path without the last part; empty for a field of the whole file."""
        return self.path.rpartition(".")[0]


class FieldTable:
    """Table of all fields of a document, by section.

    >>> table = FieldTable([Field("rounds.exposures", integer_kind(1, 9), "—", "Exposures", "5", "size")])
    >>> problems = ProblemList()
    >>> table.read(problems, "rounds", {"exposures": 3}), table.read(problems, "rounds", {"exposures": 99})
    ({'exposures': 3}, {})
    >>> problems.found
    {'rounds.exposures': 'must be a whole number from 1 to 9, got 99'}
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = tuple(fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def section(self, section: str) -> tuple[Field, ...]:
        """Return the fields of a section; of the whole file for the empty path."""
        return tuple(field for field in self.fields if field.section == section)

    def names(self, section: str) -> tuple[str, ...]:
        """Return the names of a section's fields."""
        return tuple(field.name for field in self.section(section))

    def old_names(self, section: str) -> dict[str, str]:
        """Return today's names of a section's renamed fields, by their former names."""
        return {field.old_name: field.name for field in self.section(section) if field.old_name}

    def read(self, problems: ProblemList, section: str, given: object, path: str | None = None) -> dict[str, Any]:
        """Return the valid fields of a section by name, and note a problem for each other one.

        `path` is the section's place in this document, such as `guardrails[0]`.
        """
        place = section if path is None else path
        given_fields = problems.fields(place, given, self.names(section), self.old_names(section))
        values = {}
        for field in self.section(section):
            if field.name not in given_fields:
                continue
            value = given_fields[field.name]
            if field.kind.read is not None:
                value = field.kind.read(problems, within(place, field.name), value)
                if within(place, field.name) in problems.found:
                    continue
            values[field.name] = value
        return values


def text_kind(max_characters: int = MAX_TEXT_CHARACTERS) -> FieldKind:
    """Return the kind of printable texts."""
    schema = {"type": "string", "minLength": 1, "maxLength": max_characters}
    return FieldKind("text", schema, lambda problems, path, given: problems.text(path, given, max_characters))


def pattern_kind(pattern: str, rule: str) -> FieldKind:
    """Return the kind of texts that match a regular expression; `rule` describes them in words."""
    expression = re.compile(pattern)

    def read(problems: ProblemList, path: str, given: object) -> str | None:
        if isinstance(given, str) and expression.fullmatch(given):
            return given
        problems.add(path, f"must be {rule}; got {show_value(given)}")
        return None

    return FieldKind("text", {"type": "string", "pattern": f"^(?:{pattern})$"}, read)


def number_kind(*, above: float | None = None) -> FieldKind:
    """Return the kind of numbers, or of numbers above a limit."""
    schema = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    if above is not None:
        schema = {"type": "number", "exclusiveMinimum": above, "maximum": LARGEST}

    def read(problems: ProblemList, path: str, given: object) -> float | None:
        number = problems.number(path, given)
        if number is not None and above is not None and not number > above:
            problems.add(path, f"must be above {above:g}, got {number:g}")
            return None
        return number

    return FieldKind("number", schema, read)


def integer_kind(low: int, high: int) -> FieldKind:
    """Return the kind of whole numbers in a range."""

    def read(problems: ProblemList, path: str, given: object) -> int | None:
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            problems.add(path, f"must be a whole number from {low:,} to {high:,}, got {show_value(given)}")
            return None
        return given

    return FieldKind("whole number", {"type": "integer", "minimum": low, "maximum": high}, read)


def choice_kind(*choices: str | None, synonyms: Mapping[str, str] | None = None) -> FieldKind:
    """Return the kind of values of which one is chosen; `synonyms` maps other words to the choice they mean."""
    words = ["null" if choice is None else choice for choice in choices]

    def read(problems: ProblemList, path: str, given: object) -> str | None:
        if (isinstance(given, str) or given is None) and given in choices:
            return given
        meant = (synonyms or {}).get(given, given) if isinstance(given, str) else given
        hint = nearest_name(meant, words)
        cure = f"; {hint}" if hint.startswith("did you mean") else ""
        problems.add(path, f"must be one of {', '.join(words)}, got {show_value(given)}{cure}")
        return None

    quoted = [word if word == "null" else f"`{word}`" for word in words]
    return FieldKind(f"{', '.join(quoted[:-1])} or {quoted[-1]}", {"enum": list(choices)}, read)


def _read_bool(problems: ProblemList, path: str, given: object) -> bool | None:
    if not isinstance(given, bool):
        problems.add(path, f"must be true or false, got {show_value(given)}")
        return None
    return given


BOOL = FieldKind("bool", {"type": "boolean"}, _read_bool)


def allow_null(kind: FieldKind) -> FieldKind:
    """Return a kind whose field may also be null, which is the same as leaving it out."""
    read = kind.read
    if read is None:
        return FieldKind(kind.name, {"anyOf": [kind.schema, {"type": "null"}]})
    return FieldKind(
        kind.name,
        {"anyOf": [kind.schema, {"type": "null"}]},
        lambda problems, path, given: None if given is None else read(problems, path, given),
    )
