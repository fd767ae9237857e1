"""Policy builder: build the policy that a study serves, with the arms of its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pasto.blend import Blend
from pasto.errors import LifecycleError, NotFittedError, OptionError
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import LAYER_PARTS, LayerSpec
from pasto.service.study_state import FrozenBlend, describe_blend
from pasto.study import Study
from pasto_sdk.enrolment import EnrolmentSlice
from pasto_sdk.policy import PublishedPolicy, publish_policy
from pasto_sdk.policy_document import BUCKET_TOTAL

Shares = list[tuple[str, int, float]]
"""Arm, candidate and share of the units that take part."""

HOLDOUT_SALT = "holdout:global"
"""Salt by which all studies leave out the same units."""

HOLDS = ("blend", "baseline")
"""Policies that a paused study may serve."""


def build_policy(
    spec: StudySpec,
    study: Study,
    *,
    state: str,
    version: int,
    at: float,
    frozen: FrozenBlend | None = None,
    hold: str = "blend",
    identity: str | None = None,
    paused_from: str | None = None,
    has_slices: bool = True,
    ramp_step: int = 1,
    holdout: int = 0,
) -> PublishedPolicy:
    """Return the policy of a study in a state; equal arguments give equal text.

    Salts contain the study's `identity`, or its name, so that studies of one name draw units independently.
    `paused_from` is the state before a pause: a paused study serves the units that took part before. `ramp_step` is the
    step of a ramp, from 1. Without `has_slices`, units outside are an arm of the policy, as in studies of earlier
    releases. `holdout` is the part of the hash line that no study may use, in millionths.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> policy = build_policy(spec, spec.build_study(seed=7), state="learning", version=1, at=0.0)
    >>> policy.salt, sorted({cell.arm for cell in policy.cells})
    ('feed/1', ['control', 'learner'])
    """
    sticky = state != "learning" and spec.assigned_unit != "request"
    mode: Literal["shuffled", "sticky"] = "sticky" if sticky else "shuffled"
    rows = study.candidates
    prefix = identity or spec.name
    arms = _ARMS[state] if has_slices or state != "learning" else _learning_with_outside
    return publish_policy(
        study=spec.name,
        version=version,
        round=version,
        state=state,
        mode=mode,
        salt=prefix if sticky else f"{prefix}/{version}",
        candidates={index: (rows.names[index], rows[index]) for index in range(len(rows))},
        baseline=_baseline(study),
        shares=arms(spec, study, frozen, hold),
        valid_from=at,
        expires_after=spec.expires_after,
        signed=spec.signed,
        enrolment=list_slices(spec, paused_from or state, prefix, ramp_step, holdout) if has_slices else (),
        audience=spec.audience if has_slices else (),
        cluster=spec.cluster,
    )


def list_slices(
    spec: StudySpec, state: str, identity: str, ramp_step: int = 1, holdout: int = 0
) -> tuple[EnrolmentSlice, ...]:
    """Return the slices of the hash whose units take part in a state; () if all units do.

    Their salts have no version, so a larger share keeps the units of a smaller one. A deployed blend goes to the whole
    audience, except for the holdout and the other studies of its layer.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE.replace("explore: 100%", "explore: 25%"), "yaml")
    >>> list_slices(spec, "learning", "feed")
    (EnrolmentSlice(kind='ramp', salt='ramp:feed', start=0, until=2251799813685248),)
    >>> list_slices(spec, "deployed", "feed")
    ()
    >>> list_slices(spec, "deployed", "feed", holdout=500_000)
    (EnrolmentSlice(kind='holdout', salt='holdout:global', start=4503599627370496, until=9007199254740992),)
    """
    slices = []
    if holdout:
        slices.append(EnrolmentSlice("holdout", HOLDOUT_SALT, cut_at(holdout), BUCKET_TOTAL))
    if spec.layer is not None:
        slices.append(slice_of_layer(spec.layer))
    share = spec.traffic.enrolled(ramp_step)
    if state != "deployed" and share < 1.0:
        slices.append(EnrolmentSlice("ramp", f"ramp:{identity}", 0, max(1, round(share * BUCKET_TOTAL))))
    return tuple(slices)


def slice_of_layer(layer: LayerSpec) -> EnrolmentSlice:
    """Return the slice of a study in its layer.

    >>> slice_of_layer(LayerSpec("home", 250_000, 500_000))
    EnrolmentSlice(kind='layer', salt='layer:home', start=4503599627370496, until=6755399441055744)
    """
    if layer.start is None:
        raise OptionError(f"layer {layer.name} has given the study no interval; create the study with a service")
    return EnrolmentSlice("layer", f"layer:{layer.name}", cut_at(layer.start), cut_at(layer.start + layer.parts))


def cut_at(parts: int) -> int:
    """Return the place on the hash line at this many millionths of it.

    >>> cut_at(0), cut_at(500_000) == BUCKET_TOTAL // 2, cut_at(1_000_000) == BUCKET_TOTAL
    (0, True, True)
    """
    return parts * BUCKET_TOTAL // LAYER_PARTS


def find_holdout(policy: PublishedPolicy) -> int:
    """Return the holdout that a policy leaves out, in millionths of the hash line.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> study = spec.build_study(seed=7)
    >>> find_holdout(build_policy(spec, study, state="learning", version=1, at=0.0, holdout=33_333))
    33333
    """
    cut = next((part.start for part in policy.enrolment if part.kind == "holdout"), 0)
    return -(-cut * LAYER_PARTS // BUCKET_TOTAL)


def freeze_blend(name: str, study: Study, split: Mapping[str, Any] | None = None) -> FrozenBlend:
    """Return the present blend for a confirmation or a deployment; LifecycleError if no round is learned yet."""
    try:
        blend = study.blend(deploy_rounds=None)
    except NotFittedError as error:
        raise LifecycleError(
            f"study {name!r} has learned no round yet, so there is no blend to serve; let it learn until a round with "
            "units has closed and matured"
        ) from error
    return read_frozen_blend(blend, split, baseline=study.baseline)


def read_frozen_blend(
    blend: Blend, split: Mapping[str, Any] | None = None, *, baseline: int | None = None
) -> FrozenBlend:
    """Return a blend in the form that is served, with the shares of the confirming arms: equal ones by default.

    The best single candidate has no arm if there is none, or if it is the baseline, which the control serves already.
    """
    certified = blend.certificate is not None and blend.certificate.certified
    total = math.fsum(blend.probabilities[k] for k in blend.support)
    parts = tuple((k, blend.probabilities[k] / total) for k in blend.support)
    best_single = None if blend.best_single == baseline else blend.best_single
    arms = ("control", "blend") if best_single is None else ("control", "best_single", "blend")
    shares = {arm: 1.0 / len(arms) for arm in arms} if split is None else _read_split(split, arms)
    return FrozenBlend(parts, best_single, certified, shares, describe_blend(blend))


def hold_policy(study: Study) -> FrozenBlend | None:
    """Return the blend that a pause may serve: a certified one of a study with a hard guardrail; otherwise None."""
    try:
        blend = study.blend(deploy_rounds=None)
    except NotFittedError:
        return None
    certificate = blend.certificate
    hard = any(guardrail.penalty is None for guardrail in study.objective.guardrails)
    return read_frozen_blend(blend) if hard and certificate is not None and certificate.certified else None


def _learning(spec: StudySpec, study: Study, frozen: FrozenBlend | None, hold: str) -> Shares:
    control = spec.traffic.control
    learner = [("learner", k, (1.0 - control) * share) for k, share in enumerate(study.policy.probabilities)]
    return _normalize([("control", _baseline(study), control), *learner])


def _learning_with_outside(spec: StudySpec, study: Study, frozen: FrozenBlend | None, hold: str) -> Shares:
    """Return the arms of a study of an earlier release: control is a share of all units, explore of the others."""
    control, rest = spec.traffic.control, 1.0 - spec.traffic.control
    explore, baseline = spec.traffic.explore, _baseline(study)
    learner = [("learner", k, rest * explore * share) for k, share in enumerate(study.policy.probabilities)]
    return _normalize([("control", baseline, control), *learner, ("not_enrolled", baseline, rest * (1.0 - explore))])


def _confirming(spec: StudySpec, study: Study, frozen: FrozenBlend | None, hold: str) -> Shares:
    assert frozen is not None  # noqa: S101 -- a study is confirmed with the answer it froze
    single = []
    if frozen.best_single is not None:
        single = [("best_single", frozen.best_single, frozen.split.get("best_single", 0.0))]
    blend = [("blend", k, share * frozen.split["blend"]) for k, share in frozen.blend]
    return _normalize([("control", _baseline(study), frozen.split["control"]), *single, *blend])


def _deployed(spec: StudySpec, study: Study, frozen: FrozenBlend | None, hold: str) -> Shares:
    assert frozen is not None  # noqa: S101 -- as above
    rest = 1.0 - spec.traffic.control
    blend = [("blend", k, share * rest) for k, share in frozen.blend]
    return _normalize([("control", _baseline(study), spec.traffic.control), *blend])


def _paused(spec: StudySpec, study: Study, frozen: FrozenBlend | None, hold: str) -> Shares:
    if hold == "blend" and frozen is not None and frozen.certified:
        return _normalize([("paused", k, share) for k, share in frozen.blend])
    return [("paused", _baseline(study), 1.0)]


_ARMS: dict[str, Callable[[StudySpec, Study, FrozenBlend | None, str], Shares]] = {
    "learning": _learning,
    "confirming": _confirming,
    "deployed": _deployed,
    "paused": _paused,
}


def _normalize(shares: Shares) -> Shares:
    """Return shares divided by their sum, which is one except for its last digits."""
    total = math.fsum(share for _, _, share in shares)
    return [(arm, candidate, share / total) for arm, candidate, share in shares]


def _baseline(study: Study) -> int:
    if study.baseline is None:
        raise OptionError("a study that is served needs a baseline; name it in the study file")
    return study.baseline


def _read_split(given: Mapping[str, Any], arms: tuple[str, ...]) -> dict[str, float]:
    """Check and return the requested shares of the confirming arms."""
    if not isinstance(given, Mapping) or set(given) != set(arms):
        raise OptionError(f"shares must name {', '.join(arms)}, each with its share of traffic, got {given!r}")
    for arm, share in given.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            raise OptionError(f"shares gives {arm} {share!r}; a share is a number between 0 and 1, such as 0.5")
    if abs(math.fsum(given.values()) - 1.0) > 1e-9:
        raise OptionError(f"shares must sum to 1, and {dict(given)} sum to {math.fsum(given.values()):g}")
    return {arm: float(given[arm]) for arm in arms}
