"""What a close writes down of many cells comes back bit for bit, and in less room."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.inference.round_data import join_cells
from pasto.metrics import Moments
from pasto.metrics.moments import build_moments
from pasto.service import close_record
from pasto.service.close_record import Written, clipped_of, read_cells, table_of, units_of, whole_of, write_cells


def cells(seed: int, count: int, width: int) -> list[Moments]:
    rng = np.random.default_rng(seed)
    found = []
    for candidate in range(count):
        size = int(rng.integers(1, 6))
        values = rng.lognormal(0.0, 3.0, (size, width)) * rng.choice([0.0, 1.0, -1e-9, 1e12], width)
        clipped = rng.integers(0, 4, width).tolist()
        found.append(build_moments("learner" if candidate else "control", candidate, values, clipped))
    return found


def through_text(written: Written) -> Written:
    back: Written = json.loads(json.dumps(written, allow_nan=False))
    return back


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 6))
def test_cells_come_back_as_they_were(seed: int, count: int, width: int) -> None:
    measured = cells(seed, count, width)
    written = through_text(write_cells(measured))
    assert isinstance(written, dict) == (count * width * (width + 1) >= close_record.MANY)
    assert read_cells(written) == tuple(measured)
    assert str(read_cells(written)) == str(tuple(measured))  # a zero's sign as well
    assert units_of(written) == sum(cell.units for cell in measured)
    assert clipped_of(written) == [sum(column) for column in zip(*(cell.clipped for cell in measured), strict=True)]
    table = table_of(written)
    assert [asdict(one) for one in table] == [
        {name: value for name, value in asdict(cell).items() if name != "clipped"} for cell in measured
    ]
    for arm in ("control", "learner"):
        assert whole_of(written, arm) == join_cells(arm, measured)
    assert table[1:2] == [table[1]] if count > 1 else len(table) == count


def test_much_is_a_third_of_what_it_is_in_words() -> None:
    measured = cells(1, 500, 8)
    packed, plain = (json.dumps(one) for one in (write_cells(measured), [asdict(cell) for cell in measured]))
    assert len(packed) < 0.36 * len(plain)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_where_it_is_written(number: float) -> None:
    measured = [*cells(1, 200, 3), Moments("learner", 999, 1, (number, 0.0, 0.0), ((0.0,) * 3,) * 3, (0, 0, 0))]
    with pytest.raises(ValueError, match="not JSON compliant"):
        json.dumps(write_cells(measured), allow_nan=False)


def test_halves_that_differ_are_both_kept() -> None:
    measured = [Moments("learner", k, 2, (1.0, 2.0), ((1.0, 0.5), (0.5000000001, 1.0)), (0, 0)) for k in range(200)]
    assert read_cells(through_text(write_cells(measured))) == tuple(measured)
