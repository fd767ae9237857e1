"""Layers: studies of one layer never share a unit, and other studies are not affected."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from pasto.errors import PastoError, StudyFileError
from pasto.metrics.sql.assignment import assignment_query
from pasto.service.layers import allot_slice
from pasto.service.lifecycle import SERVING
from pasto.service.service import Service
from pasto.service.study_file import parse_spec
from pasto.service.study_file.spec import LAYER_PARTS, LayerSpec
from pasto.store import LayerSliceRow, open_store
from pasto_sdk.policy import PublishedPolicy

Document = dict[str, Any]
Traffic = Callable[[Service, int], list[dict[str, Any]]]
CLIENT = Path(__file__).parents[2] / "clients" / "javascript"
UNITS = [f"user {number}" for number in range(2_000)]


def in_layer(document: Document, name: str, share: Any, layer: str = "home", **fields: Any) -> Document:
    return {**document, "name": name, "layer": {"name": layer, "share": share, **fields}}


def start(service: Service, document: Document) -> None:
    service.create(document, who="ann", seed=7)
    service.change(document["name"], "start", who="ann")


def enrolled(service: Service, name: str, units: list[str] = UNITS) -> set[str]:
    """Return the units that take part in a study under its served policy."""
    policy = service.policy_cache.current(name)
    return {unit for unit in units if policy.draw(unit) is not policy.not_enrolled}


def drawn(service: Service, traffic: Traffic, users: int = 800) -> list[dict[str, Any]]:
    """Return the events of one round of the study "feed", of the units that take part."""
    policy = service.policy_cache.current("feed")
    return [event for event in traffic(service, users) if policy.draw(event["unit"]) is not policy.not_enrolled]


def interval(service: Service, name: str) -> tuple[float, float]:
    ((start, until),) = [
        (part.start, part.until) for layer in service.layers() for part in layer.slices if part.study == name
    ]
    return start, until


def test_studies_of_one_layer_share_no_unit(service: Service, document: Document) -> None:
    start(service, in_layer(document, "feed", "40%"))
    start(service, in_layer(document, "search", "60%"))
    start(service, {**document, "name": "mail"})
    feed, search = enrolled(service, "feed"), enrolled(service, "search")
    assert feed | search == set(UNITS)
    assert not feed & search
    assert len(feed) == pytest.approx(800, abs=90)
    assert enrolled(service, "mail") == set(UNITS)
    assert service.show("feed").document["layer"] == {"name": "home", "share": 0.4, "start": 0.0}
    (layer,) = service.layers()
    assert (layer.name, layer.unit, layer.free, layer.largest_free) == ("home", "user", 0.0, 0.0)
    assert [(part.study, part.state) for part in layer.slices] == [("feed", "learning"), ("search", "learning")]
    service.close_round("search", who="bob")
    assert enrolled(service, "search") == search, "the next policy keeps the units"


def test_what_is_not_free_is_refused_at_creation(service: Service, document: Document) -> None:
    service.create(in_layer(document, "feed", "40%"), who="ann")
    start(service, in_layer(document, "search", "30%"))
    with pytest.raises(StudyFileError) as refused:
        service.create(in_layer(document, "mail", "40%"), who="ann")
    assert refused.value.problems["layer.share"] == (
        "is 40%, and layer home has 30% free: 70% to 100%; archive or shrink one of: feed (40%, draft), search (30%, "
        "learning)"
    )
    with pytest.raises(StudyFileError, match="layer home has 30% free"):
        service.check(in_layer(document, "mail", "40%"))
    service.create(in_layer(document, "mail", "40%", "other"), who="ann")
    service.delete("feed", who="ann")
    with pytest.raises(StudyFileError, match="one free interval, and the longest has 40%"):
        service.create(in_layer(document, "wide", "50%"), who="ann")
    service.create(in_layer(document, "feed", "40%"), who="ann")
    service.change("search", "archive", who="ann")
    service.create(in_layer(document, "wide", "60%"), who="ann")
    assert interval(service, "wide") == (0.4, 1.0)
    with pytest.raises(StudyFileError, match="layer home has nothing free; archive or shrink one of: feed"):
        service.create(in_layer(document, "more", "0.0001%"), who="ann")


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"layer": {"name": "home"}}, "layer.share", "is missing"),
        ({"layer": {"share": "4%"}}, "layer.name", "is missing"),
        ({"layer": "home"}, "layer", "must be"),
        ({"layer": {"name": "home", "share": "0%"}}, "layer.share", "above 0"),
        ({"layer": {"name": "home", "share": "0.00001%"}}, "layer.share", "multiple of 0.0001%"),
        ({"layer": {"name": "home", "share": "4%", "start": 1.0}}, "layer.start", "below 1"),
        (
            {"layer": {"name": "home", "share": "4%"}, "exposures": {"assigned_by": "external"}},
            "layer",
            "another platform",
        ),
    ],
)
def test_a_layer_that_cannot_be_used_is_refused(document: Document, change: Document, field: str, problem: str) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**document, **change})
    assert problem in refused.value.problems[field]


def test_a_draft_that_leaves_its_layer_frees_its_interval(service: Service, document: Document) -> None:
    service.create(in_layer(document, "feed", "80%"), who="ann")
    service.edit("feed", document, who="ann")
    assert service.layers() == []
    service.edit("feed", in_layer(document, "feed", "70%"), who="ann")
    service.edit("feed", fields={"layer.name": "other"}, who="ann")
    service.create(in_layer(document, "search", "100%"), who="ann")
    assert [(layer.name, layer.free) for layer in service.layers()] == [("home", 0.0), ("other", pytest.approx(0.3))]


def test_a_layer_has_one_unit(service: Service, document: Document) -> None:
    start(service, in_layer(document, "feed", "40%"))
    with pytest.raises(StudyFileError, match="unit is session, and the studies of layer home assign by user"):
        service.create({**in_layer(document, "search", "40%"), "unit": "session"}, who="ann")


def test_a_named_start_is_used_if_it_is_free(service: Service, document: Document) -> None:
    service.create(in_layer(document, "feed", "40%", start="50%"), who="ann")
    assert interval(service, "feed") == (0.5, 0.9)
    for place in ("20%", "80%", "95%"):
        with pytest.raises(StudyFileError, match="leave start out"):
            service.create(in_layer(document, "search", "40%", start=place), who="ann")
    service.create(in_layer(document, "search", "50%"), who="ann")
    assert interval(service, "search") == (0.0, 0.5)


def test_a_draft_moves_and_a_running_study_grows_and_shrinks_in_place(
    service: Service, document: Document, traffic: Traffic
) -> None:
    start(service, in_layer(document, "search", "30%"))
    service.create(in_layer(document, "feed", "20%"), who="ann", seed=7)
    assert interval(service, "feed") == (0.3, 0.5)
    service.create(in_layer(document, "mail", "10%"), who="ann")
    service.edit("feed", fields={"layer.share": "30%"}, who="ann")
    assert interval(service, "feed") == (0.6, 0.9), "a draft may move"
    service.change("feed", "start", who="ann")
    before = enrolled(service, "feed")
    service.ingest("feed", service.decode(msgspec.json.encode(drawn(service, traffic)))).result()
    service.edit("feed", fields={"layer.share": "40%"}, who="bob")
    grown = enrolled(service, "feed")
    assert before < grown
    with pytest.raises(StudyFileError) as refused:
        service.edit("feed", fields={"layer.share": "60%"}, who="bob")
    assert "has 40% of layer home with 0% free next to it" in refused.value.problems["layer.share"]
    assert "archive or shrink mail (10%, draft), or ask for at most 40%" in refused.value.problems["layer.share"]
    service.delete("mail", who="ann")
    edited = service.edit("feed", fields={"layer.share": "60%"}, who="bob")
    assert [(change.field, change.after) for change in edited.changes or ()] == [
        ("layer.share", 0.6),
        ("layer.start", 0.4),
    ]
    assert grown < enrolled(service, "feed"), "it grew down"
    wide = enrolled(service, "feed")
    service.edit("feed", fields={"layer.share": "10%"}, who="bob")
    assert enrolled(service, "feed") < wide
    service.change("feed", "pause", who="bob", reason="a look")
    service.edit("feed", {**in_layer(document, "feed", "15%"), "description": "as a file"}, who="bob")
    assert interval(service, "feed") == (0.4, 0.55), "a file need not repeat the start"
    for fields in ({"layer.name": "other"}, {"layer.start": 0.8}, {"layer": None}):
        with pytest.raises(StudyFileError, match="only its share can change"):
            service.edit("feed", fields=fields, who="bob")
    with pytest.raises(StudyFileError, match="layer decides which units"):
        service.edit("feed", {**document, "layer": None}, who="bob")
    assert service.replay("feed").identical


def test_a_deployed_study_keeps_its_units_until_it_is_archived(
    service: Service, document: Document, traffic: Traffic
) -> None:
    start(service, in_layer(document, "feed", "40%"))
    units = enrolled(service, "feed")
    service.ingest("feed", service.decode(msgspec.json.encode(drawn(service, traffic)))).result()
    service.close_round("feed", who="bob")
    service.change("feed", "deploy", who="bob", without_confirmation=True, reason="a test")
    assert enrolled(service, "feed") == units
    with pytest.raises(StudyFileError, match="because units keep their arm"):
        service.edit("feed", fields={"layer.share": "20%"}, who="bob")
    with pytest.raises(StudyFileError, match="layer home has 60% free"):
        service.create(in_layer(document, "search", "70%"), who="ann")
    service.change("feed", "archive", who="bob")
    start(service, in_layer(document, "search", "70%"))
    assert service.replay("feed").identical


def test_of_nodes_that_create_at_once_each_gets_its_own_interval(tmp_path: Path, document: Document) -> None:
    store = open_store(str(tmp_path / "data"))
    nodes = [Service(store), Service(store)]

    def create(place: int) -> str:
        try:
            nodes[place % 2].create(in_layer(document, f"s{place}", "30%"), who="ann")
        except StudyFileError as error:
            return error.problems["layer.share"]
        return "created"

    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(create, range(5)))
    assert results.count("created") == 3
    assert all("layer home has 10% free" in result for result in results if result != "created")
    store.close()


def play_history(seed: int, steps: int = 25) -> Iterator[tuple[Service, dict[str, tuple[float, float]]]]:
    """Steer studies of one layer at random; yield the service and the intervals of studies that learn, by step."""
    rng = random.Random(seed)
    service = Service(open_store("memory:"))
    document: Document = {
        "baseline": {"w": 1},
        "candidates": [{"w": 0}, {"w": 1}],
        "metrics": {"watch": {"event": "watch", "aggregate": "count", "cap": 9}},
        "goal": {"maximize": "watch"},
    }
    traffics: list[Document] = [{}, {"explore": "30%"}, {"ramp": ["5%", "40%", "100%"]}]
    actions = ["create", "create", "start", "edit", "edit", "close", "ramp", "holdout", "pause", "resume"]
    try:
        for step in range(steps):
            names = [study.name for study in service.studies() if study.state != "archived"]
            action = rng.choice([*actions, "archive", "delete"])
            try:
                if action == "create" or not names:
                    share = rng.choice([0.05, 0.1, 0.2, 1 / 8, 0.333333, 0.5, 1.0])
                    traffic = {"traffic": rng.choice(traffics)}
                    service.create({**in_layer(document, f"s{step}", share), **traffic}, who="ann")
                    if rng.random() < 0.7:
                        service.change(f"s{step}", "start", who="ann")
                elif action == "edit":
                    name = rng.choice(names)
                    service.edit(name, fields={"layer.share": rng.choice([0.05, 0.15, 0.3, 0.6])}, who="ann")
                elif action == "close":
                    service.close_round(rng.choice(names), who="ann")
                elif action == "ramp":
                    service.move_ramp(rng.choice(names), rng.choice(["next", "back"]), who="ann")
                elif action == "holdout":
                    share = rng.choice([0.0, 0.02, 0.2, 0.5])
                    _ = service.set_holdout(share, who="ann") if share else service.delete_holdout(who="ann")
                elif action == "delete":
                    service.delete(rng.choice(names), who="ann")
                else:
                    service.change(rng.choice(names), action, who="ann", reason="a test")
            except PastoError:
                pass  # refused: nothing may have changed
            parts = [part for layer in service.layers() for part in layer.slices]
            yield service, {part.study: (part.start, part.until) for part in parts if part.state in SERVING}
    finally:
        service.shutdown()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_no_history_of_a_layer_lets_studies_share_a_unit(seed: int) -> None:
    held: dict[str, tuple[float, float]] = {}
    for service, now in play_history(seed):
        parts = [part for layer in service.layers() for part in layer.slices]
        assert all(first.until <= second.start for first, second in pairwise(parts))
        assert {part.study for part in parts} == {s.name for s in service.studies() if s.state != "archived"}
        for name in now.keys() & held.keys():  # a study that runs never moves away from its units
            (low, high), (start, until) = sorted([now[name], held[name]], key=lambda ends: ends[1] - ends[0])
            assert start <= low < high <= until
        held = now
        running = [enrolled(service, name, UNITS[:300]) for name in now]
        assert sum(map(len, running)) == len(set().union(*running))


def draw_in_sql(policy: PublishedPolicy, units: list[str]) -> list[list[Any]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people AS SELECT unnest($units) AS unit", {"units": units})
        rows = connection.execute(assignment_query(policy, "duckdb").query("people", named=False)).fetchall()
    return [list(cell) for _, *cell in sorted(rows, key=lambda row: units.index(row[0]))]


def draw_in_javascript(policy: PublishedPolicy, units: list[str]) -> list[list[Any]]:
    node = shutil.which("node")
    assert node is not None, "the tests marked `services` need Node; .ci/run installs it"
    program = (
        'import { PublishedPolicy } from "./index.mjs"; let text = "";'
        "for await (const chunk of process.stdin) text += chunk;"
        "const { policy, units } = JSON.parse(text), read = PublishedPolicy.fromText(policy);"
        "const cells = units.map((unit) => read.draw(unit));"
        "process.stdout.write(JSON.stringify(cells.map((cell) => [cell.arm, cell.candidate])));"
    )
    question = json.dumps({"policy": policy.text, "units": units})
    command = [node, "--input-type=module", "--eval", program]
    run = subprocess.run(command, input=question, cwd=CLIENT, capture_output=True, encoding="utf-8", check=True)
    return [list(cell) for cell in json.loads(run.stdout)]


@pytest.mark.parametrize("draw", [draw_in_sql, pytest.param(draw_in_javascript, marks=pytest.mark.services)])
def test_sql_and_javascript_keep_studies_of_a_layer_apart_as_python_does(
    draw: Callable[[PublishedPolicy, list[str]], list[list[Any]]],
) -> None:
    units, compared = UNITS[:400], 0
    compared_texts: set[str] = set()
    kinds: set[str] = set()
    for service, now in chain(play_history(5), play_history(9), play_history(10)):
        policies = [service.policy_cache.current(name) for name in now]
        if len(policies) < 2 or {policy.text for policy in policies} <= compared_texts:
            continue
        compared_texts |= {policy.text for policy in policies}
        kinds |= {part.kind for policy in policies for part in policy.enrolment}
        takers: list[str] = []
        for policy in policies:
            cells = draw(policy, units)
            assert cells == [[cell.arm, cell.candidate] for cell in policy.draw_many(units)]
            takers += [unit for unit, (arm, _) in zip(units, cells, strict=True) if arm != "not_enrolled"]
        assert len(takers) == len(set(takers))
        compared += len(takers)
    assert compared > 1_000
    assert kinds == {"holdout", "layer", "ramp"}


@given(st.lists(st.integers(1, 400_000), max_size=8), st.integers(1, LAYER_PARTS))
def test_a_slice_is_refused_only_if_no_gap_is_long_enough(lengths: list[int], parts: int) -> None:
    slices: list[LayerSliceRow] = []
    place = 0
    for number, length in enumerate(lengths):
        if place + length > LAYER_PARTS:
            break
        if number % 2:
            slices.append(LayerSliceRow("home", "user", place, place + length, f"s{number}", "learning"))
        place += length
    edges = [(row.start, row.until) for row in slices]
    gaps = [low - high for (_, high), (low, _) in pairwise([(0, 0), *edges, (LAYER_PARTS, LAYER_PARTS)])]
    if max(gaps) < parts:
        with pytest.raises(StudyFileError):
            allot_slice(LayerSpec("home", parts), "user", slices)
        return
    given_slice = allot_slice(LayerSpec("home", parts), "user", slices)
    assert 0 <= given_slice.start < given_slice.until == given_slice.start + parts <= LAYER_PARTS
    assert all(given_slice.until <= row.start or row.until <= given_slice.start for row in slices)


def test_two_layers_are_independent(service: Service, document: Document) -> None:
    """Check that a place in one layer depends neither on that in another one nor on the candidate."""
    start(service, in_layer(document, "feed", "40%"))
    start(service, in_layer(document, "search", "30%", "results"))
    units = [f"person {number}" for number in range(60_000)]
    feed, search = enrolled(service, "feed", units), enrolled(service, "search", units)
    both = len(feed & search)
    table = [[both, len(feed) - both], [len(search) - both, len(units) - len(feed | search)]]
    assert chi2_contingency(table).pvalue > 1e-4
    policy = service.policy_cache.current("feed")
    drawn = [[0, 0] for _ in policy.cells]
    places = {(cell.arm, cell.candidate): place for place, cell in enumerate(policy.cells)}
    for unit in feed:
        cell = policy.draw(unit)
        drawn[places[cell.arm, cell.candidate]][unit in search] += 1
    assert chi2_contingency(drawn).pvalue > 1e-4
