"""Environment of a command: the extra that installs a missing module, and the arithmetic that it computes with."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pasto.errors import MissingExtraError

CPU_INFO = Path("/proc/cpuinfo")
"""File in which Linux lists the features of the processor."""
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


def use_common_arithmetic() -> None:
    """Choose the arithmetic that most machines share, except what the environment sets. Call it before NumPy is loaded.

    Linear algebra uses one thread: a learner's matrices are small, so several threads are slower than one, and take
    cores from requests. On an x86-64 processor with AVX2, NumPy and OpenBLAS use their code for AVX2 only. Otherwise
    they choose it by the processor, and then two processors differ in last digits. AVX-512 saves a learner no time.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if platform.machine() in ("x86_64", "AMD64") and has_avx2(CPU_INFO):
        for name, value in choose_avx2(_find_numpy()).items():
            os.environ.setdefault(name, value)


def has_avx2(cpu_info: Path) -> bool:
    """Return whether Linux lists AVX2 and FMA among the features of the processor; False on other systems."""
    try:
        text = cpu_info.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    features = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return {"avx2", "fma"} <= set(features)


def choose_avx2(numpy: tuple[int, int]) -> Mapping[str, str]:
    """Return the variables by which OpenBLAS and a version of NumPy use AVX2 and nothing newer.

    NumPy warns of names that it does not know, and they have changed with version 2.4.

    >>> choose_avx2((2, 4))["NPY_DISABLE_CPU_FEATURES"]
    'X86_V4 AVX512_ICL AVX512_SPR'
    """
    names = "X86_V4 AVX512_ICL AVX512_SPR"
    if numpy < (2, 4):
        names = "AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    return {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": names}


def _find_numpy() -> tuple[int, int]:
    """Return the first two numbers of NumPy's version, without loading it."""
    try:
        major, minor, *_ = version("numpy").split(".")
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return 0, 0
