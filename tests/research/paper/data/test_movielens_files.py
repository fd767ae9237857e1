from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from pasto.errors import InputError
from pasto_research.paper.data import Interactions, Source, find
from pasto_research.paper.data.movielens import load

RATINGS = [(1, 2, 3.5), (1, 29, 3.0), (2, 2, 5.0), (2, 32, 2.5), (7, 32, 0.5), (7, 29, 4.0)]
MOVIES = [
    (2, "Jumanji (1995)", "Adventure|Children|Fantasy"),
    (29, "City of Lost Children, The (Cité des enfants perdus, La) (1995)", "Adventure|Drama"),
    (32, 'Hoop: "Dreams" (1994)', "Documentary|Drama"),
]


def write_csv(place: Path, end: str = "\n") -> None:
    """Write the format of 20M, 25M and latest: a header, commas, and quotes around titles with commas."""
    rows = [f"{user},{movie},{stars},1112486027" for user, movie, stars in RATINGS]
    (place / "ratings.csv").write_text(end.join(["userId,movieId,rating,timestamp", *rows, ""]), newline="")
    titles = [title.replace('"', '""') for _, title, _ in MOVIES]
    movies = [f'{movie},"{title}",{genres}' for (movie, _, genres), title in zip(MOVIES, titles, strict=True)]
    (place / "movies.csv").write_text(end.join(["movieId,title,genres", *movies, ""]), encoding="utf-8", newline="")


def dat_file(stars: bool) -> bytes:
    """Write the format of 10M and 1M: no header, two colons, Latin letters in one byte each."""
    if stars:
        return "".join(f"{user}::{movie}::{rated:g}::838985046\n" for user, movie, rated in RATINGS).encode()
    return "".join(f"{movie}::{title}::{genres}\n" for movie, title, genres in MOVIES).encode("latin-1")


def check(pairs: Interactions) -> None:
    """Check that users 1, 2 and 7 gave three stars or more to movies 2 and 29; 32 is the only documentary."""
    assert (pairs.rows, pairs.events, pairs.user_count, pairs.item_count) == (6, 4, 3, 2)
    assert sorted(zip(pairs.users.tolist(), pairs.items.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0), (2, 1)]
    assert pairs.worth["documentary"].tolist() == [0.0, 0.0]
    assert pairs.name == "MovieLens (6 ratings)"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comma_separated_files_are_read(tmp_path: Path, end: str) -> None:
    write_csv(tmp_path, end)
    check(load(tmp_path))


def test_files_with_colons_are_read(tmp_path: Path) -> None:
    (tmp_path / "ratings.dat").write_bytes(dat_file(stars=True))
    (tmp_path / "movies.dat").write_bytes(dat_file(stars=False))
    check(load(tmp_path))


def test_the_official_archive_is_read_as_it_is_and_from_one_directory_above(tmp_path: Path) -> None:
    (tmp_path / "ml-1m").mkdir()
    with zipfile.ZipFile(tmp_path / "ml-1m" / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", dat_file(stars=True))
        archive.writestr("ml-1m/movies.dat", dat_file(stars=False))
    check(load(tmp_path / "ml-1m"))
    check(load(tmp_path))


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    write_csv(tmp_path)
    for name in ("ratings.csv", "movies.csv"):
        plain = tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    check(load(tmp_path))


def test_the_threshold_of_stars_and_the_genre_are_options(tmp_path: Path) -> None:
    write_csv(tmp_path)
    pairs = load(tmp_path, least=0.5, genre="Drama")
    assert (pairs.events, pairs.item_count) == (6, 3)
    assert pairs.worth["drama"].tolist() == [0.0, 1.0, 1.0]
    assert load(tmp_path, least=4.0).events == 2


def test_blocks_of_every_size_hold_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"".join(b"%d,%d\n" % (n, n * n) for n in range(300)) + b"300,90000")
    for size in (1, 7, 64, 5_000):
        blocks = list(Source(path).blocks(size))
        assert all(block.endswith(b"\n") for block in blocks)
        assert b"".join(blocks) == path.read_bytes() + b"\n"


@pytest.mark.parametrize("row", ["1,2,x,9", "1,2,3", "1,2,nan,9", "1,2,3,9,9"])
def test_a_row_that_is_no_rating_is_named(tmp_path: Path, row: str) -> None:
    write_csv(tmp_path)
    with (tmp_path / "ratings.csv").open("a") as file:
        file.write(f"{row}\n")
    with pytest.raises(InputError, match=f"4 numbers a line, parted by ','; it has the line '{row}'"):
        load(tmp_path)


def test_files_that_are_missing_damaged_or_another_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no MovieLens: ratings.csv and movies.csv are needed"):
        load(tmp_path)
    write_csv(tmp_path)
    (tmp_path / "ratings.csv").write_text("user,item,rating,timestamp\n1,2,3,4\n")
    with pytest.raises(InputError, match=r"should begin with userId,movieId,rating,timestamp"):
        load(tmp_path)
    (tmp_path / "ratings.csv").unlink()
    (tmp_path / "ratings.csv.gz").write_bytes(gzip.compress(b"userId,movieId,rating,timestamp\n1,2,3,4\n")[:-9])
    with pytest.raises(InputError, match=r"cannot read .*ratings.csv.gz"):
        load(tmp_path)


def test_a_file_nearby_is_found_before_one_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ratings.csv").write_text("")
    found = find(tmp_path, "ratings.csv")
    assert found is not None
    assert found.path == tmp_path / "below" / "ratings.csv"
    assert find(tmp_path, "ratings.csv", deep=False) is None
    (tmp_path / "ratings.csv").write_text("")
    found = find(tmp_path, "ratings.csv")
    assert found is not None
    assert found.path == tmp_path / "ratings.csv"
