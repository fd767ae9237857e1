"""Amazon reviews: ratings as CSV, reviews and products as JSON lines, or "user item" pairs with a table of items."""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pasto.errors import InputError
from pasto_research.paper.data.interactions import Block, Interactions, gather, numbered
from pasto_research.paper.data.readers import Source, find, numbers

MANY = 500_000
"""Lines a block, where they are read one by one."""
ASIN = 10
"""Characters of a product's identity; a reviewer's has 10 to 21."""
TABLES = ("item_description.tsv", "item_description.csv")


def load(directory: str | Path, least: float = 3.0) -> Interactions:
    r"""Return the pairs of a reviewer and a product with at least `least` stars, and the products' prices.

    The directory holds one of: a table item_description.tsv and a .txt file of "user item" lines without stars, all
    of which count; or a metadata file (meta_*.json or .jsonl) and ratings (*.csv) or reviews (*.json, *.jsonl). All
    of them may be gzipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "Toys.txt").write_text("1 1\n1 2\n2 2\n")
    ...     _ = Path(place, "item_description.tsv").write_text("item_id:token\tprice:float\n1\t4.99\n2\t\n")
    ...     pairs = load(place)
    >>> pairs.name, pairs.events, pairs.worth["price"]
    ('Amazon Toys', 3, array([4.99,  nan]))
    """
    place = Path(directory)
    table = find(place, *TABLES, deep=False)
    if table is not None:
        return _pairs(place, table, least)
    metadata, ratings, reviews = _files(place)
    if not holds(place):
        raise InputError(
            f"{str(directory)!r} holds no Amazon reviews: a metadata file meta_*.json with prices is needed with "
            f"ratings (*.csv) or reviews (*.json), or {TABLES[0]} and a .txt file of pairs"
        )
    source = Source((ratings or reviews)[0])
    items: dict[str, int] = {}
    found = gather(_rated(source, items) if ratings else _reviewed(source, items), least)
    prices = {items[asin]: price for asin, price in _prices(Source(metadata[0])) if asin in items}
    return numbered(f"Amazon {_title(source.path)}", found, {"price": prices})


def holds(directory: str | Path) -> bool:
    """Return True if a directory itself contains Amazon reviews.

    >>> holds("nowhere")
    False
    """
    place = Path(directory)
    metadata, ratings, reviews = _files(place)
    return find(place, *TABLES, deep=False) is not None or bool(metadata and (ratings or reviews))


def price_of(text: object) -> float | None:
    """Return a price in dollars; None if there is none, or a range or words instead.

    >>> price_of("$1,299.00"), price_of(4.5), price_of("$5.00 - $9.00"), price_of("")
    (1299.0, 4.5, None, None)
    """
    match text:
        case bool():
            return None
        case int() | float():
            price = float(text)
        case str() if re.fullmatch(r"\$?[\d,]*\.?\d+", text.strip()):
            price = float(text.strip().lstrip("$").replace(",", ""))
        case _:
            return None
    return price if np.isfinite(price) and price > 0 else None


def _pairs(place: Path, table: Source, least: float) -> Interactions:
    names = [path for path in sorted(table.path.parent.glob("*.txt")) if _is_pairs(path)]
    if not names:
        raise InputError(
            f'{str(table)!r} needs a .txt file of "user item" lines in its directory, and {str(place)!r} has none'
        )
    source = Source(names[0])

    def blocks() -> Iterator[Block]:
        for block in source.blocks():
            found = numbers(block, 2, source, b" ")
            yield found[:, 0].astype(np.int64), found[:, 1].astype(np.int64), None

    prices = {}
    for row in csv.DictReader(table.lines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        text = {(name or "").partition(":")[0]: value for name, value in row.items()}
        if (price := price_of(text["price"])) is not None:
            prices[int(text["item_id"])] = price
    return numbered(f"Amazon {_title(source.path)}", gather(blocks(), least), {"price": prices})


def _files(place: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the metadata, ratings and reviews, by their names."""
    files = sorted(path for path in place.glob("*") if path.is_file())
    metadata = [path for path in files if path.name.startswith("meta_") and _plain(path).endswith((".json", ".jsonl"))]
    others = [path for path in files if path not in metadata]
    ratings = [path for path in others if _plain(path).endswith(".csv")]
    reviews = [path for path in others if _plain(path).endswith((".json", ".jsonl"))]
    return metadata, ratings, reviews


def _is_pairs(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(re.fullmatch(rb"\d+ \d+\r?\n?", file.readline()))


def _rated(source: Source, items: dict[str, int]) -> Iterator[Block]:
    """Read ratings as CSV: reviewer, product, stars, time; in the edition of 2018 the product comes first."""
    rows = csv.reader(source.lines())
    first = list(islice(rows, 1_000))
    if first and not _is_number(first[0][2]):
        head = first.pop(0)
        item = next((place for place, name in enumerate(head) if name in ("parent_asin", "asin", "item")), None)
    else:
        item = _asins(first)
    if item is None:
        raise InputError(
            f"{str(source)!r}: neither of the first two columns holds identities of {ASIN} characters only"
        )
    users: dict[str, int] = {}
    yield from _coded(((row[1 - item], row[item], float(row[2])) for row in _chained(first, rows)), users, items)


def _asins(rows: list[list[str]]) -> int | None:
    full = [place for place in (0, 1) if rows and all(len(row[place]) == ASIN for row in rows)]
    return full[0] if len(full) == 1 else 1 if full else None


def _reviewed(source: Source, items: dict[str, int]) -> Iterator[Block]:
    def rows() -> Iterator[tuple[str, str, float]]:
        for review in _records(source):
            user = review.get("reviewerID") or review.get("user_id")
            item = review.get("parent_asin") or review.get("asin")
            stars = review.get("overall", review.get("rating"))
            if user is None or item is None or stars is None:
                raise InputError(f"{str(source)!r}: a review needs reviewerID, asin and overall, got {sorted(review)}")
            yield str(user), str(item), float(stars)

    yield from _coded(rows(), {}, items)


def _prices(source: Source) -> Iterator[tuple[str, float]]:
    for product in _records(source):
        price = price_of(product.get("price"))
        asin = product.get("parent_asin") or product.get("asin")
        if price is not None and asin is not None:
            yield str(asin), price


def _records(source: Source) -> Iterator[Mapping[str, Any]]:
    """Read JSON lines; the edition of 2014 has Python literals instead."""
    for number, line in enumerate(source.lines(), start=1):
        if line.strip():
            try:
                record = json.loads(line) if line.startswith('{"') else ast.literal_eval(line)
            except (ValueError, SyntaxError) as error:
                raise InputError(f"{str(source)!r}, line {number}, is not a JSON object: {line[:80]!r}") from error
            yield record


def _coded(rows: Iterator[tuple[str, str, float]], users: dict[str, int], items: dict[str, int]) -> Iterator[Block]:
    """Return identities as numbers, in the order of their first appearance."""
    while True:
        some = list(islice(rows, MANY))
        if not some:
            return
        yield (
            np.array([users.setdefault(user, len(users)) for user, _, _ in some], dtype=np.int64),
            np.array([items.setdefault(item, len(items)) for _, item, _ in some], dtype=np.int64),
            np.array([stars for _, _, stars in some], dtype=np.float32),
        )


def _chained(first: list[list[str]], rest: Iterator[list[str]]) -> Iterator[list[str]]:
    yield from first
    yield from rest


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plain(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _title(path: Path) -> str:
    stem = re.sub(r"(\.(gz|json|jsonl|csv|txt))+$", "", path.name)
    return re.sub(r"^(ratings|reviews)_|_5$", "", stem).replace("_", " ")
