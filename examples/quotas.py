"""Integer quotas under a budget: the slots of a page for each source, and the best blend of such splits.

A page has 10 slots for posts from friends, from search history and from fresh creators; at most 10 together, and at
least 2 for friends. A source earns little below a critical mass, so a page that prefers one source is better than an
even split. But fresh creators need exposure, and a page must load in time.
"""

import pasto

quotas = pasto.grid(
    "friends + history + fresh <= 10",
    "friends >= 2",
    friends=range(11),
    history=range(11),
    fresh=range(11),
)
print(f"{len(quotas)} ways to fill the page")


def worth(slots: float, each: float, mass: float) -> float:
    """Return the worth of a source: little below its critical mass, then its full worth for each slot."""
    return each * slots**3 / (slots**2 + mass**2)


rows = [{name: float(value) for name, value in row.items()} for row in quotas]
means = {
    "clicks": [worth(r["friends"], 0.5, 2) + worth(r["history"], 0.9, 4) + worth(r["fresh"], 0.6, 5) for r in rows],
    "exposure": [r["fresh"] for r in rows],
    "load": [2 * r["friends"] + 5 * r["history"] + 3 * r["fresh"] for r in rows],
}
objective = pasto.maximize("clicks").keep("exposure", at_least=3).keep("load", at_most=35)

blend = pasto.solve(means, objective, names=quotas.names)
print(blend)
print(f"mixing is worth {blend.gain.value:.3f} clicks a page")
for name, price in blend.prices.items():
    print(f"relaxing {name} by one unit would buy {price:.3f} clicks")
