"""Edit of a running study: the fields that may change, the reasons why others may not, and the changes by field.

An edit never changes what earlier rounds measured or asked for. It changes how further rounds are served, judged and
ended. So everything learned stays valid, and every comparison within a round does too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pasto.document_validation import nearest_name, show_value
from pasto.errors import OptionError, StudyFileError
from pasto.service.study_file.parser import parse_spec
from pasto.service.study_file.schema import FIELDS
from pasto.service.study_file.spec import GuardrailSpec, StudySpec
from pasto.space import Candidates, Space

CANDIDATE_FIELDS = ("parameters", "candidates", "ranges", "constraints")
ANOTHER = "create another study, which can start from the results of this one with history"
REASONS = {
    "name": "is in the address, the events and the salt of the study; " + ANOTHER,
    "unit": "is what every round so far was assigned by and averaged over; " + ANOTHER,
    "baseline": "is what every round so far was compared with; " + ANOTHER,
    "metrics": "define what the rounds so far measured, which cannot be mixed with another measurement; " + ANOTHER,
    "goal": "decides what the study measures and learns; ask other questions of its data with what-if, or " + ANOTHER,
    "learner": "has its own form for what it learned; " + ANOTHER,
    "source": "is where the rounds so far were measured; " + ANOTHER,
    "exposures": "decides which events of the rounds so far counted; " + ANOTHER,
    "segments": "divide what every round so far measured; " + ANOTHER,
    "history": "is what the study started from; " + ANOTHER,
    "ranges": "decide which candidates the study has found so far; " + ANOTHER,
    "layer": "decides which units the study and its neighbours have; only its share can change; " + ANOTHER,
    "parameters": "name what every candidate so far consists of; " + ANOTHER,
    "guardrails": "are measured in every round, so none can be added or taken away; change the levels of those that "
    "there are, or " + ANOTHER,
}
"""Reasons why a field of a running study cannot be changed, by field."""
GUARDRAIL_FIELDS = ("at_least", "at_most", "penalty", "loss_budget", "stop_at", "tolerance")
EDITABLE_FIELDS = ("description", "owner", "confidence", "deploy_for", "expires_after", "audience")
EDITABLE_SECTIONS = ("traffic", "rounds", "guardrails", "candidates", "layer")
PHASE_FIELDS = ("description", "owner", "deploy_for")
"""Fields that may change while units keep their arm; stop levels may, too."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Change of one field of a study file."""

    field: str
    """Path of the field, such as `traffic.explore`, `guardrails.like_rate.at_least` or `candidates.NAME`."""
    before: Any
    """Former value; None if the field was absent."""
    after: Any
    """New value; None if the field is absent now."""


@dataclass(frozen=True, slots=True)
class StudyEdit:
    """Edit of a running study, as lists of edits show it."""

    round: int
    """Round that the edit ended; the next one ran under the edited file."""
    generation: int
    """Generation of the study since the edit."""
    at: float
    who: str
    reason: str
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class RecordedEdit:
    """Edit that a close applied, with both study files, so that a replay can apply it again."""

    who: str
    reason: str
    changes: tuple[FieldChange, ...]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> RecordedEdit:
        """Decode an edit from the JSON of a close record."""
        return cls(**{**saved, "changes": tuple(FieldChange(**change) for change in saved["changes"])})


@dataclass(frozen=True, slots=True)
class EditRequest:
    """Requested edit: a whole study file, or changes of the present one.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> request = EditRequest(fields={"traffic.explore": "25%", "guardrails.like_rate.at_least": "-1%"})
    >>> changes = plan_edit(read_spec(EXAMPLE, "yaml"), request).changes
    >>> [(change.field, change.before, change.after) for change in changes]
    [('traffic.explore', 1.0, 0.25), ('guardrails.like_rate.at_least', '-2%', '-1%')]
    """

    document: Mapping[str, Any] | None = None
    """Whole study file; None keeps the present one, to which the other parts apply."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values by path; None removes a field."""
    add: Sequence[Mapping[str, Any]] = ()
    """New candidates, as a study file lists them under `candidates`."""
    retire: Sequence[str] = ()
    """Names of candidates that are not to be served any more."""
    restore: Sequence[str] = ()
    """Names of retired candidates that are to be served again."""

    def __post_init__(self) -> None:
        if self.document is not None and (self.fields or self.add or self.retire or self.restore):
            raise OptionError("an edit is a whole study file or changes of the present one, not both")


@dataclass(frozen=True, slots=True)
class EditPlan:
    """Study file after an edit, and its differences from the present one."""

    spec: StudySpec
    changes: tuple[FieldChange, ...]


def plan_edit(spec: StudySpec, request: EditRequest, state: str = "learning") -> EditPlan:
    """Return the study file that an edit of a running study leads to; StudyFileError lists what may not change.

    A study file that leaves out candidates retires them. It needs to repeat neither `history` nor `retired`.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> plan_edit(read_spec(EXAMPLE, "yaml"), EditRequest(fields={"goal": {"minimize": "watch_time"}}))
    Traceback (most recent call last):
    ...
    pasto.errors.StudyFileError: goal decides what the study measures and learns; ask other questions ...
    """
    fixed = {path.partition(".")[0] for path in request.fields if "." in path} - {*EDITABLE_SECTIONS}
    problems = {section: REASONS[section] for section in fixed if section in REASONS}
    if problems:
        raise StudyFileError(problems)
    given = parse_request(spec, request, running=True)
    document = {name: part for name, part in given.document.items() if name not in (*CANDIDATE_FIELDS, "retired")}
    document["guardrails"] = _order_guardrails(spec, given, problems)
    document |= _merge_candidates(spec, given, problems)
    after = spec if problems else parse_spec(document, running=True)
    changes = tuple(compare_files(spec, after if not problems else given))
    for change in changes:
        if (reason := _find_reason(change, spec, given, state)) is not None:
            problems.setdefault(change.field if change.field.startswith("guardrails.") else _root(change), reason)
    if problems:
        named = {reason for field, reason in problems.items() if field in request.fields}
        own = {field: reason for field, reason in problems.items() if field in request.fields or reason not in named}
        raise StudyFileError(own)
    return EditPlan(after, changes)


def parse_request(spec: StudySpec, request: EditRequest, *, running: bool = False) -> StudySpec:
    """Return the study file that a request asks for; problems have the names that the request uses."""
    try:
        return parse_spec(apply_request(spec, request), running=running)
    except StudyFileError as error:
        if not any(path.startswith("guardrails.") for path in request.fields):
            raise
        raise StudyFileError(
            {_name_guardrail(path, spec): problem for path, problem in error.problems.items()}
        ) from None


def _name_guardrail(path: str, spec: StudySpec) -> str:
    """Return the path of a field with the name of its guardrail, if it has its place in the list."""
    head, bracket, rest = path.partition("]")
    place = head.removeprefix("guardrails[")
    is_listed = bool(bracket) and place.isdecimal() and int(place) < len(spec.guardrails)
    return f"guardrails.{spec.guardrails[int(place)].name}{rest}" if is_listed else path


def apply_request(spec: StudySpec, request: EditRequest) -> dict[str, Any]:
    """Return the document that a request asks for, not yet checked."""
    if request.document is not None:
        target = dict(request.document)
        target["learner"] = _complete_learner(target.get("learner", "thompson"), spec.document["learner"])
        target["layer"] = _complete_layer(target.get("layer"), spec.document.get("layer"))
        if target["layer"] is None:
            del target["layer"]
        for name in ("history", "retired"):
            if name in spec.document:
                target.setdefault(name, spec.document[name])
        missing = _find_missing(spec, target)
        target["retired"] = [name for name in target.get("retired", ()) if name not in missing]
    else:
        target = {name: _copy(part) for name, part in spec.document.items()}
    for path, value in request.fields.items():
        _set_field(target, path, value, spec)
    _check_candidates(spec, request)
    if request.add:
        rows = _list_rows(spec)
        for name in CANDIDATE_FIELDS:
            target.pop(name, None)
        target["candidates"] = [*rows, *request.add]
    retired = [*target.pop("retired", ()), *request.retire]
    for name in request.restore:
        if name not in retired:
            raise OptionError(f"{name!r} is not a retired candidate; {nearest_name(name, retired)}")
    if retired := [name for name in dict.fromkeys(retired) if name not in request.restore]:
        target["retired"] = retired
    return target


def _check_candidates(spec: StudySpec, request: EditRequest) -> None:
    """Raise StudyFileError for candidates that an edit cannot add or retire, with the names that it uses."""
    if not isinstance(spec.candidates, Candidates):
        return
    problems: dict[str, str] = {}
    names = {_key(row): name for row, name in zip(spec.candidates, spec.candidates.names, strict=True)}
    for row in request.add:
        values = row["values"] if set(row) == {"name", "values"} else row
        if not isinstance(values, Mapping) or not all(type(value) in (str, int, float) for value in values.values()):
            continue  # the parser describes it
        if set(values) != set(spec.candidates.parameters):
            given, needed = ", ".join(map(str, values)), ", ".join(spec.candidates.parameters)
            problems["add"] = f"must have a value for each parameter ({needed}), got {given or 'none'}"
        elif (name := names.get(_key(values))) is not None:
            cure = "; restore it" if name in spec.retired else ""
            problems["add"] = f"has the values of the {'retired ' if cure else ''}candidate {name!r}{cure}"
    for name in request.retire:
        if name not in spec.candidates.names:
            problems["retire"] = f"has {show_value(name)}, which is not a candidate; " + nearest_name(
                name, [known for known in spec.candidates.names if known not in spec.retired]
            )
        elif name == names[_key(spec.baseline)]:
            problems["retire"] = f"has {name!r}, which is the baseline that everything is compared with; keep it"
    if problems:
        raise StudyFileError(problems)


def compare_files(before: StudySpec, after: StudySpec) -> Iterator[FieldChange]:
    """Yield the fields in which two study files differ: guardrails by name, candidates each as one change."""
    old, new = before.document, after.document
    for name in dict.fromkeys((*old, *new)):
        if name in (*CANDIDATE_FIELDS, "retired", "guardrails"):
            continue
        was, now = old.get(name), new.get(name)
        if name in ("traffic", "rounds", "layer") and isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _compare_fields(name, was, now)
        elif was != now:
            yield FieldChange(name, was, now)
    rails = dict(zip(_rail_keys(after), new["guardrails"], strict=True))
    for key, rail, was in zip(_rail_keys(before), before.guardrails, old["guardrails"], strict=True):
        yield from _compare_fields(f"guardrails.{rail.name}", was, rails.get(key, {}))
    yield from _compare_candidates(before, after)


def _compare_fields(section: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[FieldChange]:
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            yield FieldChange(f"{section}.{name}", was.get(name), now.get(name))


def _compare_candidates(before: StudySpec, after: StudySpec) -> Iterator[FieldChange]:
    if not isinstance(before.candidates, Candidates) or not isinstance(after.candidates, Candidates):
        if before.document.get("ranges") != after.document.get("ranges") or _constraints(before) != _constraints(after):
            yield FieldChange("ranges", before.document.get("ranges"), after.document.get("ranges"))
        return
    known = set(before.candidates.names)
    for name in after.candidates.names:
        if name not in known:
            yield FieldChange(f"candidates.{name}", None, dict(after.candidates[name]))
        elif (name in before.retired) != (name in after.retired):
            states = ("retired", "served") if name in before.retired else ("served", "retired")
            yield FieldChange(f"candidates.{name}", *states)


def _constraints(spec: StudySpec) -> Any:
    return spec.document.get("constraints", [])


def _root(change: FieldChange) -> str:
    """Return the field that a refusal names: a whole section if no part of it may change."""
    section = change.field.partition(".")[0]
    return change.field if section in EDITABLE_SECTIONS else section


def _find_reason(change: FieldChange, before: StudySpec, given: StudySpec, state: str) -> str | None:
    """Return the reason why a field may not change; None if it may."""
    section, _, rest = change.field.partition(".")
    name = rest.rpartition(".")[2]
    if section not in (*EDITABLE_FIELDS, *EDITABLE_SECTIONS):
        return REASONS.get(section, "cannot be changed while the study runs; " + ANOTHER)
    if section == "guardrails" and name not in GUARDRAIL_FIELDS:
        return REASONS["guardrails"]
    if section == "layer" and name != "share":
        return REASONS["layer"]
    if section == "guardrails" and name in ("at_least", "at_most"):
        was, now = (isinstance(level, str) for level in (change.before, change.after))
        if was != now:
            return (
                "changes between a percentage over the baseline and a number, and the learner learned in the one it "
                f"had; write a level like {change.before!r}"
            )
    if section == "audience" and not before.traffic.control:
        return (
            "decides whose means the rounds measure, and without a control the learner would take the means of other "
            "units for an effect of candidates; " + ANOTHER
        )
    if change.field == "traffic.control" and not (before.traffic.control and given.traffic.control):
        return (
            "cannot change between no control and a control: the learner and the guardrail monitor compare each round "
            "with its control; " + ANOTHER
        )
    if change.field == "traffic.min_share" and before.document["learner"]["name"] != "thompson":
        return "belongs to the schedule of this learner; " + ANOTHER
    if state in ("confirming", "deployed") and not (section in PHASE_FIELDS or name in ("stop_at", "tolerance")):
        return (
            f"cannot be changed while the study is {state}, because units keep their arm and the blend is frozen; "
            f"there, {', '.join(PHASE_FIELDS)} and the stop_at of guardrails may change"
        )
    return None


def _complete_learner(given: Any, present: Mapping[str, Any]) -> Any:
    """Return the learner of a file with the settings that it leaves out as they are: their defaults may have moved."""
    settings = {"name": given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping) or settings.get("name") != present["name"]:
        return given
    return {**present, **settings}


def _complete_layer(given: Any, present: Mapping[str, Any] | None) -> Any:
    """Return the layer of a file with the start of the study's present interval, if the file leaves it out."""
    if present is None or not isinstance(given, Mapping) or given.get("name") != present["name"]:
        return given
    return {"start": present.get("start"), **given} if "start" in present else given


def _find_missing(spec: StudySpec, target: Mapping[str, Any]) -> set[str]:
    """Return the retired candidates that a file does not list among its candidates, either."""
    if not spec.retired or not isinstance(spec.candidates, Candidates):
        return set()
    without = {name: part for name, part in target.items() if name != "retired"}
    given = parse_spec(without, running=True).candidates
    listed = set(map(_key, given)) if isinstance(given, Candidates) else set()
    return {name for name in spec.retired if _key(spec.candidates[name]) not in listed}


def _set_field(target: dict[str, Any], path: str, value: Any, spec: StudySpec) -> None:
    """Set one field of a document; None removes it."""
    section, _, rest = path.partition(".")
    owner: dict[str, Any] = target
    name = path
    if section == "guardrails" and rest:
        rail, _, name = rest.rpartition(".")
        if any(rest in (guardrail.name, guardrail.metric) for guardrail in spec.guardrails):
            raise StudyFileError({path: f"is a whole guardrail; set one field of it, such as {path}.stop_at"})
        owner = _find_rail(target, rail, path, spec)
        if name in ("at_least", "at_most") and name not in owner:
            other = "at_most" if name == "at_least" else "at_least"
            raise StudyFileError({path: f"is not the side of this guardrail; it has {other}"})
        if name in ("at_least", "at_most", "tolerance"):
            _release_stop_level(owner, target, spec)
    elif rest:
        if section not in FIELDS.names("") or not isinstance(target.setdefault(section, {}), dict):
            raise StudyFileError({path: f"is not a field here; {nearest_name(section, FIELDS.names(''))}"})
        owner, name = target[section], rest
        while "." in name and isinstance(inner := owner.get(name.partition(".")[0]), dict):
            owner, name = inner, name.partition(".")[2]
        if section == "metrics" and name in ("cap", "range"):
            owner.pop("range" if name == "cap" else "cap", None)
    if value is None:
        owner.pop(name, None)
        if path == "traffic.ramp":
            owner.pop("advance_after", None)
    else:
        owner[name] = value
        if name in ("every", "exposures") and section == "rounds":
            owner.pop("exposures" if name == "every" else "every", None)
        if name in ("explore", "ramp") and section == "traffic":
            for other in ("ramp", "advance_after") if name == "explore" else ("explore",):
                owner.pop(other, None)


def _release_stop_level(rail: dict[str, Any], target: Mapping[str, Any], spec: StudySpec) -> None:
    """Remove a stop level that follows from the threshold and the tolerance, so that it moves with them."""
    guardrail = spec.guardrails[target["guardrails"].index(rail)]
    distance = -guardrail.tolerance if guardrail.lower else guardrail.tolerance
    if rail.get("stop_at") == guardrail.at.moved(distance).written():
        rail.pop("stop_at")


def _find_rail(target: Mapping[str, Any], rail: str, path: str, spec: StudySpec) -> dict[str, Any]:
    names = [guardrail.name for guardrail in spec.guardrails]
    places = [place for place, guardrail in enumerate(spec.guardrails) if rail in (guardrail.name, guardrail.metric)]
    if len(places) != 1:
        raise StudyFileError({path: f"names no guardrail: {show_value(rail)}; {nearest_name(rail, names)}"})
    found: dict[str, Any] = target["guardrails"][places[0]]
    return found


RailKey = tuple[str, bool, str | None]
"""What identifies a guardrail: its metric, its side and its segment."""


def _rail_keys(spec: StudySpec) -> list[RailKey]:
    return [_rail_key(rail) for rail in spec.guardrails]


def _rail_key(rail: GuardrailSpec) -> RailKey:
    return rail.metric, rail.lower, rail.within


def _order_guardrails(spec: StudySpec, given: StudySpec, problems: dict[str, str]) -> list[Any]:
    """Return the new guardrails in the order of the present ones, on which what was learned depends."""
    rails = dict(zip(_rail_keys(given), given.document["guardrails"], strict=True))
    if rails.keys() != set(_rail_keys(spec)):
        problems["guardrails"] = REASONS["guardrails"]
        return list(rails.values())
    return [rails[key] for key in _rail_keys(spec)]


def _merge_candidates(spec: StudySpec, given: StudySpec, problems: dict[str, str]) -> dict[str, Any]:
    """Return the candidates' part of the document: the present candidates keep their index, and new ones follow."""
    present = {name: spec.document[name] for name in (*CANDIDATE_FIELDS, "retired") if name in spec.document}
    before, after = spec.candidates, given.candidates
    if isinstance(before, Space) or isinstance(after, Space):
        if given.document.get("ranges") != spec.document.get("ranges") or _constraints(given) != _constraints(spec):
            problems["ranges"] = REASONS["ranges"]
        return present
    if set(before.parameters) != set(after.parameters):
        problems["parameters"] = REASONS["parameters"]
        return present
    names = {_key(row): name for row, name in zip(before, before.names, strict=True)}
    listed = {_key(row): name for row, name in zip(after, after.names, strict=True)}
    added = {name: after[name] for key, name in listed.items() if key not in names}
    for name, row in added.items():
        if name in before.names:
            problems[f"candidates.{name}"] = "is the name of another candidate; choose a new one"
        for parameter, value in row.items():
            is_text = {isinstance(known[parameter], str) for known in before}
            if is_text == {not isinstance(value, str)}:
                kind = "numbers" if isinstance(value, str) else "texts"
                problems[f"candidates.{name}"] = (
                    f"has {parameter}: {value!r}, and all other candidates have {kind} there, which callers expect"
                )
    given_names = {name: names.get(key, name) for key, name in listed.items()}
    retired = {given_names[name] for name in given.retired} | {name for key, name in names.items() if key not in listed}
    if names[_key(spec.baseline)] in retired:
        problems["baseline"] = REASONS["baseline"]
    if problems:
        return present
    if added:
        rows = [*_list_rows(spec), *({"name": name, "values": dict(row)} for name, row in added.items())]
        present = {"candidates": rows}
    order = [*before.names, *added]
    present.pop("retired", None)
    return {**present, **({"retired": [name for name in order if name in retired]} if retired else {})}


def _list_rows(spec: StudySpec) -> list[dict[str, Any]]:
    """Return the present candidates with their names, as a study file lists them."""
    if not isinstance(spec.candidates, Candidates):
        raise StudyFileError({"ranges": REASONS["ranges"]})
    return [
        {"name": name, "values": dict(row)} for row, name in zip(spec.candidates, spec.candidates.names, strict=True)
    ]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(row.items()))


def _copy(part: Any) -> Any:
    """Return a copy of a part of a document, in which fields can be set."""
    if isinstance(part, Mapping):
        return {name: _copy(inner) for name, inner in part.items()}
    return [_copy(inner) for inner in part] if isinstance(part, (list, tuple)) else part
