"""A two-phase ranker: predictors first, then an aggregation layer whose strategic parameters are blended.

Phase one predicts, for every item of a request, the click rate (pctr), the like rate (plr) and its cleanness.
Phase two drops items below a threshold, adds up a weighted score, keeps a quota of places for new items, and shows the
top five. The weight, the threshold and the quota are the strategic parameters: no single choice of them is best.
A study learns a blend of them in twenty rounds of traffic, and then each request draws its own from the blend.
"""

import numpy as np

import pasto

SHOWN_ITEMS, ITEMS, REQUESTS = 5, 30, 10_000
ROUNDS, PARALLEL = 20, 20
METRICS = ("clicks", "likes", "new_views", "complaints")
candidates = pasto.grid(like_weight=[0, 2, 6], threshold=[0.0, 0.4], quota=[0, 1, 3])
objective = (
    pasto.maximize("clicks")
    .keep("likes", at_least=0.7)
    .keep("new_views", at_least=1.5)
    .keep("complaints", at_most=0.22)
)


def predict(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the predictions, (requests, items): liked items are clicked less, and new ones even less."""
    liked, new = rng.beta(2, 5, (REQUESTS, ITEMS)), rng.random((REQUESTS, ITEMS)) < 0.25
    pctr = rng.beta(2, 4, (REQUESTS, ITEMS)) * (1 - 0.6 * liked) * np.where(new, 0.7, 1.0)
    return {"pctr": pctr, "plr": 0.4 * liked, "clean": rng.beta(4, 2, (REQUESTS, ITEMS)) - 0.4 * pctr, "new": new}


def rank(predictions: dict[str, np.ndarray], like_weight: float, threshold: float, quota: float) -> np.ndarray:
    """Return the ranked items, (requests, items per page)."""
    score = predictions["pctr"] + like_weight * predictions["plr"] - 100 * (predictions["clean"] < threshold)
    places = np.argsort(-score, axis=1)
    new_first = np.argsort(-(score + 50 * predictions["new"]), axis=1)[:, : int(quota)]
    mine = (places[:, :, None] == new_first[:, None, :]).any(axis=2)
    order = np.argsort(~mine, axis=1, kind="stable")  # the quota's items first, then the others by score
    return np.asarray(np.take_along_axis(places, order, axis=1)[:, :SHOWN_ITEMS])


def serve(predictions: dict[str, np.ndarray], choice: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank every request with its own candidate, simulate the users, and return the counts, (requests, metrics)."""
    counts = np.zeros((REQUESTS, len(METRICS)))
    for k in np.unique(choice):
        requests = np.flatnonzero(choice == k)
        part = {name: values[requests] for name, values in predictions.items()}
        settings = {name: float(value) for name, value in candidates[int(k)].items()}
        top = rank(part, **settings)
        pctr, plr, clean, new = (
            np.take_along_axis(part[name], top, axis=1) for name in ("pctr", "plr", "clean", "new")
        )
        chance = np.stack([pctr, plr, new.astype(float), 0.1 * (1 - clean)])
        counts[requests] = (rng.random(chance.shape) < chance).sum(axis=2).T
    return counts


rng = np.random.default_rng(1)
study = pasto.Study(candidates, objective, seed=1)
for _ in range(ROUNDS):
    assignments = study.ask(PARALLEL)
    each = REQUESTS // PARALLEL
    counts = serve(predict(rng), np.repeat([a.candidate for a in assignments], each), rng)
    # One deviation for all: computed from an assignment's own few requests, it would fall whenever its mean does.
    errors = np.tile(counts.std(axis=0) / np.sqrt(each), (PARALLEL, 1))
    study.tell(assignments, counts.reshape(PARALLEL, each, -1).mean(axis=1), standard_errors=errors)
blend = study.blend()
print(objective)
for k in blend.support:
    print(f"{blend.probabilities[k]:6.1%}  {blend.names[k]}")
if blend.certificate:
    print("holds:", ", ".join(f"{name} {chance:.1%}" for name, chance in blend.certificate.holds.items()))

# Serve new requests: each draws its candidate from the blend; the best single candidate serves its own for comparison.
drawn = rng.choice(len(candidates), size=REQUESTS, p=blend.probabilities)
measured = {
    "blend": serve(predict(rng), drawn, rng).mean(axis=0),
    "best single": serve(predict(rng), np.full(REQUESTS, blend.gain.candidate), rng).mean(axis=0),
}
for label, row in measured.items():
    print(f"{label:12}", ", ".join(f"{name} {value:.2f}" for name, value in zip(METRICS, row, strict=True)))
