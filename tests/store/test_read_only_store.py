"""Read-only store: next to the process that writes it, and unable to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from pasto.errors import StoreError, UnsafeStoreError
from pasto.store import open_store


@pytest.mark.parametrize("address", ["sqlite", pytest.param("postgres", marks=pytest.mark.services)], indirect=True)
def test_a_reader_sees_what_is_written_and_writes_nothing(address: str) -> None:
    store = open_store(address)
    reader = open_store(address, read_only=True)
    try:
        assert reader.directory == store.directory
        store.write_cache("a", "written")
        assert reader.read_cache("a") == "written"
        with pytest.raises(StoreError, match=r"readonly|reading only"):
            reader.write_cache("a", "other")
        assert store.read_cache("a") == "written"
    finally:
        reader.close()
        store.close()


def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(UnsafeStoreError, match="cannot be read"):
        open_store(str(tmp_path / "nowhere"), read_only=True)
    assert not (tmp_path / "nowhere").exists()
