"""The demonstration: a live service learns a blend from simulated users, confirms it, and is held against the truth."""
