"""How many threads a command computes with."""

from __future__ import annotations

import os


def one_thread() -> None:
    """Let linear algebra use one thread, unless the environment says otherwise; called before NumPy is loaded.

    A learner's matrices are small: threads that wait for one another take longer over them than one alone, and take
    the other cores from those who are being served.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
