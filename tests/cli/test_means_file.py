from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pasto.cli.means_file import MeansTable, read_means
from pasto.errors import InputError, MeansError, PastoError


def read(tmp_path: Path, text: str | bytes, name: str | None = None, ending: str = "csv") -> MeansTable:
    place = tmp_path / f"means.{ending}"
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_means(str(place), name)


labels = st.text(st.characters(codec="utf-8", categories=["L"]), min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    names=st.lists(labels.map("c".__add__), min_size=1, max_size=5, unique=True),
    metrics=st.lists(labels, min_size=1, max_size=4, unique=True),
    data=st.data(),
)
def test_what_was_written_is_read_in_every_format(
    tmp_path: Path, names: list[str], metrics: list[str], data: st.DataObject
) -> None:
    columns = {metric: data.draw(st.lists(numbers, min_size=len(names), max_size=len(names))) for metric in metrics}
    meant = MeansTable(tuple(names), columns)
    rows = [dict(zip(["candidate!", *metrics], row, strict=True)) for row in zip(names, *columns.values(), strict=True)]
    for delimiter in ",;\t":
        out = io.StringIO()
        writer = csv.DictWriter(out, ["candidate!", *metrics], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
        assert read(tmp_path, out.getvalue()) == meant
    assert read(tmp_path, json.dumps(rows), ending="json") == meant
    assert read(tmp_path, json.dumps({"candidate!": names, **columns}), ending="json") == meant


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_file_breaks_the_reader(tmp_path: Path, noise: bytes) -> None:
    with contextlib.suppress(PastoError):
        read(tmp_path, noise)


def test_without_a_column_of_names_rows_are_counted(tmp_path: Path) -> None:
    assert read(tmp_path, "x,y\n1,2\n3,4\n") == MeansTable(("row 1", "row 2"), {"x": [1.0, 3.0], "y": [2.0, 4.0]})


def test_names_may_be_numbers_in_a_column_called_so_or_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, "Name,x\n7,1\n8,2\n").names == ("7", "8")
    assert read(tmp_path, ",x\n7,1\n8,2\n").names == ("7", "8")
    assert read(tmp_path, "x,id\n1,7\n2,8\n", name="id") == MeansTable(("7", "8"), {"x": [1.0, 2.0]})


def test_the_row_numbers_of_pandas_are_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    meant = MeansTable(("a", "b"), {"x": [1.0, 2.0], "y": [3.0, 4.0]})
    assert read(tmp_path, frame.to_csv()) == meant
    assert read(tmp_path, frame.to_csv(), name="name") == meant
    assert read(tmp_path, frame[["x", "name", "y"]].to_csv()) == meant
    assert read(tmp_path, frame.to_csv(index_label="Unnamed: 0")) == meant
    assert read(tmp_path, frame.set_index("name").to_csv()) == meant
    assert read(tmp_path, frame.set_index("name").rename_axis(None).to_csv()) == meant


def test_percent_signs_are_shares(tmp_path: Path) -> None:
    meant = MeansTable(("a", "b"), {"rate": [0.03, -0.065], "x": [1.0, 2.0]}, percent=("rate",))
    assert read(tmp_path, "name,rate,x\na,3%,1\nb,-6.5 %,2\n") == meant
    assert read(tmp_path, '{"name": ["a", "b"], "rate": ["3%", "-6.5%"], "x": [1, 2]}') == meant


def test_parquet_is_read(tmp_path: Path) -> None:
    place = str(tmp_path / "means.parquet")
    frame = pl.DataFrame({"name": ["a", "b"], "x": [1.0, 2.0], "n": [3, 4]})
    frame.write_parquet(place)
    meant = MeansTable(("a", "b"), {"x": [1.0, 2.0], "n": [3.0, 4.0]})
    assert read_means(place) == meant
    frame.with_columns(pl.col("n").cast(pl.Decimal(10, 2))).write_parquet(place)
    assert read_means(place) == meant
    frame.select("x", "n", pl.col("name").alias("__index_level_0__")).write_parquet(place)  # pandas' index
    assert read_means(place) == meant
    frame.with_columns(pl.Series("__index_level_0__", [7, 9])).write_parquet(place)
    assert read_means(place) == meant
    frame.clear().write_parquet(place)
    with pytest.raises(MeansError, match="has no rows"):
        read_means(place)


def test_columns_of_words_are_left_out(tmp_path: Path) -> None:
    means = read(tmp_path, "name,x,remark\na,1,good\nb,2,\n")
    assert (list(means.metrics), means.ignored) == (["x"], ("remark",))


def test_blank_lines_spaces_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    text = "\ufeff\nname , x\r\n\r\na, 1.5 \r\n"
    assert read(tmp_path, text) == MeansTable(("a",), {"x": [1.5]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("x,y\n", "a header but no rows"),
        ("name,x\na,1\nb,much\n", r"row 2 \(line 3\), column 'x' of .*: a number was expected, got 'much'"),
        ("name,x\na,1\nb,\n", r"row 2 \(line 3\), column 'x' .* got nothing"),
        ("name,x\na,1\n\nb,1_000\n", r"row 2 \(line 4\), column 'x' .* got '1_000'"),
        ("x,y\n1,2\ncalm,3\n", r"row 2 .* column 'x' .*add --name-column x"),
        ("name,x\na,nan\n", r"row 1 .* column 'x' .* is nan; every mean must be a finite number"),
        ("name,x\na,1\nb,-inf\n", r"row 2 .* is -inf"),
        ("name,x\na,1,2\n", "line 2 of .* has 3 fields where the header has 2"),
        ("name,x,x\na,1,2\n", "two columns called 'x'"),
        ("name,x,\na,1,2\n", "column 3 of .* has no name"),
        ("name,x\na,1\nb,2\na,3\n", r"row 1 \(line 2\) and row 3 \(line 4\) of .* are both called 'a'"),
        ("name,x\na,1\n,2\n", r"row 2 \(line 3\) of .* has no name"),
        ("name,remark\na,good\n", "no column of numbers"),
        ("name;x\na;6,5\nb;7,5\n", r"no column of numbers: row 1 \(line 2\) of column 'x' is '6,5'.*such as 6\.5"),
        ("name,x\na,6%\nb,7\n", r"row 2 \(line 3\), column 'x' of .* is '7', while row 1 \(line 2\) has '6%'"),
        (b"x,y\n\xff\xfe,1\n", "not a text file in UTF-8: byte 4 cannot be read; save it as CSV"),
        (b"PK\x03\x04\xff", "an Excel file or another archive; save it as CSV"),
        (b"PAR1 and nothing else", "cannot be read as Parquet"),
        ('name,x\n"a,1\n', "is not CSV|has 1 fields"),
        ("[1, 2", "is not JSON: .* in line 1, column 6"),
        ("{}", "lists of means by metric"),
        ("[]", "lists of means by metric"),
        ('{"x": 1}', "lists of means by metric"),
        ('{"x": []}', "has no candidates"),
        ("[{}]", "has no candidates"),
        ('{"x": [1], "y": [1, 2]}', "'x' has 1 means and 'y' has 2"),
        ('[{"x": 1}, {"y": 1}]', "row 2 of .* and row 1 differ in 'x'"),
        ('{"x": [1, true]}', "row 2, column 'x' .* got True"),
        ('{"x": [1, null]}', "row 2, column 'x' .* got nothing"),
        ('{"x": [1, NaN]}', "row 2, column 'x' .* is nan"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MeansError, match=message):
        read(tmp_path, text)


def test_a_column_of_names_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeansError, match="no column 'id' to take names from; it has 'x', 'y'"):
        read(tmp_path, "x,y\n1,2\n", name="id")


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_means(str(tmp_path / "nothing.csv"))
    with pytest.raises(InputError, match="cannot read"):
        read_means(str(tmp_path))
