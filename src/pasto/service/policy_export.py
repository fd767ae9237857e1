"""Policy export: a study's shares in the form in which another platform serves them.

The platform assigns units with its own hash, so a unit can get another candidate than PASTO draws. Shares become
integer weights by largest remainders, and each candidate has at least one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Any, Literal

from pasto.errors import LifecycleError, OptionError
from pasto.service.policy_builder import freeze_blend
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_state import identity_of
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice, plain_numbers
from pasto_sdk.policy import PublishedPolicy, bucket_widths
from pasto_sdk.policy_document import BUCKET_TOTAL, Value

Part = Literal["policy", "blend"]
PARTS: tuple[Part, ...] = ("policy", "blend")
"""policy: all that is served now, with the control. blend: the blend alone."""
FLAGD_WEIGHTS = 1_000_000
"""Sum of flagd's weights; all versions of flagd accept up to 2^31 - 1."""
GROWTHBOOK_BUCKETS = 10_000
"""Buckets of GrowthBook's hash."""
MAX_PARAMETER_VARIANTS = 100_000
"""Variants in the flags of single parameters; with more, only the flag of all parameters is exported."""
MAX_ATTRIBUTE_CHARACTERS = 63
HOLDOUT_SENTENCE = (
    " The holdout has the same share, but other units than PASTO's: `pasto holdout sql` does not find them."
)
MAX_SHARE_CHANGE = 0.1
"""Largest relative change of a share by rounding that an export does not mention."""


@dataclass(frozen=True, slots=True)
class ExportedCandidate:
    """Candidate with its share of all units."""

    name: str
    values: Mapping[str, Value]
    share: float


@dataclass(frozen=True, slots=True)
class PolicyExport:
    """Shares of a study's policy or blend, which platforms serve in their own form."""

    study: str
    part: Part
    state: str
    version: int
    """Version of the served policy, which exposures name; of an archived study, that of its last one."""
    salt: str
    """Changes when units are drawn again, and stays if they keep their candidates."""
    valid_from: float
    baseline: ExportedCandidate
    candidates: tuple[ExportedCandidate, ...]
    """Those with a share, in the order of their indexes."""
    slices: tuple[EnrolmentSlice, ...] = ()
    """Slices of the units that take part; the others get the baseline."""
    audience: tuple[AudienceCondition, ...] = ()
    """Conditions on the attributes of the units that take part."""
    certified: bool | None = None
    """Of a blend: True if its certificate holds."""

    def weights(self, total: int) -> list[int]:
        """Return the candidates' shares as integers of this sum, each at least one."""
        return bucket_widths([candidate.share for candidate in self.candidates], total)

    def metadata(self, bucketing: str, total: int | None = None) -> dict[str, str | int | bool]:
        """Return the origin of the shares, and sentences on what the platform does with them."""
        facts: dict[str, str | int | bool] = {
            "study": self.study,
            "part": self.part,
            "state": self.state,
            "policy_version": self.version,
        }
        if self.certified is not None:
            facts["certified"] = self.certified
        changed = 0 if total is None else self._count_changed(total)
        rounding = "" if not changed else f" Rounding changes the share of {changed} by more than 10%."
        has_holdout = any(part.kind == "holdout" for part in self.slices)
        holdout = HOLDOUT_SENTENCE if has_holdout else ""
        return {**facts, "bucketing": bucketing + rounding + holdout}

    def flags(self) -> dict[str, str | None]:
        """Return the parameter of each flag, as over OFREP: the study's own flag has all of them.

        A parameter whose values are of several types has no flag of its own.
        """
        variants = self.variants.values()
        parameters = self.baseline.values if len(variants) * len(self.baseline.values) <= MAX_PARAMETER_VARIANTS else ()
        kinds = {name: {_kind(variant.values[name]) for variant in variants} for name in parameters}
        single = {f"{self.study}.{name}": name for name in parameters if len(kinds[name]) == 1}
        return {self.study: None, **single}

    @property
    def variants(self) -> dict[str, ExportedCandidate]:
        """The candidates with a share and the baseline, by name."""
        return {candidate.name: candidate for candidate in (self.baseline, *self.candidates)}

    def _count_changed(self, total: int) -> int:
        weights = zip(self.candidates, self.weights(total), strict=True)
        return sum(abs(weight / total / candidate.share - 1.0) > MAX_SHARE_CHANGE for candidate, weight in weights)


def export_policy(
    snapshot: StudySnapshot,
    last: PublishedPolicy | None,
    format: str,
    part: str = "policy",
    attribute: str | None = None,
) -> dict[str, Any]:
    """Return the served policy of a study, or its blend, as JSON in one of FORMATS.

    `last` is the last policy that the study published, also of a study that serves none any more.

    `attribute` is the attribute by which the platform assigns units. If it is left out, it is the attribute of the
    clusters, or `targetingKey` in flagd and `id` in GrowthBook.
    """
    if format not in FORMATS:
        raise OptionError(f"format must be {', '.join(FORMATS)}, got {format[:60]!r}")
    if part not in PARTS:
        raise OptionError(f"part must be {' or '.join(PARTS)}, got {part[:60]!r}")
    if attribute is not None and not (0 < len(attribute) <= MAX_ATTRIBUTE_CHARACTERS and attribute.isprintable()):
        raise OptionError(
            f"attribute must be a name of 1 to {MAX_ATTRIBUTE_CHARACTERS} printable characters, got {attribute[:80]!r}"
        )
    attribute = attribute or snapshot.spec.cluster
    exported = _read_policy(snapshot) if part == "policy" else _read_blend(snapshot, last)
    return FORMATS[format](exported, attribute)


def to_flagd(exported: PolicyExport, attribute: str | None = None) -> dict[str, Any]:
    """Return a flag definition of flagd: one rule divides the units, and each flag refers to it.

    Units without the attribute, and those that do not take part, get the baseline.
    """
    unit = {"var": attribute or "targetingKey"}
    weights = zip(exported.candidates, exported.weights(FLAGD_WEIGHTS), strict=True)
    parts = [[candidate.name, weight] for candidate, weight in weights]
    tests: list[dict[str, Any]] = [{"!!": [unit]}, *map(_flagd_condition, exported.audience)]
    tests += [_flagd_slice(part, unit) for part in exported.slices]
    takes_part = tests[0] if len(tests) == 1 else {"and": tests}
    split = {"if": [takes_part, {"fractional": [{"cat": [f"{exported.salt}/", unit]}, *parts]}]}
    bucketing = (
        "flagd assigns units with its own hash: a unit can get another candidate than PASTO draws. Weights are parts "
        "per million."
    )
    return {
        "$schema": "https://flagd.dev/schema/v0/flags.json",
        "flags": {
            flag: {
                "state": "ENABLED",
                "variants": {name: _value(candidate, parameter) for name, candidate in exported.variants.items()},
                "defaultVariant": exported.baseline.name,
                "targeting": {"$ref": exported.study},
            }
            for flag, parameter in exported.flags().items()
        },
        "$evaluators": {exported.study: split},
        "metadata": exported.metadata(bucketing, FLAGD_WEIGHTS),
    }


def _flagd_condition(condition: AudienceCondition) -> dict[str, Any]:
    value, wanted = {"var": condition.attribute}, plain_numbers(condition.values)
    if condition.operator == "in":
        return {"in": [value, wanted]}
    # A missing attribute would compare as 0.
    return {"and": [{"!==": [value, None]}, {condition.operator: [value, wanted[0]]}]}


def _flagd_slice(part: EnrolmentSlice, unit: dict[str, str]) -> dict[str, Any]:
    """Return whether a unit is in a slice; slices of one salt that do not overlap have no unit in common here too."""
    start, until = _slice_ends(part, FLAGD_WEIGHTS)
    weights = {"before": start, "in": until - start, "after": FLAGD_WEIGHTS - until}
    parts = [[name, weight] for name, weight in weights.items() if weight]
    return {"===": [{"fractional": [{"cat": [f"{part.salt}/", unit]}, *parts]}, "in"]}


def _slice_ends(part: EnrolmentSlice, total: int) -> tuple[int, int]:
    """Return the ends of a slice in parts of a total; it has at least one part."""
    start = min(round(part.start * total / BUCKET_TOTAL), total - 1)
    return start, max(round(part.until * total / BUCKET_TOTAL), start + 1)


def to_growthbook(exported: PolicyExport, attribute: str | None = None) -> dict[str, Any]:
    """Return a payload of GrowthBook's SDKs: the same experiment in each feature.

    Ranges repeat the weights: sums of weights are rounded, and could move a bucket to a neighbour.
    """
    weights = exported.weights(GROWTHBOOK_BUCKETS)
    ranges = [
        [start / GROWTHBOOK_BUCKETS, end / GROWTHBOOK_BUCKETS] for start, end in pairwise([0, *accumulate(weights)])
    ]
    experiment = {
        "key": exported.study,
        "name": exported.study,
        "phase": str(exported.version),
        "seed": exported.salt,
        "hashAttribute": attribute or "id",
        "hashVersion": 2,
        "coverage": 1,
        "weights": [weight / GROWTHBOOK_BUCKETS for weight in weights],
        "ranges": ranges,
        "meta": [{"key": candidate.name, "name": candidate.name} for candidate in exported.candidates],
    }

    def rule(parameter: str | None) -> dict[str, Any]:
        values = [_value(candidate, parameter) for candidate in exported.candidates]
        # GrowthBook runs no experiment with one variation.
        served = {"force": values[0]} if len(values) == 1 else {"variations": values, **experiment}
        return {**_growthbook_guards(exported, attribute or "id"), **served}

    bucketing = (
        "GrowthBook assigns units with its own hash: a unit can get another candidate than PASTO draws. It has 10,000 "
        "buckets, so shares are multiples of 0.01%."
    )
    return {
        "features": {
            flag: {"defaultValue": _value(exported.baseline, parameter), "rules": [rule(parameter)]}
            for flag, parameter in exported.flags().items()
        },
        "dateUpdated": datetime.fromtimestamp(exported.valid_from, UTC).isoformat().replace("+00:00", "Z"),
        "metadata": exported.metadata(bucketing, GROWTHBOOK_BUCKETS),
    }


_GROWTHBOOK_OPERATORS = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}


def _growthbook_guards(exported: PolicyExport, attribute: str) -> dict[str, Any]:
    """Return the fields of a rule that keep units out that do not take part."""
    guards: dict[str, Any] = {}
    if exported.audience:
        guards["condition"] = {
            "$and": [
                {condition.attribute: {"$in": plain_numbers(condition.values)}}
                if condition.operator == "in"
                else {
                    condition.attribute: {_GROWTHBOOK_OPERATORS[condition.operator]: plain_numbers(condition.values)[0]}
                }
                for condition in exported.audience
            ]
        }
    if exported.slices:
        guards["filters"] = [
            {
                "attribute": attribute,
                "seed": part.salt,
                "hashVersion": 2,
                "ranges": [[end / GROWTHBOOK_BUCKETS for end in _slice_ends(part, GROWTHBOOK_BUCKETS)]],
            }
            for part in exported.slices
        ]
    return guards


def to_json(exported: PolicyExport, attribute: str | None = None) -> dict[str, Any]:
    """Return the shares themselves, not rounded, with the salt as a seed for the platform's own hash."""
    bucketing = "A platform with another hash assigns units again: a unit can get another candidate than PASTO draws."
    return {
        "study": exported.study,
        "seed": exported.salt,
        **({} if attribute is None else {"attribute": attribute}),
        "baseline": exported.baseline.name,
        **({"enrolment": [_slice_fields(part) for part in exported.slices]} if exported.slices else {}),
        **({"audience": [_condition_fields(part) for part in exported.audience]} if exported.audience else {}),
        "candidates": [
            {"name": candidate.name, "values": dict(candidate.values), "share": candidate.share}
            for candidate in exported.candidates
        ],
        "metadata": exported.metadata(bucketing),
    }


FORMATS: Mapping[str, Callable[[PolicyExport, str | None], dict[str, Any]]] = {
    "flagd": to_flagd,
    "growthbook": to_growthbook,
    "json": to_json,
}
"""Formats of an export by name."""


def _slice_fields(part: EnrolmentSlice) -> dict[str, Any]:
    start, until = part.start / BUCKET_TOTAL, part.until / BUCKET_TOTAL
    return {"kind": part.kind, "seed": part.salt, "from": start, "until": until}


def _condition_fields(part: AudienceCondition) -> dict[str, Any]:
    return {"attribute": part.attribute, "operator": part.operator, "values": plain_numbers(part.values)}


def _kind(value: Value) -> type:
    """Return the type of a value as JSON knows it."""
    return type(value) if isinstance(value, (bool, str)) else float


def _value(candidate: ExportedCandidate, parameter: str | None) -> Any:
    return dict(candidate.values) if parameter is None else candidate.values[parameter]


def _read_policy(snapshot: StudySnapshot) -> PolicyExport:
    """Return the served shares, of all arms together."""
    policy, row = snapshot.policy, snapshot.row
    if policy is None:
        cure = "start it" if row.state == "draft" else "export its blend instead"
        raise LifecycleError(f"study {row.name!r} is {row.state}, so it serves no policy to export; {cure}")
    return describe_policy(policy)


def describe_policy(policy: PublishedPolicy) -> PolicyExport:
    """Return the shares of a published policy.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=7, round=7, state="learning", mode="shuffled", salt="feed/7",
    ...                  candidates={0: ("a", {"weight": 1}), 1: ("b", {"weight": 2})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("learner", 0, 0.25), ("learner", 1, 0.5)],
    ...                  valid_from=0, expires_after=86400)
    >>> exported = describe_policy(policy)
    >>> exported.weights(1_000_000)
    [500000, 500000]
    >>> to_flagd(exported)["flags"]["feed.weight"]["variants"]
    {'a': 1, 'b': 2}
    """
    widths: dict[int, int] = {}
    for cell in policy.cells:
        widths[cell.candidate] = widths.get(cell.candidate, 0) + cell.width
    named = {bucket.candidate: bucket for bucket in policy.named.values()}
    shares = {index: width / BUCKET_TOTAL for index, width in sorted(widths.items())}
    baseline = policy.baseline
    return PolicyExport(
        study=policy.study,
        part="policy",
        state=policy.state,
        version=policy.version,
        salt=policy.salt,
        valid_from=policy.valid_from,
        baseline=ExportedCandidate(baseline.name, baseline.values, shares.get(baseline.candidate, 0.0)),
        candidates=tuple(
            ExportedCandidate(named[index].name, named[index].values, share) for index, share in shares.items()
        ),
        slices=policy.enrolment,
        audience=policy.audience,
    )


def _read_blend(snapshot: StudySnapshot, last: PublishedPolicy | None) -> PolicyExport:
    """Return the blend without a control: the frozen one, or the best so far of a study that still learns.

    It is for the audience of the study, and leaves units of a holdout out; a ramp or a layer does not limit it.
    """
    row = snapshot.row
    if not row.version:
        raise LifecycleError(f"study {row.name!r} is {row.state} and has not learned anything; start it")
    study = snapshot.read_study()
    frozen = snapshot.state.frozen or freeze_blend(row.name, study)
    rows = study.candidates
    shares = {index: share for index, share in sorted(frozen.blend) if share > 0.0}
    candidates = {index: ExportedCandidate(rows.names[index], rows[index], share) for index, share in shares.items()}
    if study.baseline is None:
        raise OptionError("a study that is exported needs a baseline; name it in the study file")
    base = study.baseline
    return PolicyExport(
        study=snapshot.spec.name,
        part="blend",
        state=row.state,
        version=row.version,
        salt=identity_of(row),
        valid_from=row.opened_at,
        baseline=candidates.get(base, ExportedCandidate(rows.names[base], rows[base], 0.0)),
        candidates=tuple(candidates.values()),
        slices=() if last is None else tuple(part for part in last.enrolment if part.kind == "holdout"),
        audience=() if last is None else last.audience,
        certified=frozen.certified,
    )
