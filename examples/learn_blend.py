"""Learning a blend by ask and tell, with the study saved to JSON and restored in the middle.

Nine settings of a feed are tried on live traffic, simulated here. The goal is watch_time, while likes are to stay at 6
and shares at 4. A study asks which setting to try, is told what was measured, and
learns; its state is one JSON value, so it can rest in a file or a database between rounds.
"""

import json

import numpy as np

import pasto
from pasto.optimize.learners import Algorithm1

candidates = pasto.grid(like_weight=[0, 1, 2], share_weight=[0, 1, 2])
objective = pasto.maximize("watch_time").keep("likes", at_least=6, penalty=2.0).keep("shares", at_least=4, penalty=2.0)


def truth(like_weight: float, share_weight: float) -> tuple[float, float, float]:
    """What a setting really does, which the study must find out."""
    extreme = abs(like_weight - share_weight) / 2
    return (
        10 + 2 * extreme - like_weight - share_weight,
        4 + 2 * like_weight - share_weight,
        4 + 2 * share_weight - like_weight,
    )


means = np.array([truth(float(row["like_weight"]), float(row["share_weight"])) for row in candidates]).T
platform = np.random.default_rng(2)


def learn(study: pasto.Study, rounds: int) -> None:
    for _ in range(rounds):
        assignments = study.ask(parallel=20)
        # The platform serves each assignment to some users and averages what they did.
        seen = [means[:, a.candidate] + platform.normal(0, 1, 3) for a in assignments]
        study.tell(assignments, seen)


study = pasto.Study(candidates, objective, learner=Algorithm1(step=0.01), seed=7)
learn(study, 1_000)

saved = json.dumps(study.state())
study = pasto.Study.from_state(json.loads(saved))
print(f"restored after {study.rounds} rounds from {len(saved):,} characters of JSON")
learn(study, 1_000)

blend = study.blend()
for k in np.argsort(blend.probabilities)[:-4:-1]:
    print(f"{blend.probabilities[k]:6.1%}  {blend.names[k]}")
value = float(objective.value(means @ np.array(blend.probabilities)))
exact = pasto.solve(means, objective, names=candidates.names)
print(f"in truth f = {value:.2f}; best single {exact.single_value:.2f}, best blend {exact.value:.2f}")
