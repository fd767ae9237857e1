"""Answers for a truth that is only believed: best in expectation, hard guardrails held with confidence."""
