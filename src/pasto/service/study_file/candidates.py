"""Candidates of a study file: levels, rows or ranges, and the baseline among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pasto.document_validation import ProblemList, nearest_name, show_value, within
from pasto.errors import InputError
from pasto.service.study_file.schema import FIELDS, MAX_CANDIDATES, MAX_CONSTRAINT_CHARACTERS, MAX_PARAMETERS
from pasto.space import Candidates, Choice, Integer, Real, Space, grid
from pasto.space.parameters import Parameter, text
from pasto_sdk.policy_document import Value

MAX_NAME_CHARACTERS = 200
"""Characters of a candidate's name."""
_NUMBER_CHARACTERS = 12
"""Characters that a number drawn from a range takes in a name, about."""
_NO_BASELINE = "is missing; write the setting that is served today, such as {like_weight: 1}"
WAYS = ("parameters", "candidates", "ranges")


class CandidateSpec(NamedTuple):
    """Candidates of a study, its baseline and their part of the document."""

    candidates: Candidates | Space
    baseline: dict[str, Value]
    document: dict[str, Any]


def read_candidates(problems: ProblemList, document: Mapping[str, object]) -> CandidateSpec | None:
    """Return the candidates and the baseline, or None and problems."""
    given = [way for way in WAYS if way in document]
    if len(given) != 1:
        came = f"got {' and '.join(given)}" if given else "got none"
        problems.add(
            given[1] if given else "parameters",
            f"is needed once: levels by parameter in parameters, rows in candidates, or ranges; {came}",
        )
        return None
    way = given[0]
    texts = _read_constraints(problems, "constraints", document.get("constraints", []))
    if texts and way == "candidates":
        problems.add("constraints", "cannot be given with candidates, whose rows are taken as they are; leave it out")
    result: CandidateResult | None = None
    own = ProblemList()  # of this part alone, because problems of other parts do not prevent this check
    try:
        result = _READERS[way](own, document[way], texts)
        if result is not None and not own.found:
            _check_name_lengths(own, way, result[0])
    except InputError as error:
        own.add(way, f"cannot be used: {str(error).replace(', or raise limit=', '')}")
    for path, problem in own.found.items():
        problems.add(path, problem)
    if result is None or own.found:
        if document.get("baseline") is None:
            problems.add("baseline", _NO_BASELINE)
        return None
    candidates, written = result
    baseline = _read_baseline(problems, document, candidates, way)
    if baseline is None:
        return None
    constraints = {"constraints": texts} if texts else {}
    return CandidateSpec(candidates, baseline, {"baseline": baseline, way: written, **constraints})


CandidateResult = tuple[Candidates | Space, Any]


def _read_levels(problems: ProblemList, given: object, texts: list[str]) -> CandidateResult | None:
    levels = _read_lists(problems, "parameters", _read_by_parameter(problems, "parameters", given))
    if problems.found:
        return None
    checked = {name: Choice(values).options for name, values in levels.items()}
    count = math.prod(len(options) for options in checked.values())
    if count > MAX_CANDIDATES and not texts:
        problems.add(
            "parameters",
            f"make {count:,} candidates, more than the {MAX_CANDIDATES:,} that one study may have; use fewer levels, "
            "add constraints, or use ranges",
        )
        return None
    return grid(checked, *texts, limit=MAX_CANDIDATES), {name: list(options) for name, options in checked.items()}


def _read_rows(problems: ProblemList, given: object, texts: list[str]) -> CandidateResult | None:
    if not isinstance(given, (list, tuple)) or not 0 < len(given) <= MAX_CANDIDATES:
        came = f"{len(given):,} rows" if isinstance(given, (list, tuple)) else show_value(given)
        problems.add("candidates", f"must be a list of 1 to {MAX_CANDIDATES:,} rows such as {{w: 1}}, got {came}")
        return None
    rows: list[dict[str, object]] = []
    names: dict[int, str] = {}
    for place, row in enumerate(given):
        path = f"candidates[{place}]"
        if isinstance(row, Mapping) and set(row) == {"name", "values"} and isinstance(row["values"], Mapping):
            name = problems.text(within(path, "name"), row["name"])
            names.update({} if name is None else {place: name})
            row = row["values"]
        values = _read_by_parameter(problems, path, row)
        for parameter, value in values.items():
            _read_value(problems, within(path, parameter), value)
        rows.append(values)
    if problems.found:
        return None
    candidates = Candidates.from_rows(rows, limit=MAX_CANDIDATES)
    if not names:
        return candidates, list(candidates)
    chosen = [names.get(place, name) for place, name in enumerate(candidates.names)]
    renamed = Candidates.from_rows(rows, chosen, limit=MAX_CANDIDATES)
    pairs = zip(renamed, renamed.names, candidates.names, strict=True)
    return renamed, [row if name == own else {"name": name, "values": row} for row, name, own in pairs]


def _read_ranges(problems: ProblemList, given: object, texts: list[str]) -> CandidateResult | None:
    parameters: dict[str, Parameter] = {}
    written: dict[str, Any] = {}
    for name, range_ in _read_by_parameter(problems, "ranges", given).items():
        if isinstance(range_, (list, tuple)):
            for options in _read_lists(problems, "ranges", {name: range_}).values():
                parameters[name], written[name] = Choice(options), list(options)
        elif (parameter := _read_range(problems, within("ranges", name), range_)) is not None:
            ends = {"low": parameter.low, "high": parameter.high}
            parameters[name] = parameter
            written[name] = {**ends, "integer": True} if isinstance(parameter, Integer) else ends
    return None if problems.found else (Space(parameters, *texts), written)


def _read_range(problems: ProblemList, path: str, given: object) -> Real | Integer | None:
    fields = FIELDS.read(problems, "ranges.NAME", given, path)
    if not isinstance(given, Mapping):
        return None
    for end in ("low", "high"):
        if end not in fields:
            problems.add(
                within(path, end), "is missing; a range is written {low: 0, high: 2}, a choice as a list of options"
            )
    if not {"low", "high"} <= fields.keys():
        return None
    low, high, is_integer = fields["low"], fields["high"], fields.get("integer", False)
    if not low < high:
        problems.add(path, f"must go from a lower number to a higher, got {low:g} to {high:g}")
    elif is_integer and not (low.is_integer() and high.is_integer()):
        problems.add(path, f"must go from a whole number to a whole number, got {low:g} to {high:g}")
    else:
        return Integer(int(low), int(high)) if is_integer else Real(low, high)
    return None


def _check_name_lengths(problems: ProblemList, way: str, candidates: Candidates | Space) -> None:
    """Note candidates whose names are too long to be sent."""
    if isinstance(candidates, Candidates):
        longest = max(candidates.names, key=len)
        size = len(longest)
    else:
        texts = [
            max(map(len, map(text, kind.options))) if isinstance(kind, Choice) else _NUMBER_CHARACTERS
            for kind in candidates.parameters.values()
        ]
        size = sum(len(name) + 2 + width for name, width in zip(candidates.parameters, texts, strict=True))
    if size > MAX_NAME_CHARACTERS:
        cure = "give each candidate a name" if way == "candidates" else "shorten the parameters' names"
        problems.add(way, f"would make candidates' names of {size} characters, more than {MAX_NAME_CHARACTERS}; {cure}")


_READERS = {"parameters": _read_levels, "candidates": _read_rows, "ranges": _read_ranges}


def _read_baseline(
    problems: ProblemList, document: Mapping[str, object], candidates: Candidates | Space, way: str
) -> dict[str, Value] | None:
    given = document.get("baseline")
    if given is None:
        problems.add("baseline", _NO_BASELINE)
        return None
    try:
        if isinstance(given, str) and isinstance(candidates, Candidates):
            if given not in candidates.names:
                problems.add(
                    "baseline", f"is not a candidate name: {show_value(given)}; {nearest_name(given, candidates.names)}"
                )
                return None
            return candidates[given]
        values = _read_by_parameter(problems, "baseline", given)
        if not values:
            return None
        if isinstance(candidates, Candidates):
            return candidates[candidates.find(values)]
        if not candidates.contains(values):
            problems.add(
                "baseline", f"lies outside the ranges or breaks a constraint: {show_value(given)}; widen {way}"
            )
            return None
        parameters = candidates.parameters
        return {
            name: int(float(values[name])) if isinstance(kind, Integer) else values[name]  # type: ignore[arg-type, misc]
            for name, kind in parameters.items()
        }
    except InputError as error:
        problems.add("baseline", f"must be one of the candidates, so that everything can be compared with it: {error}")
        return None


def _read_by_parameter(problems: ProblemList, path: str, given: object) -> dict[str, object]:
    """Return a mapping by parameter with valid names."""
    if not isinstance(given, Mapping) or not given:
        problems.add(path, f"must be a mapping by parameter, such as {{like_weight: …}}, got {show_value(given)}")
        return {}
    if len(given) > MAX_PARAMETERS:
        problems.add(path, f"has {len(given)} parameters, more than {MAX_PARAMETERS}")
        return {}
    values = {}
    for name, value in given.items():
        spot = within(path, name if isinstance(name, str) else show_value(name))
        if problems.text(spot[:300], name) is not None:
            values[str(name)] = value
    return values


def _read_lists(problems: ProblemList, path: str, given: Mapping[str, object]) -> dict[str, Sequence[Value]]:
    """Return lists of valid values by parameter."""
    lists: dict[str, Sequence[Value]] = {}
    for name, values in given.items():
        spot = within(path, name)
        if not isinstance(values, (list, tuple)) or not 0 < len(values) <= MAX_CANDIDATES:
            cure = "; write a range under ranges: instead of parameters:" if isinstance(values, Mapping) else ""
            problems.add(spot, f"must be a list of 1 to {MAX_CANDIDATES:,} values, got {show_value(values)}{cure}")
            continue
        checked = [_read_value(problems, f"{spot}[{place}]", value) for place, value in enumerate(values)]
        valid = [value for value in checked if value is not None]
        if len(valid) == len(checked):
            lists[name] = valid
    return lists


def _read_value(problems: ProblemList, path: str, given: object) -> Value | None:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return problems.text(path, given)
    if isinstance(given, int) and abs(given) <= 2**53:
        return given
    return problems.number(path, given)


def _read_constraints(problems: ProblemList, path: str, given: object) -> list[str]:
    if not isinstance(given, (list, tuple)) or len(given) > MAX_PARAMETERS:
        problems.add(path, f"must be a list of constraints such as 'a + b <= 1', got {show_value(given)}")
        return []
    texts = [
        problems.text(f"{path}[{place}]", constraint, MAX_CONSTRAINT_CHARACTERS)
        for place, constraint in enumerate(given)
    ]
    return [constraint for constraint in texts if constraint is not None]
