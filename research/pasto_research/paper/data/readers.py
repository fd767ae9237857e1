"""Text files of any size, plain, gzipped or inside a zip archive, a few megabytes at a time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import InputError, MissingExtraError

SIZE = 8 << 20
"""Bytes a block, before it is cut at its last line."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file on disk, or a member of an archive.

    >>> str(Source(Path("ml-1m.zip"), "ml-1m/ratings.dat"))
    'ml-1m.zip: ml-1m/ratings.dat'
    """

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}: {self.member}"

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Return the file's bytes, unpacked."""
        try:
            if self.member is not None:
                with ZipFile(self.path) as archive, archive.open(self.member) as file:
                    yield file
            elif self.path.suffix == ".gz":
                with gzip.open(self.path) as unpacked:
                    yield cast(IO[bytes], unpacked)
            else:
                with self.path.open("rb") as plain:
                    yield plain
        except (OSError, EOFError, BadZipFile) as error:
            raise InputError(f"cannot read {str(self)!r}: {error}") from error

    def lines(self, encoding: str = "utf-8") -> Iterator[str]:
        """Yield the lines, without their ends."""
        with self.opened() as file:
            for line in file:
                yield line.decode(encoding).rstrip("\r\n")

    def blocks(self, size: int = SIZE) -> Iterator[bytes]:
        """Yield blocks of complete lines, each ended by a newline."""
        rest = b""
        with self.opened() as file:
            while piece := file.read(size):
                piece = rest + piece
                cut = piece.rfind(b"\n") + 1
                rest = piece[cut:]
                if cut:
                    yield piece[:cut]
        if rest:
            yield rest + b"\n"


def find(directory: str | Path, *names: str, deep: bool = True) -> Source | None:
    """Return the first file of one of these names in a directory or, if deep, in a subdirectory, packed or not.

    >>> find(Path("nowhere"), "ratings.csv") is None
    True
    """
    place = Path(directory)
    if place.is_file():
        return _among([place], names)
    near = sorted(path for path in place.glob("*") if path.is_file())
    below = sorted(path for path in place.glob("*/*") if path.is_file()) if deep else []
    return _among(near, names) or _among(below, names)


def numbers(block: bytes, columns: int, source: Source, delimiter: bytes = b",") -> FloatArray:
    r"""Return a block of lines of plain numbers, (lines, columns).

    >>> numbers(b"1::20::5::978300760\n", 4, Source(Path("ratings.dat")), b"::").tolist()
    [[1.0, 20.0, 5.0, 978300760.0]]
    """
    try:
        found = np.loadtxt(BytesIO(block.replace(delimiter, b",")), delimiter=",", comments=None, ndmin=2)
        if found.shape[1] == columns and np.isfinite(found).all():
            return found
    except ValueError:
        pass
    lines = block.replace(b"\r", b"").splitlines()
    line = next((line for line in lines if not _fits(line, columns, delimiter)), block[:80])
    raise InputError(
        f"{str(source)!r} should have {columns} numbers a line, parted by {delimiter.decode()!r}; it has the line "
        f"{line.decode('utf-8', 'replace')!r}"
    )


def _fits(line: bytes, columns: int, delimiter: bytes) -> bool:
    parts = line.split(delimiter)
    try:
        return len(parts) == columns and all(np.isfinite(float(part)) for part in parts)
    except ValueError:
        return False


def _among(paths: list[Path], names: tuple[str, ...]) -> Source | None:
    for name in names:
        for path in paths:
            if path.name in (name, f"{name}.gz"):
                return Source(path)
        for path in paths:
            if path.suffix == ".zip":
                with ZipFile(path) as archive:
                    for member in archive.namelist():
                        if member.rsplit("/", 1)[-1] == name and "__MACOSX" not in member:
                            return Source(path, member)
    return None


Columns = dict[str, NDArray[Any]]


def columns(path: Path, *names: str, unnest: str | None = None) -> Columns:
    """Return some columns of a file; a column of lists can be unnested, one row for each of its elements."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("Parquet files need DuckDB", "serve") from error
    wanted = [f'"{name}"' for name in names] + ([f'unnest("{unnest}") AS "{unnest}"'] if unnest else [])
    if not path.exists():
        raise InputError(f"there is no file {str(path)!r}")
    connection = duckdb.connect()
    try:
        statement = f"SELECT {', '.join(wanted)} FROM read_parquet(?)"  # noqa: S608 -- our own column names
        found = connection.execute(statement, [str(path)]).fetchnumpy()
    except duckdb.Error as error:
        raise InputError(f"cannot read {', '.join((*names, unnest or ''))} of {str(path)!r}: {error}") from error
    finally:
        connection.close()
    return {name: _filled(values) for name, values in found.items()}


def _filled(values: Any) -> NDArray[Any]:
    """Return missing numbers as NaN, missing text as None."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    empty: Any = None if values.dtype == object else np.nan
    return np.asarray(np.where(np.ma.getmaskarray(values), empty, np.ma.getdata(values)))
