"""The breaker in the course of a close: what it is shown, what it says, and what then happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pasto.errors import PastoError
from pasto.measure import Column, Moments
from pasto.report.measured import MeasuredRound
from pasto.service.details import Watch
from pasto.service.rounds.looks import PHASES
from pasto.service.spec import Spec
from pasto.service.trust.breaker import breached, judged_round, verdicts, verdicts_of_phase
from pasto.service.trust.carried import Carried
from pasto.service.trust.quantities import floors

Past = Callable[[], Iterable[MeasuredRound]]
"""The learning rounds that were measured before, as the breaker sees them."""
Said = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of judging a close."""

    said: Said
    carried: Mapping[str, Any]
    """What the next close goes on from."""
    problems: tuple[str, ...] = ()
    """What kept the breaker from saying more."""


def nothing() -> Iterable[MeasuredRound]:
    """A study without a past."""
    return ()


def look_elapsed(spec: Spec, since: float, now: float) -> float:
    """How long a phase has run, in rounds."""
    return max(1.0, (now - since) / spec.rounds.pace)


def lengthened(spec: Spec, elapsed: float) -> Spec:
    """A study file for a phase that is measured whole: what a unit adds up may be so many rounds' worth of its range.

    >>> from pasto.service.spec import EXAMPLE, read_spec
    >>> [column.high for column in lengthened(read_spec(EXAMPLE, "yaml"), 10.0).columns]
    [72000.0, 2000.0, 10000.0]
    """
    return replace(spec, columns=tuple(_lengthened(column, elapsed) for column in spec.columns))


def _lengthened(column: Column, elapsed: float) -> Column:
    if column.window is not None or column.per_unit not in ("sum", "count"):
        return column
    low = column.low if column.low is None or column.low > 0 else column.low * elapsed
    return replace(column, low=low, high=None if column.high is None else column.high * elapsed)


def judge(
    spec: Spec,
    state: str,
    watch: Watch,
    rounds: Sequence[tuple[int, Sequence[Moments]]],
    past: Past = nothing,
    look: tuple[float, Sequence[Moments]] | None = None,
    first_open: int | None = None,
    seconds: Mapping[int, float | None] = MappingProxyType({}),
) -> Judged:
    """What the breaker says after rounds or a look.

    Rounds are new ones, or older ones measured again that take their former place; those from `first_open` on may be
    measured again at a later close. `seconds` says how long each was served. Only a study that was last closed before
    evidence was carried, or gathered as it is now, is asked for its `past`. What cannot be judged must not keep a round
    from being closed.
    """
    carried = Carried.read(watch.carried)
    if carried is None:
        again = [*(number for number, _ in rounds), *(() if first_open is None else (first_open,))]
        carried = Carried.of(spec, past(), watch.since, min(again, default=None))
    try:
        known = carried.with_rounds([judged_round(number, moments, seconds.get(number)) for number, moments in rounds])
        whole = known.until(spec, None, watch.since)
        said: Said = []
        if look is not None:
            allowed = whole.vigil.allowed(floors(spec))
            said = verdicts_of_phase(spec, MeasuredRound(0, {}, look[1]), state, look[0], allowed)
        elif any(number >= watch.since for number, _ in rounds):
            said = verdicts(spec, whole.vigil)
        kept = whole if first_open is None else known.until(spec, first_open, watch.since)
        return Judged(said, kept.written())
    except (PastoError, ArithmeticError, ValueError) as error:
        return Judged([], carried.written(), (f"the breaker could not judge: {type(error).__name__}: {error}",))


def armed(watch: Watch, before: str, after: str, round: int) -> Watch:
    """The breaker as a close finds it; where a person resumes what it stopped, evidence starts anew.

    >>> armed(Watch(tripped={"reason": "breaker: likes"}), "paused", "learning", 7)
    Watch(since=8, verdicts=(), tripped=None, carried=None)
    """
    if before == "paused" and after not in ("paused", "archived") and watch.tripped is not None:
        carried = Carried.read(watch.carried)
        return Watch(since=round + 1, carried=None if carried is None else carried.re_armed().written())
    return watch


def after_close(watch: Watch, before: str, after: str, judged: Judged, trip: Mapping[str, Any] | None) -> Watch:
    """The breaker as a close leaves it."""
    known: Sequence[Mapping[str, Any]] = judged.said
    if not judged.said and after in (before, "paused"):
        known = watch.verdicts
    tripped = watch.tripped if trip is None else trip
    return replace(watch, verdicts=tuple(known), tripped=tripped, carried=judged.carried)


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
