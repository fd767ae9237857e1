from __future__ import annotations

from pathlib import Path

import numpy as np

from pasto_research.paper.replay import Cache, fingerprint


def test_arrays_are_made_once_for_each_key(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"values": np.arange(3) / 3, "names": np.array(["a"])}

    cache = Cache(tmp_path / "new")
    first = cache.arrays("curve", {"seed": 1}, make)
    again = cache.arrays("curve", {"seed": 1}, make)
    assert len(made) == 1
    assert first.keys() == again.keys()
    np.testing.assert_array_equal(first["values"], again["values"])
    cache.arrays("curve", {"seed": 2}, make)
    assert len(made) == 2
    assert len(list((tmp_path / "new").iterdir())) == 2
    Cache(None).arrays("curve", {"seed": 1}, make)
    assert len(made) == 3


def test_a_fingerprint_depends_on_contents_shapes_and_kinds() -> None:
    one = np.arange(6)
    prints = {fingerprint(each) for each in (one, one.reshape(2, 3), one.astype(np.int32), one + 1)}
    assert len(prints) == 4
    assert fingerprint(one[::2]) == fingerprint(np.array([0, 2, 4]))
