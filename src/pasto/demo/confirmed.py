"""The confirmation in a table: each arm's lift over the concurrent control, with intervals that hold together."""

from __future__ import annotations

import json

from pasto.measure import measure
from pasto.report.lift import Lift, Target, lifts
from pasto.report.measured import MeasuredRound, recorded
from pasto.service.spec import Spec
from pasto.service.trust.measured import shares
from pasto.service.trust.quantities import quantities
from pasto.store import Store

ARMS = {"single": "best single", "blend": "probabilistic"}


def confirmed(store: Store, spec: Spec, *, confidence: float, together: bool = True) -> tuple[Lift, ...]:
    """Return every arm's lifts in the confirmation that a study is in.

    All the intervals hold together with that confidence, or each of them by itself. The horizon of the confirmation was
    set before it began, and this is the one look at it.
    """
    row = store.study(spec.name)
    policy = None if row is None else store.policy(row.number, row.version)
    assert row is not None and policy is not None  # noqa: S101, PT018 -- it has just been confirming
    with store.reading() as connection:
        cells = measure(
            connection,
            store.dialect,
            study=row.number,
            version=row.version,
            after=policy.after,
            until=store.high_water(row.number),
            columns=spec.columns,
        )
    served = shares(json.loads(policy.text))
    record = recorded([MeasuredRound(row.version, served, cells)])
    present = {arm for arm, _ in served}
    targets = [Target(name, arm) for arm, name in ARMS.items() if arm in present]
    asked = quantities(spec)
    each = 1.0 - (1.0 - confidence) / (len(targets) * len(asked) if together else 1)
    return lifts(record, asked, targets, confidence=each, sequential=False)
