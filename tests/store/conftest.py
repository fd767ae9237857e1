"""Fixtures: every kind of store, for the same conformance tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pasto.store import AuditRow, Store, StudyRow, open_store

KINDS = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.services)]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a new store of each kind."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return str(tmp_path / "data")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Return a function that opens stores; they are closed at the end."""
    stores: list[Store] = []

    def open_one(where: str) -> Store:
        stores.append(open_store(where))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(address: str, opened: Callable[[str], Store]) -> Store:
    """Return a new store of each kind."""
    return opened(address)


@pytest.fixture
def study(store: Store) -> StudyRow:
    """Return a study in the store."""
    return store.create_study(
        StudyRow("feed", 0, 1, "draft", '{"é": 1}', 2**70, 0, 0, 0.5, 1.25), AuditRow(1.25, "ann", "create", "")
    )
