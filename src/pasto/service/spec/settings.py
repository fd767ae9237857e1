"""The candidates of a study file: levels, rows or ranges, and the baseline among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pasto.errors import BadInput
from pasto.measure.document import Problems, nearest, shown, within
from pasto.records import Value
from pasto.service.spec.fields import inside
from pasto.space import Candidates, Choice, Integer, Real, Space, grid
from pasto.space.parameters import Parameter

MOST = 10_000
"""Candidates in one study."""
MOST_PARAMETERS = 64
WAYS = ("parameters", "candidates", "ranges")


class Settings(NamedTuple):
    """What may be served."""

    candidates: Candidates | Space
    baseline: dict[str, Value]
    document: dict[str, Any]


def read_settings(problems: Problems, document: Mapping[str, object]) -> Settings | None:
    """The candidates and the baseline, or None and what is wrong with them."""
    given = [way for way in WAYS if way in document]
    if len(given) != 1:
        came = f"got {' and '.join(given)}" if given else "got none"
        problems.add(
            given[1] if given else "parameters",
            f"is needed once: levels by parameter in parameters, rows in candidates, or ranges; {came}",
        )
        return None
    way = given[0]
    texts = _texts(problems, "constraints", document.get("constraints", []))
    if texts and way == "candidates":
        problems.add("constraints", "stands beside candidates, whose rows are taken as they are; leave it out")
    before = len(problems.found)
    try:
        found = _READERS[way](problems, document[way], texts)
    except BadInput as error:
        problems.add(way, f"cannot be used: {error}")
        found = None
    if found is None or len(problems.found) > before:
        return None
    candidates, written = found
    baseline = _baseline(problems, document, candidates, way)
    if baseline is None:
        return None
    constraints = {"constraints": texts} if texts else {}
    return Settings(candidates, baseline, {"baseline": baseline, way: written, **constraints})


Found = tuple[Candidates | Space, Any]


def _grid(problems: Problems, given: object, texts: list[str]) -> Found | None:
    levels = _named(problems, "parameters", given)
    for name, values in levels.items():
        if not isinstance(values, (list, tuple)) or not values:
            problems.add(
                within("parameters", name),
                f"must be a list of levels such as [0, 1, 2], got {shown(values)}; for a range use ranges",
            )
    if problems.found.keys() & {within("parameters", name) for name in levels} or not levels:
        return None
    checked = {name: Choice(values).options for name, values in _lists(problems, "parameters", levels).items()}
    if len(checked) < len(levels):
        return None
    return grid(checked, *texts, limit=MOST), {name: list(options) for name, options in checked.items()}


def _rows(problems: Problems, given: object, texts: list[str]) -> Found | None:
    if not isinstance(given, (list, tuple)) or not 0 < len(given) <= MOST:
        came = f"{len(given):,} rows" if isinstance(given, (list, tuple)) else shown(given)
        problems.add("candidates", f"must be a list of 1 to {MOST:,} rows such as {{w: 1}}, got {came}")
        return None
    rows, names = [], {}
    for place, row in enumerate(given):
        path = f"candidates[{place}]"
        if isinstance(row, Mapping) and set(row) == {"name", "values"} and isinstance(row["values"], Mapping):
            name = problems.text(within(path, "name"), row["name"])
            names.update({} if name is None else {place: name})
            row = row["values"]
        values = _named(problems, path, row)
        for parameter, value in values.items():
            _value(problems, within(path, parameter), value)
        rows.append(values)
    if problems.found:
        return None
    candidates = Candidates.from_rows(rows, limit=MOST)
    if names:
        shown_names = [names.get(place, name) for place, name in enumerate(candidates.names)]
        renamed = Candidates.from_rows(rows, shown_names, limit=MOST)
        pairs = zip(renamed, renamed.names, candidates.names, strict=True)
        return renamed, [row if name == own else {"name": name, "values": row} for row, name, own in pairs]
    for place, name in enumerate(candidates.names):
        if len(name) > 200:
            problems.add(f"candidates[{place}]", "needs a name of its own: its values make one of over 200 characters")
            return None
    return candidates, list(candidates)


def _ranges(problems: Problems, given: object, texts: list[str]) -> Found | None:
    parameters: dict[str, Parameter] = {}
    written: dict[str, Any] = {}
    for name, range_ in _named(problems, "ranges", given).items():
        path = within("ranges", name)
        if isinstance(range_, (list, tuple)):
            chosen = _lists(problems, "ranges", {name: range_})
            if name in chosen:
                choice = Choice(chosen[name])
                parameters[name], written[name] = choice, list(choice.options)
            continue
        fields = problems.fields(path, range_, inside("ranges.NAME"))
        low, high = (
            problems.number(within(path, end), fields[end]) if end in fields else _missing(problems, path, end)
            for end in ("from", "to")
        )
        whole = fields.get("whole", False)
        if not isinstance(whole, bool):
            problems.add(within(path, "whole"), f"must be true or false, got {shown(whole)}")
        if low is None or high is None:
            continue
        if not low < high:
            problems.add(path, f"must go from a lower number to a higher, got {low:g} to {high:g}")
        elif whole and (low != int(low) or high != int(high)):
            problems.add(path, f"must go from a whole number to a whole number, got {low:g} to {high:g}")
        else:
            parameters[name] = Integer(int(low), int(high)) if whole else Real(low, high)
            ends = {"from": int(low), "to": int(high), "whole": True} if whole else {"from": low, "to": high}
            written[name] = ends
    if not parameters or problems.found:
        return None
    return Space(parameters, *texts), written


_READERS = {"parameters": _grid, "candidates": _rows, "ranges": _ranges}


def _baseline(
    problems: Problems, document: Mapping[str, object], candidates: Candidates | Space, way: str
) -> dict[str, Value] | None:
    given = document.get("baseline")
    if given is None:
        problems.add("baseline", "is missing; write the setting that is served today, such as {like_weight: 1}")
        return None
    try:
        if isinstance(given, str) and isinstance(candidates, Candidates):
            if given not in candidates.names:
                problems.add("baseline", f"is no candidate's name: {shown(given)}; {nearest(given, candidates.names)}")
                return None
            return candidates[given]
        values = _named(problems, "baseline", given)
        if not values:
            return None
        if isinstance(candidates, Candidates):
            return candidates[candidates.find(values)]
        if not candidates.contains(values):
            problems.add("baseline", f"lies outside the ranges or breaks a constraint: {shown(given)}; widen {way}")
            return None
        parameters = candidates.parameters
        return {
            name: int(float(values[name])) if isinstance(kind, Integer) else values[name]  # type: ignore[arg-type, misc]
            for name, kind in parameters.items()
        }
    except BadInput as error:
        problems.add("baseline", f"must be one of the candidates, so that everything can be compared with it: {error}")
        return None


def _named(problems: Problems, path: str, given: object) -> dict[str, object]:
    """A mapping by parameter, its names checked."""
    if not isinstance(given, Mapping) or not given:
        problems.add(path, f"must be a mapping by parameter, such as {{like_weight: …}}, got {shown(given)}")
        return {}
    if len(given) > MOST_PARAMETERS:
        problems.add(path, f"has {len(given)} parameters, more than {MOST_PARAMETERS}")
        return {}
    found = {}
    for name, value in given.items():
        spot = within(path, name if isinstance(name, str) else shown(name))
        if problems.text(spot[:300], name) is not None:
            found[str(name)] = value
    return found


def _lists(problems: Problems, path: str, given: Mapping[str, object]) -> dict[str, Sequence[Value]]:
    """Lists of values, every value checked."""
    found: dict[str, Sequence[Value]] = {}
    for name, values in given.items():
        spot = within(path, name)
        if not isinstance(values, (list, tuple)) or not 0 < len(values) <= MOST:
            problems.add(spot, f"must be a list of 1 to {MOST:,} values, got {shown(values)}")
            continue
        checked = [_value(problems, f"{spot}[{place}]", value) for place, value in enumerate(values)]
        known = [value for value in checked if value is not None]
        if len(known) == len(checked):
            found[name] = known
    return found


def _value(problems: Problems, path: str, given: object) -> Value | None:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return problems.text(path, given)
    if isinstance(given, int) and abs(given) <= 2**53:
        return given
    return problems.number(path, given)


def _texts(problems: Problems, path: str, given: object) -> list[str]:
    if not isinstance(given, (list, tuple)) or len(given) > MOST_PARAMETERS:
        problems.add(path, f"must be a list of constraints such as 'a + b <= 1', got {shown(given)}")
        return []
    texts = [problems.text(f"{path}[{place}]", text, 500) for place, text in enumerate(given)]
    return [text for text in texts if text is not None]


def _missing(problems: Problems, path: str, end: str) -> None:
    problems.add(within(path, end), "is missing; a range is written {from: 0, to: 2}, a choice as a list of options")
