"""Learning a blend by ask and tell, with the study saved to JSON and restored in the middle.

Nine settings of a feed are tried on simulated live traffic. The goal is watch_time, while likes must stay at 6 and
shares at 4. A study draws the settings to try, takes their metrics with standard errors, and learns. Its state is one
JSON value, so it can be stored in a file or a database between rounds. Its answer has a certificate (the probability
that each guardrail holds) and an advice (continue or stop).
"""

import json

import numpy as np

import pasto
from pasto.report.summary import write_advice

candidates = pasto.grid(like_weight=[0, 1, 2], share_weight=[0, 1, 2])
objective = pasto.maximize("watch_time").keep("likes", at_least=6).keep("shares", at_least=4)


def true_means(like_weight: float, share_weight: float) -> tuple[float, float, float]:
    """Return the means of a setting, which the study has to learn."""
    extreme = abs(like_weight - share_weight) / 2
    return (
        10 + 2 * extreme - like_weight - share_weight,
        4 + 2 * like_weight - share_weight,
        4 + 2 * share_weight - like_weight,
    )


means = np.array([true_means(float(row["like_weight"]), float(row["share_weight"])) for row in candidates]).T
platform = np.random.default_rng(2)


def learn(study: pasto.Study, rounds: int) -> None:
    for _ in range(rounds):
        assignments = study.ask(parallel=20)
        # The platform serves each assignment to some users and averages their metrics.
        metrics = [means[:, a.candidate] + platform.normal(0, 1, 3) for a in assignments]
        study.tell(assignments, metrics, standard_errors=np.ones((len(assignments), 3)))


study = pasto.Study(candidates, objective, seed=7)
learn(study, 20)

saved = json.dumps(study.state())
study = pasto.Study.from_state(json.loads(saved))
print(f"restored after {study.rounds} rounds from {len(saved):,} characters of JSON")
learn(study, 20)

blend = study.blend()
for k in blend.support:
    print(f"{blend.probabilities[k]:6.1%}  {blend.names[k]}")
if blend.certificate and blend.outlook:  # the paper's learners have neither
    for name, chance in blend.certificate.holds.items():
        print(f"{name} holds with probability {chance:.1%}")
    print(f"certified at {blend.certificate.confidence:.0%}: {blend.certificate.certified}")
    print(write_advice(blend))

watch_time, likes, shares = means @ np.array(blend.probabilities)
exact = pasto.solve(means, objective, names=candidates.names)
print(f"the true means of the blend: likes {likes:.2f}, shares {shares:.2f}")
print(f"the true watch_time {watch_time:.2f}; best single {exact.best_single_value:.2f}, best blend {exact.value:.2f}")
