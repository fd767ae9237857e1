from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pasto.errors import InputError
from pasto_research.paper.data import Interactions
from pasto_research.paper.data.amazon import load, price_of
from pasto_research.paper.table2_amazon import found

ANNA, BERT = "A1YJEY40YUW4SE", "A60XNB876KYML1XXXXXXX"
BOOK, LAMP, SOAP = "0006428320", "B00005N7P0", "B000GKXY4S"
ROWS = [(ANNA, BOOK, 5.0), (ANNA, LAMP, 2.0), (BERT, LAMP, 3.0), (BERT, SOAP, 4.0)]
PRICES = {BOOK: 7.99, LAMP: None, SOAP: 12.5}


def check(pairs: Interactions, name: str) -> None:
    """Check that three of four ratings have three stars, and that the book and the soap have a price."""
    assert (pairs.name, pairs.rows, pairs.events, pairs.user_count, pairs.item_count) == (name, 4, 3, 2, 3)
    by_pair = dict(zip(zip(pairs.users.tolist(), pairs.items.tolist(), strict=True), pairs.items, strict=True))
    assert len(by_pair) == 3
    assert sorted(pairs.worth["price"][np.isfinite(pairs.worth["price"])].tolist()) == [7.99, 12.5]


def write_metadata(place: Path, *, quotes: str = "json") -> None:
    products = [
        {"asin": asin, "title": "It's", **({} if price is None else {"price": price})} for asin, price in PRICES.items()
    ]
    lines = [repr(product) if quotes == "python" else json.dumps(product) for product in products]
    (place / "meta_Toys.json.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))


@pytest.mark.parametrize("order", ["2014", "2018", "2023"])
def test_ratings_are_read_with_the_product_in_any_column(tmp_path: Path, order: str) -> None:
    write_metadata(tmp_path)
    rows = [(item, user) if order == "2018" else (user, item) for user, item, _ in ROWS]
    lines = [f"{first},{second},{stars},1364860800" for (first, second), (_, _, stars) in zip(rows, ROWS, strict=True)]
    if order == "2023":
        lines.insert(0, "user_id,parent_asin,rating,timestamp")
    (tmp_path / "ratings_Toys.csv").write_text("\n".join(lines) + "\n")
    check(load(tmp_path), "Amazon Toys")


@pytest.mark.parametrize("quotes", ["json", "python"])
def test_reviews_are_read(tmp_path: Path, quotes: str) -> None:
    write_metadata(tmp_path, quotes=quotes)
    reviews = [
        json.dumps({"reviewerID": user, "asin": item, "overall": stars, "reviewText": 'so "so"'})
        for user, item, stars in ROWS
    ]
    (tmp_path / "reviews_Toys_5.json.gz").write_bytes(gzip.compress("\n".join(reviews).encode()))
    check(load(tmp_path), "Amazon Toys")


def test_reviews_of_2023_are_read(tmp_path: Path) -> None:
    products = [{"parent_asin": asin, "price": None if price is None else f"{price}"} for asin, price in PRICES.items()]
    (tmp_path / "meta_Toys.jsonl").write_text("".join(json.dumps(product) + "\n" for product in products))
    reviews = [
        {"user_id": user, "parent_asin": item, "asin": "B0VARIANT1", "rating": stars} for user, item, stars in ROWS
    ]
    (tmp_path / "Toys.jsonl").write_text("".join(json.dumps(review) + "\n" for review in reviews))
    check(load(tmp_path), "Amazon Toys")


def write_pairs(place: Path, name: str = "Games.txt") -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text("1 1\n1 3\n2 3\n2 2\n3 1\n")
    (place / "item_description.tsv").write_text(
        "item_id:token\tprice:float\tcategories:token_seq\ttitle:token\n"
        "1\t246.63\t'Games', 'PC'\t\n2\t0.0\t'Games'\tA \"game\nof\n"[:-4]
        + "\n3\t9.5\t\tOther\n"
    )


def test_pairs_without_stars_all_count_and_no_price_is_zero(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    (tmp_path / "SOURCE.txt").write_text("Amazon Video Games\n")
    pairs = load(tmp_path)
    assert (pairs.name, pairs.rows, pairs.events, pairs.user_count, pairs.item_count) == ("Amazon Games", 5, 5, 3, 3)
    np.testing.assert_array_equal(pairs.worth["price"], [246.63, np.nan, 9.5])


def test_every_set_in_a_directory_is_found(tmp_path: Path) -> None:
    write_pairs(tmp_path / "games")
    write_pairs(tmp_path / "beauty", "Beauty.txt")
    (tmp_path / "other").mkdir()
    assert [pairs.name for pairs in found(tmp_path)] == ["Amazon Beauty", "Amazon Games"]
    assert [pairs.name for pairs in found(tmp_path / "games")] == ["Amazon Games"]
    with pytest.raises(InputError, match="holds no Amazon reviews"):
        found(tmp_path / "other")


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no Amazon reviews: a metadata file"):
        load(tmp_path)
    write_metadata(tmp_path)
    (tmp_path / "ratings.csv").write_text("short,alsoshort,5,1\n")
    with pytest.raises(InputError, match="neither of the first two columns"):
        load(tmp_path)
    (tmp_path / "ratings.csv").unlink()
    (tmp_path / "reviews.json").write_text('{"reviewerID": "A1"}\n')
    with pytest.raises(InputError, match="a review needs reviewerID, asin and overall"):
        load(tmp_path)
    (tmp_path / "reviews.json").write_text("{broken\n")
    with pytest.raises(InputError, match="line 1, is not a JSON object"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "Currently unavailable", "$3.00 - $4.00", None, -1.0, 0, True, float("nan"), [3]])
def test_what_is_no_price_is_none(text: object) -> None:
    assert price_of(text) is None
