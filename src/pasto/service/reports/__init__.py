"""Reports of a study: lifts, guardrails, confirmation, prices, trade-off, data quality and what-if questions."""
