"""Recommenders for the paper's experiments on real data, and how their rankings are judged."""
