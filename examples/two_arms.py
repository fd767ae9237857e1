"""Two settings, a safe one and a bold one that breaks a guardrail: the blend holds the guardrail and gains.

Setting "bold" earns 2 of x and loses 2 of y; "careful" earns no x and gains 2 of y. The guardrail is y >= 0. The best
single setting that holds it is "careful", with x = 0. Served half and half, they hold it too, with x = 1.
"""

import pasto

means = {"x": [2, 0], "y": [-2, 2]}
objective = pasto.maximize("x").keep("y", at_least=0)

blend = pasto.solve(means, objective, names=["bold", "careful"])
print(blend)
print(f"mixing is worth {blend.gain.value:g}; a unit of y is worth {blend.prices['y']:g} x")

# The same with a soft guardrail: missing y by d costs 5 d². The optimum gives up a little y, because that pays.
soft = pasto.solve(means, pasto.maximize("x").keep("y", at_least=0, penalty=5.0), names=["bold", "careful"])
print(soft)
