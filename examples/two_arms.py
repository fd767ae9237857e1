"""Two settings, one of them safe and dull, one bold and against the rules: the blend keeps the rule and gains.

Setting "bold" earns 2 of x and loses 2 of y; "careful" earns no x and gains 2 of y. The rule is y >= 0. The best single
setting that keeps it is "careful", with x = 0. Served half and half, they keep it too, with x = 1.
"""

import pasto

truth = {"x": [2, 0], "y": [-2, 2]}
objective = pasto.maximize("x").keep("y", at_least=0)

blend = pasto.solve(truth, objective, names=["bold", "careful"])
print(blend)
print(f"mixing is worth {blend.gain.value:g}; a unit of y is worth {blend.prices['y']:g} x")

# The same with a soft guardrail: missing y by d costs 5 d². The optimum gives up a little y where it pays.
soft = pasto.solve(truth, pasto.maximize("x").keep("y", at_least=0, penalty=5.0), names=["bold", "careful"])
print(soft)
