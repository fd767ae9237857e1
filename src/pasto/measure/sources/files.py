"""Folders of Parquet or CSV files, as tables that DuckDB or Spark can be asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pasto.errors import BadOption
from pasto.measure.sql import DIALECTS, Draft

FORMATS = ("parquet", "csv")


def duckdb_over(
    folders: dict[str, str], *, threads: int | None = None, memory: str | None = None, spill: str | None = None
) -> Any:
    r"""A DuckDB connection with a view for each folder or pattern of files; several may be open at once.

    It fetches nothing over the network and reads no settings. `memory`, such as "4GiB", is what it may use at most;
    beyond that it spills to the folder `spill`.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "a.csv").write_text("unit,version\nann,7\n")
    ...     with duckdb_over({"seen": f"{folder}/*.csv"}) as connection:
    ...         connection.execute("SELECT * FROM seen").fetchall()
    [('ann', 7)]
    """
    import duckdb

    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    if threads is not None:
        settings["threads"] = threads
    if memory is not None:
        settings["memory_limit"] = memory
    if spill is not None:
        settings["temp_directory"] = spill
    connection = duckdb.connect(config=settings)
    try:
        draft = Draft(DIALECTS["duckdb"])
        for name, pattern in folders.items():
            kind, files = _files(pattern)
            # A view keeps no bound values, so the pattern is a quoted text.
            if Path(files).is_dir():
                files = f"{files}/**/*.{kind}"
            quoted = "'" + files.replace("'", "''") + "'"
            options = ", hive_partitioning = true" if kind == "parquet" else ""
            connection.execute(f"CREATE VIEW {draft.identifier(name)} AS FROM read_{kind}({quoted}{options})")
    except BaseException:
        connection.close()
        raise
    return connection


def spark_over(session: Any, folders: dict[str, str]) -> None:
    """Give a Spark session a view for each folder or pattern of files."""
    for name, pattern in folders.items():
        kind, files = _files(pattern)
        reader = session.read.option("header", True).option("inferSchema", True)
        getattr(reader, kind)(files).createOrReplaceTempView(name)


def _files(pattern: str) -> tuple[str, str]:
    """What kind of files a pattern means, and the pattern."""
    path = Path(pattern)
    if path.is_dir():
        for kind in FORMATS:
            if next(path.rglob(f"*.{kind}"), None) is not None:
                return kind, pattern
        raise BadOption(f"{pattern} holds no file of {' or '.join(FORMATS)}; name the folder that does")
    for kind in FORMATS:
        if path.suffix == f".{kind}":
            return kind, pattern
    raise BadOption(f"{pattern} is no folder and names no files of {' or '.join(FORMATS)}; end it in .parquet or .csv")
