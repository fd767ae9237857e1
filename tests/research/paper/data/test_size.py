"""Size of data: twenty million ratings, as in MovieLens-20M, are read and prepared within eight gibibytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, USERS, MOVIES = 20_000_000, 138_493, 26_744
LIMIT = 8 << 30
READ = """
import resource, sys
from pasto_research.paper.data import core, split
from pasto_research.paper.data.movielens import load
pairs = load(sys.argv[1])
parts = split(core(pairs))
assert parts.train.nnz + parts.test.nnz == parts.pairs.events
scale = 1 if sys.platform == "darwin" else 1024
print(pairs.rows, pairs.events, parts.pairs.events, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)
"""


def write(place: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    with (place / "ratings.csv").open("w") as file:
        file.write("userId,movieId,rating,timestamp\n")
        for start in range(0, rows, 500_000):
            count = min(500_000, rows - start)
            users = np.sort(rng.integers(1, 1 + rows * USERS // ROWS, count)).tolist()
            movies = (min(MOVIES, rows // 100) * rng.random(count) ** 2).astype(int).tolist()
            stars = (rng.integers(1, 11, count) / 2).tolist()
            rated = zip(users, movies, stars, strict=True)
            file.write("".join([f"{user},{movie + 1},{star},1112486027\n" for user, movie, star in rated]))
    with (place / "movies.csv").open("w") as file:
        file.write("movieId,title,genres\n")
        for movie in range(1, MOVIES + 1):
            file.write(f"{movie},Title {movie},{'Documentary' if movie % 12 == 0 else 'Drama'}\n")


def measured(place: Path) -> list[int]:
    """Return rows, positives, prepared positives, and the peak memory of a fresh process."""
    done = subprocess.run([sys.executable, "-c", READ, str(place)], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.realdata
def test_twenty_million_ratings_fit_into_eight_gibibytes(tmp_path: Path) -> None:
    write(tmp_path, ROWS)
    rows, positives, selected, most = measured(tmp_path)
    assert rows == ROWS
    assert 0 < selected <= positives < rows
    assert most < LIMIT


def test_memory_grows_with_the_positives_and_not_with_the_file(tmp_path: Path) -> None:
    """Check peak memory: 100 bytes per row would be 2 GB, and reading the complete file several times that."""
    write(tmp_path, 50_000)
    small = measured(tmp_path)
    write(tmp_path, 300_000)
    large = measured(tmp_path)
    assert (small[0], large[0]) == (50_000, 300_000)
    assert (large[3] - small[3]) / (large[0] - small[0]) < 400
