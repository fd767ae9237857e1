"""Number of threads that a command computes with."""

from __future__ import annotations

import os


def use_one_thread() -> None:
    """Limit linear algebra to one thread, unless the environment sets another number. Call it before NumPy is loaded.

    A learner's matrices are small: several threads are slower than one, and take cores from requests.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
