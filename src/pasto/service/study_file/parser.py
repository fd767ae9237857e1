"""Parser of study files: from a document, written by a person or stored, to a study; every problem is found at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any

from pasto.document_validation import ProblemList, nearest_name, show_value
from pasto.errors import HistoryError, MissingExtraError, PastoError, StudyFileError, UnsupportedError
from pasto.metrics import MEMBERS, Column, Metric, parse_metrics
from pasto.metrics.parsing import average_over_members, metric_document
from pasto.objective import Objective
from pasto.optimize.learners import FORMER_NAMES, LEARNERS, Learner, Thompson, current_name
from pasto.optimize.learners.mirror_ascent import constant
from pasto.service.study_file.audience import write_audience
from pasto.service.study_file.candidates import CandidateSpec, read_candidates
from pasto.service.study_file.checks import check_times, find_warnings
from pasto.service.study_file.goals import goal_document, rail_document, read_goals
from pasto.service.study_file.history import read_history
from pasto.service.study_file.schema import FIELDS, learner_settings
from pasto.service.study_file.segments import check_segments, write_segments
from pasto.service.study_file.sources import check_attributes, read_source
from pasto.service.study_file.spec import LAYER_PARTS, LayerSpec, RoundsSpec, StudySpec, TeamSource, TrafficSpec
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import MAX_GROWN_CANDIDATES
from pasto_sdk.enrolment import OTHER_SEGMENT

DAY_SECONDS = 86_400.0
DEPLOY_SECONDS = 180.0 * DAY_SECONDS
"""Time for which a blend is served after learning, if the study file does not say."""
MAX_CONTRASTED_CANDIDATES = 500
"""Candidates up to which the default learner learns each round against its own control."""


def parse_spec(document: Mapping[str, Any], *, stored: bool = False, running: bool = False) -> StudySpec:
    """Return the study of a study file's document, or raise StudyFileError with every problem, by field.

    With `stored`, the document is one that the store holds. It may have the words of an earlier version. A guardrail
    that cannot fail is then a warning, because a study that runs must go on. With `running`, it is a new file of a
    study that runs, which may have retired candidates.

    >>> parse_spec({"name": "Feed", "gaol": {"maximize": "likes"}})
    Traceback (most recent call last):
    ...
    pasto.errors.StudyFileError: gaol is not a field here; did you mean 'goal'?; name must be ...
    """
    problems = ProblemList()
    if stored:
        document = upgrade_document(document)
    fields = FIELDS.read(problems, "", document)
    if "name" not in fields:
        problems.add("name", "is missing; write up to 63 of a-z, 0-9, _ and -, such as home-feed")
    unit, cluster = _read_unit(problems, fields.get("unit", "user"))
    candidates = read_candidates(problems, fields)
    metrics = _read_metrics(problems, fields)
    if cluster is not None:
        metrics = average_over_members(metrics)
    segments = fields.get("segments")
    names = () if segments is None else (*segments.names, OTHER_SEGMENT)
    aims = read_goals(problems, fields, metrics, names, stored=stored)
    traffic = _read_traffic(problems, fields.get("traffic", {}))
    rounds = _read_rounds(problems, fields.get("rounds", {}))
    learner = _read_learner(problems, fields, traffic, None if candidates is None else candidates.candidates)
    has_source = fields.get("source") is not None
    source = read_source(problems, fields["source"]) if has_source else None
    if has_source and rounds.exposures is not None:
        problems.add("rounds.exposures", "cannot be counted in tables of your own; end rounds by time, with every")
    exposures = _read_exposures(problems, fields.get("exposures", {}), source)
    layer = _read_layer(problems, fields["layer"], exposures) if "layer" in fields else None
    if not stored and isinstance(document, Mapping) and "segments" in document:
        problems.add("segments", "cannot be learned yet: a study has one blend for all units; leave segments out")
    if segments is not None:
        is_external = exposures.get("assigned_by") == "external"
        given = None if candidates is None else candidates.candidates
        check_segments(problems, segments, given, source, is_external=is_external, has_history="history" in fields)
    if cluster is not None:
        _check_cluster(problems, exposures, has_segments=segments is not None)
    if source is not None:
        check_attributes(problems, fields.get("audience", ()), segments, cluster, source)
    check_times(problems, metrics, rounds.maturity, source)
    retired = fields.get("retired", ())
    if candidates is not None and retired:
        _check_retired(problems, retired, candidates, running=stored or running)
    if candidates is not None and isinstance(candidates.candidates, Candidates) and traffic.max_share is not None:
        _check_max_share(problems, traffic.max_share, len(candidates.candidates) - len(retired))
    history = None
    if "history" in fields and candidates is not None and aims is not None:
        history = read_history(problems, fields["history"], metrics, aims[0], candidates.candidates)
    problems.refuse()
    assert candidates and aims and learner  # noqa: S101, PT018 -- refused otherwise
    objective, rails = aims
    spec = StudySpec(
        name=fields["name"],
        unit=unit,
        description=fields.get("description", ""),
        candidates=candidates.candidates,
        baseline=candidates.baseline,
        metrics=metrics,
        columns=_order_columns(objective, metrics, (MEMBERS,) if cluster is not None else ()),
        objective=objective,
        guardrails=rails,
        traffic=traffic,
        rounds=rounds,
        learner=learner.learner,
        confidence=fields.get("confidence", 0.95),
        deploy_for=fields.get("deploy_for", DEPLOY_SECONDS),
        expires_after=fields.get("expires_after", DAY_SECONDS),
        document={},
        source=source,
        signed=exposures.get("signed", False),
        is_external=exposures.get("assigned_by") == "external",
        history=history,
        owner=fields.get("owner", ""),
        retired=retired,
        layer=layer,
        audience=fields.get("audience", ()),
        segments=segments,
        cluster=cluster,
    )
    spec = replace(spec, document=_write_document(spec, candidates.document, learner))
    _check_study(spec)
    return replace(spec, warnings=tuple(find_warnings(spec)))


@dataclass(frozen=True, slots=True)
class LearnerSpec:
    """Learner of a study file, and its settings with every default written out."""

    learner: Learner[Any]
    document: dict[str, Any]
    has_min_share: bool
    """The learner spreads `traffic.min_share`, and not a schedule of its own."""


def _write_document(spec: StudySpec, candidates: dict[str, Any], learner: LearnerSpec) -> dict[str, Any]:
    """Return a study as plain JSON, with every default written out; the parser reads it back as the same study."""
    document = {
        "name": spec.name,
        "unit": spec.unit if spec.cluster is None else {"name": spec.unit, "cluster": spec.cluster},
        "description": spec.description,
        **({"owner": spec.owner} if spec.owner else {}),
        **candidates,
        **({"retired": list(spec.retired)} if spec.retired else {}),
        "metrics": {label: metric_document(metric) for label, metric in spec.metrics.items()},
        "goal": goal_document(spec.objective),
        "guardrails": [rail_document(rail) for rail in spec.guardrails],
        "traffic": spec.traffic.to_document(),
        "rounds": {key: value for key, value in asdict(spec.rounds).items() if value is not None},
        "learner": learner.document,
        "confidence": spec.confidence,
        "deploy_for": spec.deploy_for,
        "expires_after": spec.expires_after,
    }
    if spec.audience:
        document["audience"] = write_audience(spec.audience)
    if spec.segments is not None:
        document["segments"] = write_segments(spec.segments)
    if spec.source is not None:
        document["source"] = spec.source.document()
    if spec.signed or spec.is_external:
        document["exposures"] = {"signed": True} if spec.signed else {"assigned_by": "external"}
    if spec.layer is not None:
        document["layer"] = spec.layer.document()
    if spec.history is not None:
        document["history"] = spec.history.to_rows()
    if not learner.has_min_share:
        document["traffic"].pop("min_share")
    return document


def _read_unit(problems: ProblemList, given: object) -> tuple[str, str | None]:
    """Return the unit, and the attribute with its cluster."""
    if not isinstance(given, Mapping):
        unit: str = FIELDS.read(problems, "unit", {"name": given}).get("name", "user")
        if "unit.name" in problems.found:
            problems.found["unit"] = problems.found.pop("unit.name")
        return unit, None
    fields = FIELDS.read(problems, "unit", given)
    name, cluster = fields.get("name", "user"), fields.get("cluster")
    if "cluster" not in given:
        problems.add("unit.cluster", "is missing; name the attribute with the cluster, or write the unit alone: user")
    elif cluster == name:
        problems.add("unit.cluster", f"is the unit itself; write unit: {name}, and every {name} is assigned alone")
    return name, cluster


def _check_cluster(problems: ProblemList, exposures: Mapping[str, Any], *, has_segments: bool) -> None:
    """Note ways of exposure that do not carry the cluster of a unit."""
    if exposures.get("assigned_by") == "external":
        problems.add(
            "unit.cluster", "cannot be read with assigned_by: external; assign by the cluster, as unit: school"
        )
    if exposures.get("signed"):
        problems.add("unit.cluster", "is not part of a signature; leave exposures.signed out")
    if has_segments:
        problems.add(
            "unit.cluster", "cannot be given with segments, which would divide clusters; leave one of them out"
        )


def _read_metrics(problems: ProblemList, fields: Mapping[str, Any]) -> dict[str, Metric]:
    if "metrics" not in fields:
        problems.add("metrics", "is missing; define what is measured, such as {likes: {event: like, aggregate: count}}")
        return {}
    try:
        return parse_metrics(fields["metrics"])
    except StudyFileError as error:
        problems.take(error)
        return {}


def _read_traffic(problems: ProblemList, given: object) -> TrafficSpec:
    fields = FIELDS.read(problems, "traffic", given)
    if "ramp" in fields and "explore" in fields:
        problems.add("traffic.explore", "cannot be given with ramp, whose steps are the shares; leave one of them out")
    if "advance_after" in fields and isinstance(given, Mapping) and "ramp" not in given:
        problems.add("traffic.advance_after", "is for a ramp; give one, such as ramp: [1%, 5%, 100%], or leave it out")
    return TrafficSpec(**fields)


def _read_rounds(problems: ProblemList, given: object) -> RoundsSpec:
    fields = FIELDS.read(problems, "rounds", given)
    is_by_exposures = isinstance(given, Mapping) and "exposures" in given
    if not is_by_exposures:
        return RoundsSpec(**fields)
    if "every" in fields:
        problems.add(
            "rounds.exposures", "cannot be given with every; a round ends by time or by exposures, so keep one"
        )
    return RoundsSpec(**{**fields, "every": None})


def _read_exposures(problems: ProblemList, given: object, source: TeamSource | None) -> dict[str, Any]:
    fields: dict[str, Any] = FIELDS.read(problems, "exposures", given)
    signed, is_external = fields.get("signed", False), fields.get("assigned_by") == "external"
    if signed and is_external:
        problems.add(
            "exposures.signed",
            "cannot be true with assigned_by: external; a signature shows that an SDK drew the candidate, and another "
            "platform draws it here; leave one of them out",
        )
    elif signed and source is not None:
        problems.add("exposures.signed", "cannot be checked in tables of your own; leave it out, or leave source out")
    if is_external and source is not None and source.tables.exposures.candidate is None:
        problems.add(
            "source.exposures.candidate",
            "is missing, and another platform assigns the units (exposures.assigned_by); name the column of the "
            "candidate that it assigned",
        )
    return fields


def _read_layer(problems: ProblemList, given: object, exposures: Mapping[str, Any]) -> LayerSpec | None:
    before = len(problems.found)
    fields = FIELDS.read(problems, "layer", given)
    for name in ("name", "share"):
        if name not in fields and f"layer.{name}" not in problems.found and "layer" not in problems.found:
            problems.add(f"layer.{name}", "is missing; write layer: {name: home, share: 40%}")
    parts = {
        name: _read_parts(problems, f"layer.{name}", fields[name]) for name in ("share", "start") if name in fields
    }
    if exposures.get("assigned_by") == "external":
        problems.add(
            "layer",
            "cannot be kept apart with assigned_by: external, because another platform assigns the units; leave it out",
        )
    if len(problems.found) > before:
        return None
    return LayerSpec(fields["name"], parts["share"], parts.get("start"))


def _read_parts(problems: ProblemList, path: str, share: float) -> int:
    """Return a share of a layer in millionths."""
    parts = round(share * LAYER_PARTS)
    if abs(share * LAYER_PARTS - parts) > 1e-6:
        problems.add(path, f"must be a multiple of 0.0001%, got {share:.12g}; write {max(1, parts) / LAYER_PARTS:.6g}")
    return parts


def _read_learner(
    problems: ProblemList, fields: Mapping[str, Any], traffic: TrafficSpec, candidates: Candidates | Space | None
) -> LearnerSpec | None:
    given = fields.get("learner", "thompson")
    settings = dict(given) if isinstance(given, Mapping) else {}
    name = settings.pop("name", None) if isinstance(given, Mapping) else given
    path = "learner.name" if isinstance(given, Mapping) else "learner"
    if isinstance(name, str) and name in FORMER_NAMES:
        problems.add(path, f"is {name}, which is now called {FORMER_NAMES[name]}; rename it")
        return None
    (name_field,) = (field for field in FIELDS.section("learner") if field.name == "name")
    if name_field.kind.read is None or name_field.kind.read(problems, path, name) is None:
        return None
    before = len(problems.found)
    if "floor" in settings:
        problems.add("learner.floor", "is a share of traffic; write it as traffic.min_share")
        settings.pop("floor")
    foreign = [setting for setting in settings if setting not in learner_settings(name)]
    problems.fields("learner", {setting: settings.pop(setting) for setting in foreign}, learner_settings(name))
    settings = FIELDS.read(problems, "learner", settings)
    if len(problems.found) > before:
        return None
    return _build_learner(problems, name, settings, fields, traffic, candidates)


def _build_learner(
    problems: ProblemList,
    name: str,
    settings: dict[str, Any],
    fields: Mapping[str, Any],
    traffic: TrafficSpec,
    candidates: Candidates | Space | None,
) -> LearnerSpec | None:
    """Return a learner with its defaults, which depend on the traffic and on the candidates."""
    shares = fields.get("traffic")
    has_min_share = isinstance(shares, Mapping) and "min_share" in shares
    options = dict(settings)
    if name == "thompson":
        options["floor"] = traffic.min_share
        if isinstance(candidates, Space):
            options.setdefault("structure", "process")
        elif fields.get("segments") is not None:
            options.setdefault("contrast", None)  # no contrast can be learned by segment yet
        elif "contrast" not in options:
            is_small = candidates is not None and len(candidates) <= MAX_CONTRASTED_CANDIDATES
            options["contrast"] = "auto" if traffic.control > 0 and is_small else None
    elif has_min_share:
        options["floor"] = constant(traffic.min_share)
    try:
        learner = LEARNERS[name](**options)
    except PastoError as error:
        problems.add("learner", f"cannot be used: {error}")
        return None
    if not isinstance(learner, Thompson):
        return LearnerSpec(learner, {"name": name, **settings}, has_min_share)
    written = {field.name: getattr(learner, field.name) for field in dataclass_fields(learner) if field.name != "floor"}
    return LearnerSpec(learner, {"name": name, **written}, True)


def _check_retired(
    problems: ProblemList, retired: tuple[str, ...], candidates: CandidateSpec, *, running: bool
) -> None:
    """Note candidates that cannot be retired."""
    if not running:
        problems.add("retired", "is for a study that runs; leave these candidates out of the file instead")
    elif isinstance(candidates.candidates, Space):
        problems.add("retired", "cannot be given with ranges, over which a study finds its own candidates")
    else:
        names = candidates.candidates.names
        baseline = names[candidates.candidates.find(candidates.baseline)]
        for place, name in enumerate(retired):
            if name not in names:
                problems.add(
                    f"retired[{place}]", f"is not a candidate: {show_value(name)}; {nearest_name(name, names)}"
                )
            elif name == baseline:
                problems.add(f"retired[{place}]", "is the baseline, which everything is compared with; keep it")


def _check_max_share(problems: ProblemList, max_share: float, count: int) -> None:
    if max_share * count < 1 - 1e-9:
        problems.add(
            "traffic.max_share",
            f"of {max_share:g} on {count} candidates leaves traffic that always falls back on the baseline. Raise it "
            f"to at least {math.ceil(1e4 / count) / 1e4:g}, or leave it out",
        )


def _order_columns(
    objective: Objective, metrics: Mapping[str, Metric], further: Sequence[Column]
) -> tuple[Column, ...]:
    """Return the objective's columns in its order, then the others."""
    columns = {column.name: column for metric in metrics.values() for column in metric.columns}
    first = {name: columns[name] for name in objective.metrics}
    return tuple({**first, **columns, **{column.name: column for column in further}}.values())


def _check_study(spec: StudySpec) -> None:
    """Refuse a file of which no study can be made, or that keeps more rounds open than a study can hold."""
    try:
        study = spec.build_study(seed=0)
    except PastoError as error:
        field = "ranges" if isinstance(error, MissingExtraError) else "learner"
        if spec.history is not None and isinstance(error, (HistoryError, UnsupportedError)):
            field = "history"
        raise StudyFileError({field: f"cannot be used: {error}"}) from error
    every, capacity = spec.rounds.every, spec.remembered_policies
    count = len(study.candidates) if study.space is None else MAX_GROWN_CANDIDATES
    if every is not None and (waiting := math.ceil(spec.rounds.maturity / every) + 1) > capacity:
        raise StudyFileError(
            {
                "rounds.maturity": f"makes {waiting:,} rounds wait at once, and a study of {count:,} candidates keeps "
                f"{capacity} policies for waiting rounds; shorten it to {(capacity - 1) * every:g} s, or make rounds "
                "longer"
            }
        )
    if every is not None and (correctable := math.ceil(spec.rounds.accept_late / every) + 1) > capacity:
        raise StudyFileError(
            {
                "rounds.accept_late": f"leaves {correctable:,} rounds open to correction at once, and a study of "
                f"{count:,} candidates keeps {capacity} policies for them; shorten it to {(capacity - 1) * every:g} s, "
                "or make rounds longer"
            }
        )


def upgrade_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored study document with today's field names; one that has them already is returned unchanged.

    >>> old = {"name": "feed", "guardrails": [{"keep": "likes", "at_least": "-2%", "floor": "-5%"}]}
    >>> upgrade_document(old)["guardrails"]
    [{'metric': 'likes', 'at_least': '-2%', 'stop_at': '-5%'}]
    """
    return {name: _UPGRADES[name](value) if name in _UPGRADES else value for name, value in document.items()}


def _rename_fields(section: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with the new names of its fields, in the same order."""
    new_names = FIELDS.old_names(section)
    return {new_names.get(name, name): value for name, value in fields.items()}


def _rename_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    upgraded = {}
    for name, metric in metrics.items():
        fields = _rename_fields("metrics.NAME", metric)
        if "ratio" in fields:
            fields["ratio"] = [_rename_fields("metrics.NAME", half) for half in fields["ratio"]]
        upgraded[name] = fields
    return upgraded


def _rename_ranges(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _rename_fields("ranges.NAME", range_) if isinstance(range_, Mapping) else range_
        for name, range_ in ranges.items()
    }


def _rename_learner(learner: Any) -> Any:
    if isinstance(learner, Mapping):
        return {**learner, "name": current_name(learner["name"])}
    return current_name(learner)


_UPGRADES: dict[str, Callable[[Any], Any]] = {
    "metrics": _rename_metrics,
    "ranges": _rename_ranges,
    "guardrails": lambda guardrails: [_rename_fields("guardrails", guardrail) for guardrail in guardrails],
    "traffic": lambda traffic: _rename_fields("traffic", traffic),
    "learner": _rename_learner,
    "rounds": lambda rounds: _rename_fields("rounds", rounds),
}
