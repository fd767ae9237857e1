"""Rounds: how one ends, what is learned from it, and how all of them can be computed again."""
