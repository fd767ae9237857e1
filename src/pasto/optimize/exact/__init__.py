"""Exact answers for known means: one program for every linear goal, and the ways to solve it."""
