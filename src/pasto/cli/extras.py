"""Optional dependencies of commands: the extra that installs a missing module."""

from __future__ import annotations

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
