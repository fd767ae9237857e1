"""From a document to a study: every field checked, everything that is wrong told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pasto.errors import BadSpec, MissingExtra, PastoError
from pasto.measure import Column, Metric, parse_metrics
from pasto.measure.document import Problems, shown
from pasto.measure.spans import read_span
from pasto.measure.written import metric_document
from pasto.objective import Objective
from pasto.service.spec.aims import goal_document, rail_document, read_aims
from pasto.service.spec.amounts import read_share
from pasto.service.spec.fields import inside
from pasto.service.spec.learners import read_learner
from pasto.service.spec.pace import read_rounds, read_traffic
from pasto.service.spec.settings import read_settings
from pasto.service.spec.sourced import read_source
from pasto.service.spec.spec import Spec
from pasto.service.spec.times import check_times
from pasto.service.spec.warnings import warnings_of
from pasto.space import Candidates
from pasto.study.study import MOST_POINTS

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_UNIT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
DAY = 86_400.0


def parse_spec(document: Mapping[str, Any], *, stored: bool = False) -> Spec:
    """Check a study file's document and make it a Spec; raises BadSpec with every problem, by field.

    With `stored`, the document is one that the store holds: a guardrail that cannot fail is then a warning, because a
    study that runs must go on.

    >>> parse_spec({"name": "Feed", "gaol": {"maximize": "likes"}})
    Traceback (most recent call last):
    ...
    pasto.errors.BadSpec: gaol is no field here; did you mean 'goal'?; name must be ...
    """
    problems = Problems()
    fields = problems.fields("", document, inside(""))
    name = _word(problems, "name", fields.get("name"), _NAME, "up to 63 of a-z, 0-9, _ and -, such as home-feed")
    unit = _word(problems, "unit", fields.get("unit", "user"), _UNIT, "one word, such as user, session or request")
    description = fields.get("description", "")
    if not (isinstance(description, str) and len(description) <= 2000 and "".join(description.split()).isprintable()):
        problems.add("description", f"must be a printable text of at most 2,000 characters, got {shown(description)}")
    settings = read_settings(problems, fields)
    metrics = _metrics(problems, fields)
    aims = read_aims(problems, fields, metrics, stored=stored)
    traffic = read_traffic(problems, fields.get("traffic", {}))
    rounds = read_rounds(problems, fields.get("rounds", {}))
    learner = read_learner(problems, fields, traffic, None if settings is None else settings.candidates)
    source = read_source(problems, fields["source"]) if fields.get("source") is not None else None
    if fields.get("source") is not None and rounds.exposures is not None:
        problems.add("rounds.exposures", "cannot be counted in tables of your own; end rounds by time, with every")
    signed = _signed(problems, fields.get("exposures", {}), has_source=fields.get("source") is not None)
    check_times(problems, metrics, rounds.maturity, source)
    confidence = read_share(problems, "confidence", fields.get("confidence", 0.95), low=0.5, open_ends="high")
    expires_after = read_span(problems, "expires_after", fields.get("expires_after", DAY), low=1.0)
    if settings is not None and isinstance(settings.candidates, Candidates) and traffic.cap is not None:
        _room(problems, traffic.cap, len(settings.candidates))
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
    if "floor" not in _mapping(fields.get("traffic")) and learner[0].name != "thompson":
        written["traffic"].pop("floor")  # the paper's learners have a schedule of their own where none is named
    spec = Spec(
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


def _word(problems: Problems, path: str, given: object, pattern: re.Pattern[str], rule: str) -> str | None:
    if isinstance(given, str) and pattern.fullmatch(given):
        return given
    problems.add(path, f"is missing; write {rule}" if given is None else f"must be {rule}; got {shown(given)}")
    return None


def _metrics(problems: Problems, fields: Mapping[str, object]) -> dict[str, Metric]:
    if "metrics" not in fields:
        problems.add("metrics", "is missing; define what is measured, such as {likes: {event: like, per_unit: count}}")
        return {}
    try:
        return parse_metrics(fields["metrics"])  # type: ignore[arg-type]  # it refuses what is no mapping
    except BadSpec as error:
        problems.take(error)
        return {}


def _signed(problems: Problems, given: object, *, has_source: bool) -> bool:
    signed = problems.fields("exposures", given, inside("exposures")).get("signed", False)
    if not isinstance(signed, bool):
        problems.add("exposures.signed", f"must be true or false, got {shown(signed)}")
        return False
    if signed and has_source:
        problems.add("exposures.signed", "cannot be checked in tables of your own; leave it out, or leave source out")
    return signed


def _room(problems: Problems, cap: float, count: int) -> None:
    if cap * count < 1 - 1e-9:
        problems.add(
            "traffic.cap",
            f"of {cap:g} on {count} candidates leaves traffic that always falls back on the baseline, whatever is "
            f"learned; raise it to at least {math.ceil(1e4 / count) / 1e4:g}, or leave it out",
        )


def _columns(objective: Objective, metrics: Mapping[str, Metric]) -> tuple[Column, ...]:
    """The objective's columns in its order, then the others."""
    known = {column.name: column for metric in metrics.values() for column in metric.columns}
    first = {name: known[name] for name in objective.metrics}
    return tuple({**first, **known}.values())


def _possible(spec: Spec) -> None:
    """Refuse what only a study itself can find impossible."""
    try:
        study = spec.study(seed=0)
    except PastoError as error:
        field = "ranges" if isinstance(error, MissingExtra) else "learner"
        raise BadSpec({field: f"cannot be used: {error}"}) from error
    every, kept = spec.rounds.every, spec.kept
    count = len(study.candidates) if study.space is None else MOST_POINTS
    if every is not None and (waiting := math.ceil(spec.rounds.maturity / every) + 1) > kept:
        raise BadSpec(
            {
                "rounds.maturity": f"makes {waiting:,} rounds wait at once, and a study of {count:,} candidates keeps "
                f"{kept} policies for waiting rounds; shorten it to {(kept - 1) * every:g} s, or make rounds longer"
            }
        )
    if every is not None and (correctable := math.ceil(spec.rounds.late / every) + 1) > kept:
        raise BadSpec(
            {
                "rounds.late": f"leaves {correctable:,} rounds open to correction at once, and a study of {count:,} "
                f"candidates keeps {kept} policies for them; shorten it to {(kept - 1) * every:g} s, or make rounds "
                "longer"
            }
        )


def _mapping(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}
