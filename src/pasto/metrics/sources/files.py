"""Files as a source: folders of Parquet or CSV as tables of DuckDB or Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pasto.errors import OptionError
from pasto.metrics.sql import DIALECTS, QueryBuilder

FORMATS = ("parquet", "csv")
_DATA_FILE = re.compile(r"\.(parquet|csv)(\.(gz|zst|bz2|xz|snappy|lz4|zip))?$", re.IGNORECASE)


def open_duckdb(
    folders: dict[str, str], *, threads: int | None = None, memory: str | None = None, spill: str | None = None
) -> Any:
    r"""Return a DuckDB connection with a view for each folder or pattern of files; several may be open at once.

    It fetches nothing over the network and reads no settings. `memory`, such as "4GiB", is what it may use at most;
    beyond that it spills to the folder `spill`.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "a.csv").write_text("unit,version\nann,7\n")
    ...     with open_duckdb({"seen": f"{folder}/*.csv"}) as connection:
    ...         connection.execute("SELECT * FROM seen").fetchall()
    [('ann', 7)]
    """
    import duckdb

    settings: dict[str, bool | int | str] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    if threads is not None:
        settings["threads"] = threads
    if memory is not None:
        settings["memory_limit"] = memory
    if spill is not None:
        settings["temp_directory"] = spill
    connection = duckdb.connect(config=settings)
    try:
        draft = QueryBuilder(DIALECTS["duckdb"])
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


def open_spark(session: Any, folders: dict[str, str]) -> None:
    """Give a Spark session a view for each folder or pattern of files."""
    for name, pattern in folders.items():
        kind, files = _files(pattern)
        reader = session.read.option("header", True).option("inferSchema", True)
        getattr(reader, kind)(files).createOrReplaceTempView(name)


def _files(pattern: str) -> tuple[str, str]:
    """Return the format of the files of a pattern, and the pattern."""
    path = Path(pattern)
    if path.is_dir():
        return _kind_in(path), pattern
    for kind in FORMATS:
        if path.suffix == f".{kind}":
            return kind, pattern
    raise OptionError(
        f"{pattern} is not a folder and names no files of {' or '.join(FORMATS)}; end it in .parquet or .csv"
    )


def _kind_in(folder: Path) -> str:
    """Return the one kind of files that a folder holds; a file that would not be read is refused, not left out."""
    found: dict[str, Path] = {}
    for path in folder.rglob("*"):
        match = _DATA_FILE.search(path.name)
        if match is None or path.is_dir():
            continue
        if match[0] not in (f".{kind}" for kind in FORMATS):
            raise OptionError(
                f"{folder} holds {path.relative_to(folder)}, which would not be read: files must end in .parquet or "
                ".csv, in lower case and not compressed. Rename or unpack it, or move it out of the folder."
            )
        found.setdefault(match[1], path)
    if len(found) > 1:
        parquet, csv = (found[kind].relative_to(folder) for kind in FORMATS)
        raise OptionError(
            f"{folder} holds both Parquet files ({parquet}) and CSV files ({csv}), and a table must be of one kind. "
            "Write all of it as Parquet, or move the CSV files out of the folder."
        )
    if not found:
        raise OptionError(f"{folder} holds no file of {' or '.join(FORMATS)}; name the folder that does")
    return next(iter(found))
