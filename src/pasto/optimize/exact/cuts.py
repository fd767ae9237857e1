"""The best blend for a concave utility with kinks, by cutting planes.

Every tangent lies above a concave f, so the least of the tangents so far, maximised by a linear program, bounds f* from
above; f at that program's blend bounds it from below, and its tangent there is the next cut.
"""

from __future__ import annotations

import numpy as np

from pasto.errors import SolverFailed
from pasto.objective import Array, Form

CUTS = 400


def best_by_cuts(
    smooth: Form, means: Array, limits: Array, start: Array, *, gap: float, scale: float = 1.0
) -> tuple[Array, Array]:
    """Shares within gap · scale of the best, and the multipliers of limits (hard guardrails, candidates) · p ≥ 0.

    smooth is a form without hard guardrails, whose values spread over about scale; start are shares that meet the
    limits.

    >>> import numpy as np, pasto
    >>> over = {"a": (-1, 3), "b": (-1, 3)}
    >>> least = pasto.utility(lambda y: y.min(-1), lambda y: 1.0 * (y == y.min(-1, keepdims=True)), over=over).form()
    >>> best_by_cuts(least, np.array([[2.0, 0.0], [0.0, 2.0]]), np.zeros((0, 2)), np.array([1.0, 0.0]), gap=1e-9)[0]
    array([0.5, 0.5])
    """
    from scipy.optimize import linprog  # slow to load, and seldom needed

    width, firm = means.shape[1], len(limits)
    sizes = np.abs(limits).max(axis=1, initial=0.0)
    units = np.where(sizes > 0.0, sizes, 1.0)  # the linear program's tolerances are absolute
    rails = np.hstack([-limits / units[:, None], np.zeros((firm, 1))])
    gain = np.inf
    origin = float(smooth.smooth(means @ start))
    here, kept, below = start, start, 0.0
    planes = np.zeros((0, width))
    for _ in range(CUTS):
        vector = means @ here
        slope = smooth.gradient(vector)
        plane = slope @ means + (float(smooth.smooth(vector)) - origin - slope @ vector)
        planes = np.vstack([planes, plane / scale])
        rows = np.vstack([rails, np.hstack([-planes, np.ones((len(planes), 1))])])
        found = linprog(
            np.append(np.zeros(width), -1.0),
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=np.append(np.ones(width), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0.0, None)] * width + [(None, None)],
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.x is None:
            raise SolverFailed(f"the linear program over {len(planes)} tangents of the utility failed: {found.message}")
        here = np.maximum(found.x[:-1], 0.0)
        here /= here.sum()
        value = (float(smooth.smooth(means @ here)) - origin) / scale
        if value > below:
            kept, below = here, value
        gain = float(found.x[-1]) - below
        if gain <= gap:
            return kept, -found.ineqlin.marginals[:firm] * scale / units
    raise SolverFailed(
        f"the utility could not be maximised with {CUTS} tangents: {gain * scale:.3g} may still be gained; is it "
        "concave, and its gradient right, over the whole of over=?"
    )
