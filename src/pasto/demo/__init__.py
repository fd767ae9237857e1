"""Demonstration: a live service learns a blend from simulated users, and the known truth checks the result."""
