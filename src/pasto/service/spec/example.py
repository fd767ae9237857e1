"""A study file to start from, as `pasto study init` writes it."""

EXAMPLE = """\
# A study: what may be served, what is measured, what to raise and what to hold.
name: feed                      # in URLs, flags and reports: a-z, 0-9, _ and -
unit: user                      # what is assigned and averaged over: user, session, request
description: Weights of the home feed

# What is served today. Everything is compared with it, and everyone gets it when in doubt.
baseline: {like_weight: 1, share_weight: 1}

# What may be served: every combination of these levels. Instead of `parameters` you can list settings one by one,
#   candidates: [{like_weight: 0, share_weight: 1}, {like_weight: 1, share_weight: 1}]
# or give ranges, in which new settings are found while the study learns:
#   ranges: {like_weight: {from: 0, to: 2}, share_weight: {from: 0, to: 2}}
parameters:
  like_weight: [0, 1, 2]
  share_weight: [0, 1, 2]

# What is measured, from your events. Each unit's events are aggregated first, then averaged over units.
metrics:
  watch_time: {event: watch, value: seconds, per_unit: sum, cap: 7200}    # no unit counts for more than its cap
  like_rate:                                                              # a ratio: likes per view
    ratio:
      - {event: like, per_unit: count, cap: 200}
      - {event: view, per_unit: count, cap: 1000}

goal: {maximize: watch_time}

# What must hold meanwhile. With a penalty a guardrail is soft (breaches cost, a little is settled for); without one it
# is hard. The budget is what exploring may cost; beyond the floor, traffic is pulled.
guardrails:
  - {keep: like_rate, at_least: -2%, penalty: 5, budget: 1%, floor: -5%}

traffic:
  control: 10%                  # stays on the baseline, to compare with
  explore: 100%                 # of the others, what the learner may steer
  floor: 2%                     # spread evenly over all candidates, so that none is forgotten
  cap: 30%                      # the most that one candidate gets
  entry: 1%                     # the most that a candidate nobody has measured gets

rounds: {every: 1h, maturity: 2h}    # a new policy every hour; late events are waited for two hours
learner: thompson
confidence: 95%                      # with which each hard guardrail holds in the answer
expires_after: 1d                    # a caller cut off from the service goes back to the baseline after this
"""
