"""What a study's closes say that can be trusted: lifts, guardrails, a confirmation, prices, other questions."""
