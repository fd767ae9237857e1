"""Robust blends under a posterior: best in expectation, with hard guardrails held with confidence."""
