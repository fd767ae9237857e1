"""The breaker in the course of a close: what it is shown, what it says, and what then happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pasto.errors import PastoError
from pasto.measure import Moments
from pasto.report.measured import MeasuredRound
from pasto.service.details import Watch
from pasto.service.rounds.looks import PACE, PHASES
from pasto.service.spec import Spec
from pasto.service.trust.breaker import breached, judged_round, verdicts, verdicts_of_phase
from pasto.store import PolicyRow

Past = Callable[[int], Sequence[MeasuredRound]]
"""The learning rounds from one on that were judged before, as the breaker sees them."""
Said = list[dict[str, Any]]


def nothing(since: int) -> Sequence[MeasuredRound]:
    """A study without a past."""
    return ()


def look_at(spec: Spec, serving: PolicyRow, moments: Sequence[Moments], now: float) -> dict[str, Any]:
    """A look at a phase in which units keep their arm, as its close records it."""
    return {
        "elapsed": look_elapsed(spec, serving.published_at, now),
        "moments": [asdict(cell) for cell in moments],
    }


def look_elapsed(spec: Spec, since: float, now: float) -> float:
    """How long a phase has run, in rounds."""
    return max(1.0, (now - since) / (spec.rounds.every or PACE))


def judge(
    spec: Spec,
    state: str,
    past: Sequence[MeasuredRound],
    rounds: Sequence[MeasuredRound],
    look: tuple[float, Sequence[Moments]] | None = None,
) -> tuple[Said, tuple[str, ...]]:
    """What the breaker says after rounds or a look, and what kept it from saying more.

    What cannot be judged must not keep a round from being closed.
    """
    try:
        if look is not None:
            return verdicts_of_phase(spec, MeasuredRound(0, {}, look[1]), state, look[0]), ()
        return (verdicts(spec, [*past, *rounds]), ()) if rounds else ([], ())
    except (PastoError, ArithmeticError, ValueError) as error:
        return [], (f"the breaker could not judge: {type(error).__name__}: {error}",)


def fresh(watch: Watch, rounds: Sequence[tuple[int, Sequence[Moments]]]) -> list[MeasuredRound]:
    """The rounds just measured that count, as the breaker sees them."""
    return [judged_round(number, moments) for number, moments in rounds if number >= watch.since]


def armed(watch: Watch, before: str, after: str, round: int) -> Watch:
    """The breaker as a close finds it; where a person resumes what it stopped, evidence starts anew.

    >>> armed(Watch(tripped={"reason": "breaker: likes"}), "paused", "learning", 7)
    Watch(since=8, verdicts=(), tripped=None)
    """
    if before == "paused" and after not in ("paused", "archived") and watch.tripped is not None:
        return Watch(since=round + 1)
    return watch


def after_close(watch: Watch, before: str, after: str, said: Said, trip: Mapping[str, Any] | None) -> Watch:
    """The breaker as a close leaves it."""
    known: Sequence[Mapping[str, Any]] = said
    if not said and after in (before, "paused"):
        known = watch.verdicts
    return replace(watch, verdicts=tuple(known), tripped=watch.tripped if trip is None else trip)


def trips(state: str, said: Said) -> bool:
    """Whether a close that would go on serving must pull traffic instead.

    >>> trips("learning", [{"state": "breach"}]), trips("archived", [{"state": "breach"}])
    (True, False)
    """
    return state in ("learning", *PHASES) and breached(said)


def newly_warned(watch: Watch, said: Said) -> tuple[str, ...]:
    """Guardrails that are warned of now and were not before."""
    known = {(one["name"], one["arm"]) for one in watch.verdicts if one["state"] != "holds"}
    return tuple(
        dict.fromkeys(
            one["name"] for one in said if one["state"] == "warning" and (one["name"], one["arm"]) not in known
        )
    )
