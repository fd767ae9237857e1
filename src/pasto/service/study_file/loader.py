"""Loader of study files: from a text in YAML, JSON or TOML to its document, within limits."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pasto.document_validation import show_value
from pasto.errors import MissingExtraError, StudyFileError
from pasto.service.study_file.parser import parse_spec
from pasto.service.study_file.spec import StudySpec

MAX_BYTES = 4 * 2**20
"""Bytes of a study file: ten thousand candidates fit well."""

MAX_CHARACTERS = 2**20
"""Characters of a YAML or TOML text, which take twenty times as long to read as JSON."""

MAX_NODES = 100_000
"""Values, lists and mappings of a YAML text: about a second of work, and ten thousand candidates with some values."""

MAX_DEPTH = 16

Kind = Literal["yaml", "json", "toml"]

_ENDINGS: dict[str, Kind] = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def load_spec(path: str | Path) -> StudySpec:
    """Read a study file; the ending of its name decides the format."""
    return parse_spec(load_document(path))


def load_document(path: str | Path) -> dict[str, Any]:
    """Read the document of a study file, not yet checked as a study."""
    file = Path(path)
    kind = _ENDINGS.get(file.suffix.lower())
    if kind is None:
        raise StudyFileError({"": f"{file.name} must end in .yaml, .yml, .json or .toml, so that its format is known"})
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise StudyFileError({"": f"{file} cannot be read: {error.strerror or error}"}) from error
    return read_document(content, kind)


def read_spec(text: str | bytes, kind: Kind) -> StudySpec:
    """Read the text of a study file in one of the three formats.

    >>> read_spec('{"name": "feed", "name": "food"}', "json")
    Traceback (most recent call last):
    ...
    pasto.errors.StudyFileError: the json text cannot be read: 'name' occurs twice
    """
    return parse_spec(read_document(text, kind))


def read_document(text: str | bytes, kind: Kind) -> dict[str, Any]:
    """Return the plain document of a text, not yet checked as a study."""
    if kind not in _READERS:
        raise StudyFileError({"": f"a study file is yaml, json or toml, got {show_value(kind)}"})
    if len(text) > MAX_BYTES:
        raise StudyFileError({"": f"the {kind} text has over {MAX_BYTES // 2**20} MiB; a study file is smaller"})
    if kind != "json" and len(text) > MAX_CHARACTERS:
        raise StudyFileError(
            {"": f"the {kind} text may have {MAX_CHARACTERS:,} characters, got {len(text):,}; write it as JSON"}
        )
    try:
        given = text if isinstance(text, str) else text.decode("utf-8-sig")
        document = _READERS[kind](given)
        if "\\u" in given:  # only so can half a surrogate pair come in, which nothing could send back
            json.dumps(document, ensure_ascii=False, default=str, skipkeys=True).encode()
    except RecursionError:
        raise StudyFileError({"": f"the {kind} text is nested too deeply"}) from None
    except (ValueError, OverflowError) as error:
        raise StudyFileError({"": f"the {kind} text cannot be read: {' '.join(str(error).split())[:300]}"}) from None
    if not isinstance(document, dict):
        raise StudyFileError(
            {"": f"the {kind} text must be a mapping of fields such as name and metrics, got {show_value(document)}"}
        )
    return document


def _read_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_check_keys, parse_constant=_refuse_constant)


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"{key[:80]!r} occurs twice")
        fields[key] = value
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number that a study can use")


def _read_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("a YAML study file needs PyYAML", "serve") from error
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        """Loader that refuses a key that occurs twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names: set[str] = set()
            for key, _ in node.value:
                place = key.start_mark.line + 1
                if not isinstance(key.value, str):
                    raise ValueError(f"a name is a plain word, not a list or a mapping (line {place})")
                if key.value in names:
                    raise ValueError(f"{key.value[:80]!r} occurs twice (line {place})")
                names.add(key.value)
            return dict(super().construct_mapping(node, deep=deep))

    try:
        depth = nodes = 0
        for event in yaml.parse(text, Loader=base):
            nodes += isinstance(event, yaml.NodeEvent)
            if nodes > MAX_NODES:
                raise ValueError(f"it may have {MAX_NODES:,} values and names, and has more; write it as JSON")
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"*{event.anchor} repeats another value; write it out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        return yaml.load(text, Loader=Loader)  # noqa: S506 -- a safe loader, made stricter
    except yaml.YAMLError as error:
        raise ValueError(_describe_tab(text, error) or str(error).replace('in "<unicode string>", ', "at ")) from None
    except (AttributeError, KeyError, TypeError) as error:  # raised by the loader for a tag that does not fit
        raise ValueError(f"a value does not fit its tag: {error}") from None


def _describe_tab(text: str, error: Any) -> str:
    """Return what to do about the tab that YAML failed at; empty if it failed at something else."""
    mark = getattr(error, "problem_mark", None)
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines) or lines[mark.line][mark.column : mark.column + 1] != "\t":
        return ""
    return f"line {mark.line + 1} has a tab, and YAML is indented with spaces; write spaces instead of the tab"


_READERS: dict[str, Callable[[str], Any]] = {"yaml": _read_yaml, "json": _read_json, "toml": tomllib.loads}

EXAMPLE = """\
# A study: what may be served, what is measured, what to raise and what to hold.
name: feed                      # in URLs, flags and reports: a-z, 0-9, _ and -
unit: user                      # what is assigned and averaged over: user, session, request
description: Weights of the home feed

# What is served today. Everything is compared with it, and everyone gets it when in doubt.
baseline: {like_weight: 1, share_weight: 1}

# What may be served: every combination of these levels. Instead of `parameters` you can list settings one by one,
#   candidates: [{like_weight: 0, share_weight: 1}, {like_weight: 1, share_weight: 1}]
# or give ranges, in which new settings are found while the study learns:
#   ranges: {like_weight: {low: 0, high: 2}, share_weight: {low: 0, high: 2}}
parameters:
  like_weight: [0, 1, 2]
  share_weight: [0, 1, 2]

# What is measured, from your events. Each unit's events are aggregated first, then averaged over units.
metrics:
  watch_time: {event: watch, value: seconds, aggregate: sum, cap: 7200}    # no unit counts for more than its cap
  like_rate:                                                              # a ratio: likes per view
    ratio:
      - {event: like, aggregate: count, cap: 200}
      - {event: view, aggregate: count, cap: 1000}

goal: {maximize: watch_time}

# What must hold meanwhile. With a penalty a guardrail is soft (breaches cost, a little is settled for); without one it
# is hard. The loss budget is what exploring may cost. Beyond stop_at, all traffic goes back to the baseline.
guardrails:
  - {metric: like_rate, at_least: -2%, penalty: 5, loss_budget: 1%, stop_at: -5%}

traffic:
  control: 10%                  # stays on the baseline, to compare with
  explore: 100%                 # of all units, what takes part; the others get the baseline
  min_share: 2%                 # spread evenly over all candidates, so that none is forgotten
  max_share: 30%                # the most that one candidate gets
  new_candidate_share: 1%       # the most that a candidate without any measurement gets

rounds: {every: 1h, maturity: 2h}    # a new policy every hour; late events are waited for two hours
learner: thompson
confidence: 95%                      # with which each hard guardrail holds in the answer
expires_after: 1d                    # a caller cut off from the service goes back to the baseline after this
"""
