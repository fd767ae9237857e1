"""MovieLens as GroupLens publishes it: 20M, 25M and latest as CSV, 10M and 1M as .dat files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pasto.errors import InputError
from pasto_research.paper.data.interactions import Block, Interactions, gather, numbered
from pasto_research.paper.data.readers import Source, find, numbers

GENRE = "Documentary"
EDITIONS = {
    1_000_209: "MovieLens-1M",
    10_000_054: "MovieLens-10M",
    20_000_263: "MovieLens-20M",
    25_000_095: "MovieLens-25M",
}
"""By their published numbers of ratings."""


def load(directory: str | Path, least: float = 3.0, genre: str = GENRE) -> Interactions:
    r"""Return the ratings of at least `least` stars, and the movies of a genre.

    The directory holds ratings.csv and movies.csv, or ratings.dat and movies.dat, or the official zip with them inside.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "ratings.dat").write_text("1::10::5::978300760\n1::20::2::978302109\n")
    ...     _ = Path(place, "movies.dat").write_text("10::Hoop Dreams (1994)::Documentary\n20::Heat (1995)::Action\n")
    ...     pairs = load(place)
    >>> pairs.rows, pairs.events, pairs.worth
    (2, 1, {'documentary': array([1.])})
    """
    ratings = find(directory, "ratings.csv", "ratings.dat")
    movies = find(directory, "movies.csv", "movies.dat")
    if ratings is None or movies is None:
        raise InputError(
            f"{str(directory)!r} holds no MovieLens: ratings.csv and movies.csv are needed, or ratings.dat and "
            "movies.dat, or the zip file they come in"
        )
    found = gather(_ratings(ratings), least)
    genres = {movie: float(genre in kinds) for movie, kinds in _movies(movies)}
    name = EDITIONS.get(found.rows, f"MovieLens ({found.rows:,} ratings)")
    return numbered(name, found, {genre.lower(): genres}, missing=0.0)


def _ratings(source: Source) -> Iterator[Block]:
    dotted = _dotted(source)
    for number, block in enumerate(source.blocks()):
        if not (dotted or number):
            head, _, block = block.partition(b"\n")
            if head.strip() != b"userId,movieId,rating,timestamp":
                raise InputError(f"{str(source)!r} should begin with userId,movieId,rating,timestamp, got {head!r}")
        if block:
            table = numbers(block, 4, source, b"::" if dotted else b",")
            yield table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2].astype(np.float32)


def _movies(source: Source) -> Iterator[tuple[int, list[str]]]:
    if _dotted(source):
        for line in source.lines("latin-1"):
            identity, _, rest = line.partition("::")
            yield int(identity), rest.rpartition("::")[2].split("|")
        return
    for row in csv.DictReader(source.lines()):
        yield int(row["movieId"]), row["genres"].split("|")


def _dotted(source: Source) -> bool:
    return (source.member or source.path.name).removesuffix(".gz").endswith(".dat")
