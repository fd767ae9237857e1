"""Seed of a study: its learner draws the same each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pasto.service.study_file import EXAMPLE, read_document

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve


def test_a_seed_is_taken_with_the_study_file(serve: Serve) -> None:
    site = serve()
    for name, query in (("one", "?seed=7"), ("two", "?seed=8"), ("three", "")):
        document = {**read_document(EXAMPLE, "yaml"), "name": name}
        assert site.client.post(f"/v1/studies{query}", json=document).status_code == 201
    store = site.running.service.store
    seeds = {name: row.seed for name in ("one", "two", "three") if (row := store.read_study(name)) is not None}
    assert (seeds["one"], seeds["two"]) == (7, 8)
    assert seeds["three"] > 2**40  # random; a smaller one has a chance of one in four million


@pytest.mark.parametrize("query", ["seed=-1", "seed=x", "seed=", "seed=1&seed=2", "who=7", f"seed={2**53 + 1}"])
def test_another_query_is_refused(serve: Serve, query: str) -> None:
    answer = serve().client.post(f"/v1/studies?{query}", json=read_document(EXAMPLE, "yaml"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
