"""Environment of a command: the extra that installs a missing module, and the threads that it computes with."""

from __future__ import annotations

import os

from pasto.errors import MissingExtraError

EXTRA_BY_MODULE = {
    "ax": "peers",
    "confluent_kafka": "kafka",
    "duckdb": "serve",
    "httptools": "serve",
    "jinja2": "serve",
    "matplotlib": "plots",
    "msgspec": "serve",
    "optuna": "peers",
    "prometheus_client": "serve",
    "psycopg": "postgres",
    "pyspark": "spark",
    "sklearn": "process",
    "starlette": "serve",
    "torch": "vae",
    "uvicorn": "serve",
    "uvloop": "serve",
    "yaml": "serve",
}


def missing_extra(command: str, error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error that names the install; None if no extra brings the module.

    >>> print(missing_extra("pasto study", ModuleNotFoundError("No module named 'yaml'", name="yaml")))
    `pasto study` needs yaml, which is not installed; install it in a clone of PASTO with: pip install '.[serve]'
    """
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_BY_MODULE.get(module)
    return None if extra is None else MissingExtraError(f"`{command}` needs {module}, which is not installed", extra)


def use_one_thread() -> None:
    """Limit linear algebra to one thread, unless the environment sets another number. Call it before NumPy is loaded.

    A learner's matrices are small: several threads are slower than one, and take cores from requests.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
