"""What to serve where no blend holds each hard guardrail with the confidence asked for: the safest there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pasto.errors import SolverFailed
from pasto.objective import Array
from pasto.optimize.caution.chance import Chance
from pasto.optimize.caution.confident import WORST, best_by_cones, best_chance
from pasto.optimize.caution.expected import TINY

ROUNDING = 1e-9
"""A level or a spread of less than this is nothing."""
ROUGH = 1e-4
"""The gap that is accepted for a curve with kinks, which is an average over draws, and no more exact than that."""
FEW = 2000
"""With more candidates than these, the second method is too slow."""


def surest(program: Chance) -> tuple[Array, Array, bool] | None:
    """The best shares, the hard guardrails' prices, and True; or the safest shares where none are safe, and False.

    None where no shares hold every hard guardrail even in the mean.
    """
    hard = program.hard
    if program.caps is not None and program.caps.sum() <= 1.0 + ROUNDING:
        shares = program.caps / program.caps.sum()
        return shares, np.zeros(len(hard)), _holds(program, shares)
    found = best_chance(program)
    if found is not None:
        return found.shares, found.prices, True
    if program.curve is not None or not hard.any():
        found = best_by_cones(program, rounding=ROUNDING, enough=WORST) if len(program.goal) <= FEW else None
        if found is not None and found.gap <= (WORST if program.curve is None else ROUGH):
            return found.shares, found.prices, True
        if not hard.any():
            raise SolverFailed(
                f"the cautious blend of {len(program.goal)} candidates was not found; are the metrics, their errors or "
                "the penalties many orders of magnitude apart?"
            )
    room = roomiest(program)
    if room is not None and _holds(program, room):
        found = best_chance(program, room)
        return _thin(program, room) if found is None else (found.shares, found.prices, True)
    program = replace(program, tight=np.zeros(len(hard)))
    least = safest(program)
    if least is None:
        return None
    shares, fraction = least
    if _holds(program, shares):
        return _thin(program, shares)
    found = best_chance(eased(program, min(fraction, 1.0) * (1.0 - 1e-6)))
    return (shares, np.zeros(len(hard)), False) if found is None else (found.shares, found.prices, False)


def _holds(program: Chance, shares: Array) -> bool:
    """Whether the hard guardrails hold to within rounding, and those of hardly any spread in proportion to it."""
    place = program.at(shares)
    rounding = np.minimum(ROUNDING, 1e-7 * place.spread + 1e-12)
    return bool((place.level - place.spread >= -rounding)[program.hard].all())


def _thin(program: Chance, room: Array) -> tuple[Array, Array, bool]:
    """The best shares where hardly any hold the hard guardrails, room being some that do."""
    program = replace(program, tight=np.zeros(len(program.hard)))
    found = best_by_cones(program, rounding=ROUNDING) if len(program.goal) <= FEW else None
    if found is None or not _holds(program, found.shares) or program.at(found.shares).value < program.at(room).value:
        return room, np.zeros(len(program.hard)), True
    return found.shares, found.prices, True


def roomiest(program: Chance, units: Array | None = None) -> Array | None:
    """The shares that leave most room to the hard guardrail with the least, counted in units (guardrails,).

    It is a chance program with one column more, which takes no share of the traffic and the same room from each.
    """
    hard = program.hard
    units = np.ones(int(hard.sum())) if units is None else units[hard] / units[hard].max()
    slack, factor, anchor = program.slack[hard], program.factor[hard], program.anchor[hard]
    if program.diagonal:
        own = np.sqrt(np.maximum((anchor**2).sum(axis=1)[:, None] + (factor - anchor) ** 2 - anchor**2, 0.0))
        empty = np.zeros((len(slack), 1))
        anchor = np.hstack([anchor, empty])
    else:
        own = np.sqrt(((factor - anchor[:, None, :]) ** 2).sum(axis=2))
        empty = np.zeros((len(slack), 1, factor.shape[2]))
    least = float(((slack - own) / units[:, None]).min())  # every blend leaves as much: room is concave
    most = 1.0 + float((slack / units[:, None]).max()) - least
    room = Chance(
        goal=np.append(np.zeros_like(program.goal), 1.0),
        mass=np.append(program.mass, 0.0),
        slack=np.hstack([slack - least * units[:, None], -units[:, None]]),
        factor=np.concatenate([factor, empty], axis=1),
        anchor=anchor,
        penalties=program.penalties[hard],
        tight=np.zeros(len(slack)),
        base=program.base,
        caps=None if program.caps is None else np.append(program.caps, most),
        most=most,
    )
    found = best_chance(room)
    if found is None and len(program.goal) <= FEW:
        found = best_by_cones(room, rounding=ROUNDING)
    return None if found is None else found.shares[:-1]


def eased(program: Chance, fraction: float) -> Chance:
    """The same program at a fraction of the deviations that hard guardrails ask for."""
    part = np.where(program.hard, fraction, 1.0)
    factor = program.factor * (part[:, None] if program.diagonal else part[:, None, None])
    return replace(program, factor=factor, anchor=program.anchor * part[:, None])


def safest(program: Chance) -> tuple[Array, float] | None:
    """The shares that hold all hard guardrails at the largest fraction of their deviations, and that fraction.

    None where no shares hold even the levels.
    """
    best: tuple[Array, float] | None = None
    shares = roomiest(eased(program, 0.0))
    for _ in range(30):
        if shares is None:
            return best
        place = program.at(shares)
        fraction = held_fraction(place.level[program.hard], place.spread[program.hard])
        if fraction <= (-1e-9 if best is None else best[1] + 1e-7):
            return best
        best = shares, fraction
        if fraction >= 1.0:
            return best
        shares = roomiest(eased(program, fraction), np.maximum(place.spread, 0.05 * place.spread[program.hard].max()))
    return best


def held_fraction(level: Array, spread: Array) -> float:
    """How many spreads the levels are above zero at least; negative where one is below.

    >>> import numpy as np
    >>> held_fraction(np.array([3.0, 5.0]), np.array([2.0, 0.0]))
    1.5
    """
    if (level < -ROUNDING).any():
        return -1.0
    return float(np.where(spread <= ROUNDING, np.inf, np.maximum(level, 0.0) / np.maximum(spread, TINY)).min())
