"""From a document to a study: every field checked, everything that is wrong told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from dataclasses import fields as dataclass_fields
from typing import Any

from pasto.durations import read_duration
from pasto.errors import MissingExtraError, PastoError, StudyFileError
from pasto.metrics import Column, Metric, parse_metrics
from pasto.metrics.parsing import metric_document
from pasto.objective import Objective
from pasto.optimize.learners import LEARNERS, Learner, Thompson
from pasto.optimize.learners.mirror_ascent import constant
from pasto.service.study_file.amounts import read_share
from pasto.service.study_file.candidates import read_candidates
from pasto.service.study_file.checks import check_times, warnings_of
from pasto.service.study_file.goals import goal_document, rail_document, read_goals
from pasto.service.study_file.schema import inside, learner_settings, old_names
from pasto.service.study_file.sources import read_source
from pasto.service.study_file.spec import RoundsSpec, StudySpec, TrafficSpec
from pasto.service.study_file.upgrade import upgrade_document
from pasto.space import Candidates, Space
from pasto.study.study import MOST_POINTS
from pasto.validation import ProblemList, nearest_name, show_value, within

SHORTEST = 1.0
"""Seconds that a round lasts at least."""

MOST_EXPOSURES = 10**12


def read_traffic(problems: ProblemList, given: object) -> TrafficSpec:
    """Shares of traffic; what is not said takes its default."""
    fields = problems.fields("traffic", given, inside("traffic"), old_names("traffic"))
    ends = {
        "control": "high",
        "explore": "low",
        "min_share": "high",
        "max_share": "low",
        "new_candidate_share": "low",
    }
    read = {
        name: read_share(problems, f"traffic.{name}", value, open_ends=ends[name])
        for name, value in fields.items()
        if not (value is None and name in ("max_share", "new_candidate_share"))
    }
    return TrafficSpec(**{name: share for name, share in read.items() if share is not None})


def read_rounds(problems: ProblemList, given: object) -> RoundsSpec:
    """When rounds end; what is not said takes its default."""
    fields = problems.fields("rounds", given, inside("rounds"), old_names("rounds"))
    maturity = read_duration(problems, "rounds.maturity", fields.get("maturity", 0.0)) or 0.0
    accept_late = read_duration(problems, "rounds.accept_late", fields.get("accept_late", 0.0)) or 0.0
    if "exposures" not in fields:
        every = read_duration(problems, "rounds.every", fields.get("every", 3600.0), low=SHORTEST)
        return RoundsSpec(every=every, maturity=maturity, accept_late=accept_late)
    exposures = fields["exposures"]
    if "every" in fields:
        problems.add("rounds.exposures", "stands beside every; a round ends by time or by exposures, so keep one")
    if isinstance(exposures, bool) or not isinstance(exposures, int) or not 1 <= exposures <= MOST_EXPOSURES:
        problems.add(
            "rounds.exposures", f"must be a whole number from 1 to {MOST_EXPOSURES:,}, got {show_value(exposures)}"
        )
        exposures = None
    return RoundsSpec(every=None, exposures=exposures, maturity=maturity, accept_late=accept_late)


MOST_CONTRASTED = 500
"""Candidates up to which the default learner learns each round against its own control."""


def read_learner(
    problems: ProblemList, document: Mapping[str, object], traffic: TrafficSpec, candidates: Candidates | Space | None
) -> tuple[Learner[Any], dict[str, Any]] | None:
    """The learner with its settings, and how the file writes it in full."""
    given = document.get("learner", "thompson")
    settings: dict[str, Any] = {}
    name: object = given
    if isinstance(given, Mapping):
        settings = dict(given)
        name = settings.pop("name", None)
    if not isinstance(name, str) or name not in LEARNERS:
        path = "learner.name" if isinstance(given, Mapping) else "learner"
        problems.add(
            path, f"must be one of {', '.join(LEARNERS)}, got {show_value(name)}; {nearest_name(name, LEARNERS)}"
        )
        return None
    before = len(problems.found)
    if "floor" in settings:
        problems.add("learner.floor", "is a share of traffic; write it as traffic.min_share")
        settings.pop("floor")
    settings = problems.fields("learner", settings, learner_settings(name))
    for setting, value in settings.items():
        _check(problems, within("learner", setting), setting, value)
    if len(problems.found) > before:
        return None
    has_min_share = "min_share" in _mapping(document.get("traffic"))
    options: dict[str, Any] = dict(settings)
    if name == "thompson":
        options["floor"] = traffic.min_share
        if isinstance(candidates, Space):
            options.setdefault("structure", "process")
        elif "contrast" not in options:
            few = candidates is not None and len(candidates) <= MOST_CONTRASTED
            options["contrast"] = "auto" if traffic.control > 0 and few else None
    elif has_min_share:
        options["floor"] = constant(traffic.min_share)
    try:
        built = LEARNERS[name](**options)
    except PastoError as error:
        problems.add("learner", f"cannot be used: {error}")
        return None
    if not isinstance(built, Thompson):
        return built, {"name": name, **settings}
    written = {field.name: getattr(built, field.name) for field in dataclass_fields(built) if field.name != "floor"}
    return built, {"name": name, **written}


def _check(problems: ProblemList, path: str, setting: str, value: object) -> None:
    """Refuse a setting of the wrong kind; the learner itself refuses one out of range."""
    if setting == "draws":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
            problems.add(path, f"must be a whole number from 1 to 10,000, got {show_value(value)}")
    elif setting in ("structure", "contrast"):
        choices = {"structure": ("auto", "independent", "process"), "contrast": ("auto", "difference", "percent", None)}
        if value not in choices[setting]:
            wanted = ", ".join("null" if choice is None else choice for choice in choices[setting])
            problems.add(path, f"must be one of {wanted}, got {show_value(value)}")
    elif setting == "half_life" and value is None:
        return
    else:
        number = problems.number(path, value, low=0.0)
        if number == 0:
            problems.add(path, "must be above 0, got 0")


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

_UNIT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")

DAY = 86_400.0


def parse_spec(document: Mapping[str, Any], *, stored: bool = False) -> StudySpec:
    """Check a study file's document and make it a Spec; raises BadSpec with every problem, by field.

    With `stored`, the document is one that the store holds. It may have the words of an earlier version. A guardrail
    that cannot fail is then a warning, because a study that runs must go on.

    >>> parse_spec({"name": "Feed", "gaol": {"maximize": "likes"}})
    Traceback (most recent call last):
    ...
    pasto.errors.StudyFileError: gaol is no field here; did you mean 'goal'?; name must be ...
    """
    problems = ProblemList()
    if stored:
        document = upgrade_document(document)
    fields = problems.fields("", document, inside(""))
    name = _word(problems, "name", fields.get("name"), _NAME, "up to 63 of a-z, 0-9, _ and -, such as home-feed")
    unit = _word(problems, "unit", fields.get("unit", "user"), _UNIT, "one word, such as user, session or request")
    description = fields.get("description", "")
    if not (isinstance(description, str) and len(description) <= 2000 and "".join(description.split()).isprintable()):
        problems.add(
            "description", f"must be a printable text of at most 2,000 characters, got {show_value(description)}"
        )
    settings = read_candidates(problems, fields)
    metrics = _metrics(problems, fields)
    aims = read_goals(problems, fields, metrics, stored=stored)
    traffic = read_traffic(problems, fields.get("traffic", {}))
    rounds = read_rounds(problems, fields.get("rounds", {}))
    learner = read_learner(problems, fields, traffic, None if settings is None else settings.candidates)
    source = read_source(problems, fields["source"]) if fields.get("source") is not None else None
    if fields.get("source") is not None and rounds.exposures is not None:
        problems.add("rounds.exposures", "cannot be counted in tables of your own; end rounds by time, with every")
    signed = _signed(problems, fields.get("exposures", {}), has_source=fields.get("source") is not None)
    check_times(problems, metrics, rounds.maturity, source)
    confidence = read_share(problems, "confidence", fields.get("confidence", 0.95), low=0.5, open_ends="high")
    expires_after = read_duration(problems, "expires_after", fields.get("expires_after", DAY), low=1.0)
    if settings is not None and isinstance(settings.candidates, Candidates) and traffic.max_share is not None:
        _room(problems, traffic.max_share, len(settings.candidates))
    problems.refuse()
    # Whatever is None by now has been refused.
    assert name and unit and settings and aims and learner and confidence and expires_after  # noqa: S101, PT018
    objective, rails = aims
    written = {
        "name": name,
        "unit": unit,
        "description": description,
        **settings.document,
        "metrics": {label: metric_document(metric) for label, metric in metrics.items()},
        "goal": goal_document(objective),
        "guardrails": [rail_document(rail) for rail in rails],
        "traffic": {key: share for key, share in asdict(traffic).items() if share is not None},
        "rounds": {key: value for key, value in asdict(rounds).items() if value is not None},
        "learner": learner[1],
        "confidence": confidence,
        "expires_after": expires_after,
    }
    if source is not None:
        written["source"] = source.document()
    if signed:
        written["exposures"] = {"signed": True}
    if "min_share" not in _mapping(fields.get("traffic")) and learner[0].name != "thompson":
        written["traffic"].pop("min_share")  # the paper's learners have a schedule of their own where none is named
    spec = StudySpec(
        name=name,
        unit=unit,
        description=str(description),
        candidates=settings.candidates,
        baseline=settings.baseline,
        metrics=metrics,
        columns=_columns(objective, metrics),
        objective=objective,
        guardrails=rails,
        traffic=traffic,
        rounds=rounds,
        learner=learner[0],
        confidence=confidence,
        expires_after=expires_after,
        document=written,
        source=source,
        signed=signed,
    )
    _possible(spec)
    return replace(spec, warnings=tuple(warnings_of(spec)))


def _word(problems: ProblemList, path: str, given: object, pattern: re.Pattern[str], rule: str) -> str | None:
    if isinstance(given, str) and pattern.fullmatch(given):
        return given
    problems.add(path, f"is missing; write {rule}" if given is None else f"must be {rule}; got {show_value(given)}")
    return None


def _metrics(problems: ProblemList, fields: Mapping[str, object]) -> dict[str, Metric]:
    if "metrics" not in fields:
        problems.add("metrics", "is missing; define what is measured, such as {likes: {event: like, aggregate: count}}")
        return {}
    try:
        return parse_metrics(fields["metrics"])  # type: ignore[arg-type]  # it refuses what is no mapping
    except StudyFileError as error:
        problems.take(error)
        return {}


def _signed(problems: ProblemList, given: object, *, has_source: bool) -> bool:
    signed = problems.fields("exposures", given, inside("exposures")).get("signed", False)
    if not isinstance(signed, bool):
        problems.add("exposures.signed", f"must be true or false, got {show_value(signed)}")
        return False
    if signed and has_source:
        problems.add("exposures.signed", "cannot be checked in tables of your own; leave it out, or leave source out")
    return signed


def _room(problems: ProblemList, cap: float, count: int) -> None:
    if cap * count < 1 - 1e-9:
        problems.add(
            "traffic.max_share",
            f"of {cap:g} on {count} candidates leaves traffic that always falls back on the baseline, whatever is "
            f"learned; raise it to at least {math.ceil(1e4 / count) / 1e4:g}, or leave it out",
        )


def _columns(objective: Objective, metrics: Mapping[str, Metric]) -> tuple[Column, ...]:
    """The objective's columns in its order, then the others."""
    known = {column.name: column for metric in metrics.values() for column in metric.columns}
    first = {name: known[name] for name in objective.metrics}
    return tuple({**first, **known}.values())


def _possible(spec: StudySpec) -> None:
    """Refuse what only a study itself can find impossible."""
    try:
        study = spec.study(seed=0)
    except PastoError as error:
        field = "ranges" if isinstance(error, MissingExtraError) else "learner"
        raise StudyFileError({field: f"cannot be used: {error}"}) from error
    every, kept = spec.rounds.every, spec.kept
    count = len(study.candidates) if study.space is None else MOST_POINTS
    if every is not None and (waiting := math.ceil(spec.rounds.maturity / every) + 1) > kept:
        raise StudyFileError(
            {
                "rounds.maturity": f"makes {waiting:,} rounds wait at once, and a study of {count:,} candidates keeps "
                f"{kept} policies for waiting rounds; shorten it to {(kept - 1) * every:g} s, or make rounds longer"
            }
        )
    if every is not None and (correctable := math.ceil(spec.rounds.accept_late / every) + 1) > kept:
        raise StudyFileError(
            {
                "rounds.accept_late": f"leaves {correctable:,} rounds open to correction at once, and a study of "
                f"{count:,} candidates keeps {kept} policies for them; shorten it to {(kept - 1) * every:g} s, or "
                "make rounds longer"
            }
        )


def _mapping(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}
