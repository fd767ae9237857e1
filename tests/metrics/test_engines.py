"""Metric engines: all measure the same from the same definitions, in the store's own tables."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pasto.errors import OptionError, StudyFileError
from pasto.metrics import MEMBERS, Column, Condition, CovariateWindow, Moments, measure, parse_metrics
from pasto.metrics.definitions import Aggregate
from pasto.store.event_deduplication import compute_digest
from pasto.store.schema import migrations
from pasto_sdk.policy_document import Value

STUDY, VERSION = 1, 7


@dataclass(frozen=True)
class Event:
    """Row of the table of events, with the columns that measuring reads."""

    unit: str
    name: str | None = None
    fields: Mapping[str, Value] = field(default_factory=dict)
    arm: str = "learner"
    candidate: int = 0
    study: int = STUDY
    version: int | None = VERSION
    excluded: int = 0
    at: float = 0.0

    def row(self, sequence: int) -> tuple[Any, ...]:
        kind = 0 if self.name is None else 1
        text = json.dumps(dict(self.fields)) if self.fields else None
        identity = f"e{sequence}"
        return (
            *(sequence, self.study, identity, kind, self.unit, self.version, self.arm, self.candidate, self.name),
            *(text, self.excluded, None, None, self.at),
        )


class Table:
    """Table of events on one engine."""

    def __init__(self, connection: Any, dialect: str) -> None:
        self.connection, self.dialect = connection, dialect
        if dialect == "sqlite":
            connection.create_function("event_digest", 3, compute_digest, deterministic=True)
        for statement in (statement for step in migrations(dialect) for statement in step):
            connection.execute(statement)
        self.mark = "?" if dialect == "sqlite" else "%s"

    def fill(self, events: Sequence[Event]) -> None:
        """Replace the table's rows, in this order of arrival."""
        self.connection.execute("DELETE FROM events")
        marks = ", ".join([self.mark] * 14)
        names = ", ".join(column.split()[0] for column in Lake.columns.split(","))
        rows = [event.row(place) for place, event in enumerate(events, start=1)]
        self.connection.cursor().executemany(f"INSERT INTO events ({names}) VALUES ({marks})", rows)  # noqa: S608

    def count(self) -> int:
        """Return the number of events."""
        return int(self.connection.execute("SELECT count(*) FROM events").fetchone()[0])

    def measure(
        self, *columns: Column, after: int = 0, until: int = 10**9, before: CovariateWindow | None = None
    ) -> tuple[Moments, ...]:
        span = {"study": STUDY, "version": VERSION, "after": after, "until": until}
        return measure(self.connection, self.dialect, **span, columns=columns, before=before)


class Lake(Table):
    """Events as a data lake has them: a table of plain types, with text for the fields."""

    columns = (
        "sequence BIGINT, study BIGINT, id STRING, kind BIGINT, unit STRING, version BIGINT, arm STRING, "
        "candidate BIGINT, name STRING, fields STRING, excluded BIGINT, source STRING, position BIGINT, "
        "received_at DOUBLE"
    )

    def __init__(self, connection: Any, dialect: str) -> None:
        self.connection, self.dialect = connection, dialect
        if dialect != "spark":
            connection.execute(f"SET threads = 2; CREATE TABLE events ({self.columns})")

    def fill(self, events: Sequence[Event]) -> None:
        rows = [event.row(place) for place, event in enumerate(events, start=1)]
        if self.dialect == "spark":
            self.connection.createDataFrame(rows, self.columns).createOrReplaceTempView("events")
            return
        self.connection.execute("DELETE FROM events")
        lists = {f"c{place}": list(column) for place, column in enumerate(zip(*rows, strict=True))}
        together = ", ".join(f"unnest(${name})" for name in lists)
        self.connection.execute(f"INSERT INTO events SELECT {together}", lists)

    def count(self) -> int:
        if self.dialect == "spark":
            return int(self.connection.table("events").count())
        return super().count()


EXACT = ["sqlite", "archive", pytest.param("postgres", marks=pytest.mark.services)]
"""Engines whose sums come out the same to the last bit."""


@pytest.fixture(scope="module", params=[*EXACT, "duckdb", pytest.param("spark", marks=pytest.mark.services)])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    if request.param == "sqlite":
        connection = sqlite3.connect(":memory:")
        yield Table(connection, "sqlite")
        connection.close()
        return
    if request.param in ("duckdb", "archive"):
        with duckdb.connect() as lake:
            yield Lake(lake, request.param)
        return
    if request.param == "spark":
        yield Lake(request.getfixturevalue("spark"), "spark")
        return
    server = request.getfixturevalue("postgres_server")
    url = server.fresh()
    with psycopg.connect(url, autocommit=True) as connection_there:
        yield Table(connection_there, "postgres")
    server.drop(url)


@pytest.mark.parametrize("by_time", [False, True])
def test_arms_have_their_present_names(table: Table, by_time: bool) -> None:
    """Check exposures of one policy, of which an earlier release stored the first ones."""
    arms = {"a": "single", "b": "blend", "c": "control", "d": "best_single", "e": "held", "f": "outside"}
    liked = [Event(unit, "like", arm="learner") for unit in ("a", "a", "d")]
    table.fill([*(Event(unit, arm=arm) for unit, arm in arms.items()), *liked])
    likes = count("like", window=10.0) if by_time else count("like")
    cells = [(cell.arm, cell.units, cell.mean[0]) for cell in table.measure(likes)]
    others = [(arm, 1, 0.0) for arm in ("blend", "control", "not_enrolled", "paused")]
    assert cells == [("best_single", 2, 1.5), *others]


def count(event: str, name: str | None = None, **options: Any) -> Column:
    return Column(name or event, event, None, "count", **options)


def total(event: str, name: str | None = None, **options: Any) -> Column:
    return Column(name or event, event, "x", "sum", **options)


WATCHED = Column("watched", "watch", "seconds", "sum", 0.0, 100.0)


def test_units_are_added_up_first_and_those_without_events_count_nothing(table: Table) -> None:
    table.fill(
        [
            Event("ann"),
            Event("bob"),
            Event("cyd", arm="control", candidate=4),
            Event("ann", "watch", {"seconds": 10}),
            Event("ann", "watch", {"seconds": 20.5}),
            Event("cyd", "watch", {"seconds": 7}),
        ]
    )
    control, learner = table.measure(WATCHED, count("watch"))
    assert (control.arm, control.candidate, control.units) == ("control", 4, 1)
    assert (control.mean, control.cross) == ((7.0, 1.0), ((0.0, 0.0), (0.0, 0.0)))
    assert (learner.arm, learner.candidate, learner.units) == ("learner", 0, 2)
    assert learner.mean == (15.25, 1.0)
    assert learner.cross == ((2 * 15.25**2, 2 * 15.25), (2 * 15.25, 2.0))


def test_a_unit_that_was_given_several_candidates_counts_for_none(table: Table) -> None:
    """Only another platform's assignment can do that; the order of its exposures must not matter."""
    ann = [Event("ann", candidate=0, arm="control"), Event("ann", candidate=1)]
    bob = [Event("bob", candidate=1), Event("bob", candidate=1), Event("bob", "like")]
    cid = [Event("cid", candidate=2), Event("cid", candidate=0)]
    likes = [Event("ann", "like"), Event("cid", "like")]
    for events in ([*ann, *bob, *cid, *likes], [*likes, *reversed(cid), *bob, *reversed(ann)]):
        table.fill(events)
        (cell,) = table.measure(Column("likes", "like", None, "count"))
        assert (cell.arm, cell.candidate, cell.units, cell.mean) == ("learner", 1, 1, (1.0,))


def test_only_this_rounds_own_events_count(table: Table) -> None:
    liked = Event("ann", "like")
    table.fill(
        [
            Event("ann", "like"),  # 1: before the span
            Event("ann"),
            Event("ann"),  # exposed twice, still one unit
            liked,
            replace(liked, version=6),
            replace(liked, version=None),
            replace(liked, study=2),
            replace(liked, excluded=1),
            replace(liked, name="dislike"),
            replace(liked, unit="never exposed"),
            Event("fallback", excluded=1),
            Event("other", version=6),
            Event("ann", "like"),  # 13: after the span
            Event("late"),
        ]
    )
    (cell,) = table.measure(count("like"), after=1, until=12)
    assert (cell.units, cell.mean) == (1, (1.0,))
    assert table.measure(count("like"), after=20) == ()


def test_bounds_cap_a_units_number_and_count_it(table: Table) -> None:
    events = [Event(unit) for unit in "abcd"]
    for unit, amount in zip("abc", (-3.0, 5.0, 80.0), strict=True):
        events += [Event(unit, "pay", {"x": amount}), Event(unit, "pay", {"x": amount})]
    table.fill(events)
    (cell,) = table.measure(
        total("pay", low=-5.0, high=20.0), total("pay", "whole"), total("pay", "top", high=10.0), count("pay", high=1.0)
    )
    assert cell.mean == ((-5.0 + 10.0 + 20.0) / 4, 164.0 / 4, (-6.0 + 10.0 + 10.0) / 4, 3 / 4)
    assert cell.clipped == (2, 0, 1, 3)


def test_what_is_made_of_one_units_events(table: Table) -> None:
    kinds: tuple[Aggregate, ...] = ("sum", "mean", "max", "last")
    events = [Event("ann"), Event("bob")]
    for at, amount in ((3, 5.0), (9, 1.0), (9, 2.0), (4, -8.0)):
        events.append(Event("ann", "seen", {"x": amount, "at": at}))
    events.append(Event("ann", "seen", {"at": 99}))  # without a number the event only counts
    events.append(Event("ann", "seen", {"x": "7", "at": 99}))  # and text is not a number
    table.fill(events)
    columns = [Column(kind, "seen", "x", kind, by="at" if kind == "last" else None) for kind in kinds]
    (cell,) = table.measure(*columns, count("seen"), Column("any", "seen", None, "any"))
    assert [2 * mean for mean in cell.mean] == [0.0, 0.0, 5.0, 2.0, 6.0, 1.0]


def test_different_values_of_a_field_are_counted(table: Table) -> None:
    values: list[Value] = ["ann", "bob", "ann", "1", 1, 1.0, "Bob", "", -0.0, 0, True, False]
    events = [Event("u", "visit", {"pupil": value, "room": "east"}) for value in values]
    others = [Event("v", "visit", {"room": "west"}), Event("v", "visit", {"pupil": "ann", "room": "west"})]
    table.fill([Event("u"), Event("v"), Event("w"), *events, *others, *others])
    pupils = Column("pupils", "visit", "pupil", "distinct")
    east = replace(pupils, name="east", where=(Condition("room", "=", ("east",)),))
    (cell,) = table.measure(pupils, east, replace(pupils, name="capped", low=0.0, high=2.0))
    # In u: ann, bob, "1", 1, "Bob", "" and 0.
    assert [3 * mean for mean in cell.mean] == pytest.approx([8.0, 7.0, 3.0])
    assert cell.clipped == (0, 0, 1)


def test_units_are_added_up_by_their_cluster(table: Table) -> None:
    def exposed(unit: str, cluster: str, **options: Any) -> Event:
        return Event(unit, fields={"cluster": cluster}, **options)

    amounts = {"ann": (3.0, 4.0), "bob": (50.0,), "cyd": (), "dan": (1.0,), "eve": (2.0,), "fay": (90.0,)}
    events = [
        *(exposed(unit, "west") for unit in ("ann", "bob", "ann")),
        *(exposed(unit, "ost 'é") for unit in ("cyd", "dan")),
        exposed("eve", "west", candidate=1),
        *(exposed("fay", cluster) for cluster in ("west", "ost 'é")),  # a unit of two clusters counts for none
        *(Event(unit, "pay", {"x": x}) for unit, paid in amounts.items() for x in paid),
    ]
    table.fill(events)
    other, by_cluster = sorted(table.measure(total("pay", high=20.0), MEMBERS), key=lambda cell: cell.units)
    assert (other.candidate, other.units, other.mean, other.member_cross) == (
        1,
        1,
        (2.0, 1.0),
        ((0.0, 0.0), (0.0, 0.0)),
    )
    # west: 7 and 20, of 50; ost: 0 and 1
    assert (by_cluster.candidate, by_cluster.units, by_cluster.mean) == (0, 2, (14.0, 2.0))
    assert by_cluster.cross == ((2 * 13.0**2, 0.0), (0.0, 0.0))
    assert by_cluster.member_cross == ((20.0**2 + 7.0**2 + 1.0 - 4 * 7.0**2, 0.0), (0.0, 0.0))
    assert by_cluster.clipped == (1, 0)


def random_clusters(rng: random.Random) -> list[Event]:
    events = []
    for number in range(rng.randint(1, 60)):
        cluster, candidate = f"c{number}", rng.randrange(2)
        for member in range(rng.randint(1, 6)):
            unit = f"{cluster}/{member}"
            events.append(Event(unit, fields={"cluster": cluster}, candidate=candidate))
            events += [Event(unit, "pay", {"x": rng.gauss(number, 3.0)}) for _ in range(rng.randint(0, 3))]
    rng.shuffle(events)
    return events


@pytest.mark.parametrize("seed", range(4))
def test_sums_by_cluster_are_those_of_plain_arithmetic(table: Table, seed: int) -> None:
    events = random_clusters(random.Random(seed))
    table.fill(events)
    cells = table.measure(total("pay", low=0.0, high=60.0), MEMBERS)
    candidates = {event.unit: event.candidate for event in events if event.name is None}
    amounts = dict.fromkeys(candidates, 0.0)
    for event in events:
        if event.name is not None:
            amounts[event.unit] += float(event.fields["x"])
    bounded = {unit: min(max(amount, 0.0), 60.0) for unit, amount in amounts.items()}
    assert [cell.candidate for cell in cells] == sorted(set(candidates.values()))
    for cell in cells:
        units = [unit for unit, candidate in candidates.items() if candidate == cell.candidate]
        members = np.array([(bounded[unit], 1.0) for unit in units])
        clusters = sorted({unit.split("/")[0] for unit in units})
        sums = np.array([[sum(bounded[u] for u in units if u.startswith(f"{c}/")), 0.0] for c in clusters])
        sums[:, 1] = [sum(u.startswith(f"{c}/") for u in units) for c in clusters]
        assert cell.units == len(clusters)
        assert cell.mean == pytest.approx(tuple(sums.mean(axis=0)))
        for found, rows in ((cell.cross, sums), (cell.member_cross, members)):
            centred = rows - rows.mean(axis=0)
            assert np.allclose(np.array(found), centred.T @ centred, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_sums_by_cluster_do_not_depend_on_the_order_of_arrival(table: Table, seed: int) -> None:
    if table.dialect not in ("sqlite", "archive", "postgres"):
        return
    rng = random.Random(seed)
    events = random_clusters(rng)
    table.fill(events)
    first = table.measure(total("pay"), MEMBERS)
    rng.shuffle(events)
    table.fill(events)
    assert table.measure(total("pay"), MEMBERS) == first


def test_a_bool_is_one_or_nothing(table: Table) -> None:
    table.fill([Event("ann"), *(Event("ann", "vote", {"x": vote}) for vote in (True, False, True))])
    assert table.measure(total("vote"))[0].mean == (2.0,)


CONDITIONS: list[tuple[Condition, set[str]]] = [
    (Condition("f", "=", (3.0,)), {"three", "three.0"}),
    (Condition("f", "=", ("3",)), {"text"}),
    (Condition("f", "=", (True,)), {"true"}),
    (Condition("f", "=", (1.0,)), {"one"}),
    (Condition("f", "!=", (3.0,)), {"one", "half", "text", "true", "false", "odd"}),
    (Condition("f", "!=", (True,)), {"one", "half", "three", "three.0", "text", "false", "odd"}),
    (Condition("f", "<", (1.0,)), {"half"}),
    (Condition("f", "<=", (1.0,)), {"half", "one"}),
    (Condition("f", ">", (1.0,)), {"three", "three.0"}),
    (Condition("f", ">=", (1.0,)), {"one", "three", "three.0"}),
    (Condition("f", "in", (0.5, "3", False)), {"half", "text", "false"}),
    (Condition("f", "=", ("'; DROP TABLE events; --",)), {"odd"}),
]


@pytest.mark.parametrize(("condition", "met"), CONDITIONS, ids=[str(place) for place in range(len(CONDITIONS))])
def test_conditions_on_an_events_fields(table: Table, condition: Condition, met: set[str]) -> None:
    values: dict[str, Value] = {
        "one": 1,
        "half": 0.5,
        "three": 3,
        "three.0": 3.0,
        "text": "3",
        "true": True,
        "false": False,
        "odd": "'; DROP TABLE events; --",
    }
    events = [Event("bare", candidate=99), Event("bare", "click"), Event("bare", "click", {"g": 3})]
    for place, (name, value) in enumerate(values.items()):
        events += [Event(name, candidate=place), Event(name, "click", {"f": value})]
    table.fill(events)
    cells = table.measure(count("click", where=(condition,)))
    assert {name for name, cell in zip([*values, "bare"], cells, strict=True) if cell.mean[0] > 0} == met


def test_conditions_hold_together(table: Table) -> None:
    table.fill([Event("ann"), *(Event("ann", "click", {"x": x, "on": x % 2 == 0}) for x in range(10))])
    where = (Condition("x", ">=", (3.0,)), Condition("x", "<", (8.0,)), Condition("on", "=", (True,)))
    assert table.measure(total("click", where=where), count("click"))[0].mean == (4.0 + 6.0, 10.0)
    latest = Column("last", "click", "x", "last", by="x", where=where)
    assert table.measure(latest)[0].mean == (6.0,)


def test_a_window_begins_with_the_units_first_exposure(table: Table) -> None:
    table.fill(
        [
            Event("ann", at=10.0, excluded=1),
            Event("ann", at=10.0, version=6),
            Event("ann", "watch", {"seconds": 64.0}, at=90.0),  # of this policy, and overtook its exposure
            Event("ann", at=150.0),
            Event("ann", at=100.0),
            *(Event("ann", "watch", {"seconds": 2.0**k}, at=at) for k, at in enumerate((100.0, 159.0, 160.0, 160.5))),
            Event("bob", at=200.0, candidate=1),
            Event("bob", "watch", {"seconds": 5.0}, at=260.0),
            Event("nobody", "watch", {"seconds": 5.0}, at=100.0),
        ]
    )
    within = Column("within", "watch", "seconds", "sum", window=60.0)
    ann, bob = table.measure(within, WATCHED, count("watch", window=0.5), replace(within, name="last", window=30.0))
    assert (ann.units, ann.mean) == (1, (64.0 + 1.0 + 2.0 + 4.0, 79.0, 2.0, 65.0))
    assert (bob.units, bob.mean) == (1, (5.0, 5.0, 0.0, 0.0))


def test_a_covariate_is_what_units_did_before_the_round(table: Table) -> None:
    before = [
        Event("ann", "watch", {"seconds": 100.0}, version=3, at=9.0),  # 1: outside the part of the log that is read
        Event("ann", "watch", {"seconds": 1.0}, version=4, at=40.0),  # too long ago for one column
        Event("ann", version=6, at=50.0),
        Event("ann", "watch", {"seconds": 2.0}, version=6, at=50.0),
        Event("bob", "watch", {"seconds": 4.0}, version=None, at=90.0),
        Event("bob", "watch", {"seconds": 8.0}, version=0, excluded=1, at=95.0),
        Event("ann", "watch", {"seconds": 16.0}, study=2, at=95.0),
        Event("", "watch", {"seconds": 32.0}, version=6, at=95.0),
        Event("gone", "watch", {"seconds": 32.0}, version=6, at=95.0),
        Event("ann", "watch", {"seconds": 64.0}, version=6, at=99.0),  # 10: after its end
    ]
    during = [
        Event("ann", at=100.0),
        Event("bob", at=100.0),
        Event("cyd", at=100.0),
        Event("ann", "watch", {"seconds": 128.0}, at=101.0),
        Event("bob", "watch", {"seconds": 256.0}, version=6, at=101.0),
    ]
    table.fill([*before, *during])
    past = CovariateWindow(after=1, until=9, at=100.0)
    columns = [Column(f"{back}", "watch", "seconds", "sum", lookback=back) for back in (60.0, 50.0, 100.0, 7.0)]
    (cell,) = table.measure(WATCHED, *columns, after=10, before=past)
    assert cell.units == 3
    assert [3 * mean for mean in cell.mean] == pytest.approx([100.0, 15.0, 14.0, 15.0, 8.0])
    assert cell.cross[1][0] == pytest.approx(3.0 * 100.0 - 3.0 * 5.0 * 100.0 / 3.0)
    assert table.measure(WATCHED, after=10, before=past)[0].mean == pytest.approx([100.0 / 3.0])


def timed_exact(events: Sequence[Event], columns: Sequence[Column], after: int, past: CovariateWindow) -> list[Moments]:
    """Return the result of `exact`, column by column, from the events in the column's span."""
    numbered = list(enumerate(events, start=1))
    exposures = [event for place, event in numbered if place > after and event.name is None]
    first_times: dict[str, float] = {}
    for event in exposures:
        first_times[event.unit] = min(event.at, first_times.get(event.unit, event.at))
    rows: dict[str, list[float]] = {unit: [] for unit in first_times}
    for column in columns:
        picked = list(exposures)
        for place, event in numbered:
            if event.name is None or event.unit not in first_times:
                continue
            if column.lookback is not None:
                if past.after < place <= past.until and event.at >= past.at - column.lookback:
                    picked.append(event)
            elif place > after and (column.window is None or event.at <= first_times[event.unit] + column.window):
                picked.append(event)
        for unit in first_times:
            own = [event for event in picked if event.unit == unit]
            rows[unit].append(exact(own, [column])[0].mean[0])
    cells: dict[int, list[list[float]]] = {}
    for event in {event.unit: event for event in exposures}.values():
        cells.setdefault(event.candidate, []).append(rows[event.unit])
    found = []
    for candidate, values in sorted(cells.items()):
        table = np.array(values)
        apart = table - table.mean(axis=0)
        cross = tuple(map(tuple, (apart.T @ apart).tolist()))
        found.append(Moments("learner", candidate, len(values), tuple(table.mean(axis=0)), cross, (0,) * len(columns)))
    return found


def exact(events: Sequence[Event], columns: Sequence[Column]) -> list[Moments]:
    """Compute the same in exact arithmetic, slowly."""
    cells = {event.unit: (event.arm, event.candidate) for event in events if event.name is None}
    rows: dict[tuple[str, int], list[list[Fraction]]] = {}
    for unit, cell in cells.items():
        row = []
        for column in columns:
            own = [event for event in events if event.unit == unit and event.name == column.event]
            numbers = [Fraction(event.fields["x"]) for event in own]
            by_time = sorted(own, key=lambda event: (event.fields["at"], event.fields["x"]))
            row.append(
                {
                    "sum": sum(numbers, Fraction(0)),
                    "count": Fraction(len(numbers)),
                    "mean": sum(numbers, Fraction(0)) / max(len(numbers), 1),
                    "any": Fraction(bool(numbers)),
                    "max": max(numbers, default=Fraction(0)),
                    "distinct": Fraction(len({event.fields[column.value or "x"] for event in own})),
                    "last": Fraction(by_time[-1].fields["x"]) if own else Fraction(0),
                }[column.aggregate]
            )
        rows.setdefault(cell, []).append(row)
    found = []
    for (arm, candidate), values in sorted(rows.items()):
        mean = [sum(column) / len(values) for column in zip(*values, strict=True)]
        cross = [
            [float(sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in values)) for j in range(len(mean))]
            for i in range(len(mean))
        ]
        products = tuple(map(tuple, cross))
        found.append(Moments(arm, candidate, len(values), tuple(map(float, mean)), products, (0,) * len(mean)))
    return found


ALL = (
    *(total("a"), Column("mean", "a", "x", "mean"), Column("max", "a", "x", "max")),
    *(Column("last", "a", "x", "last", by="at"),),
    *(count("a"), Column("any", "b", None, "any"), total("b")),
    *(Column("numbers", "a", "x", "distinct"), Column("times", "b", "at", "distinct")),
)
amounts = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)
metric_events = st.builds(
    Event,
    st.sampled_from(["u1", "u2", "Ünit", "u4"]),
    st.sampled_from(["a", "b"]),
    st.fixed_dictionaries({"x": amounts, "at": st.integers(0, 3)}),
)
exposed = st.lists(
    st.builds(Event, st.sampled_from(["u1", "u2", "Ünit", "u4"]), candidate=st.integers(0, 1)),
    min_size=1,
    unique_by=lambda event: event.unit,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(exposed, st.lists(metric_events, max_size=30))
def test_moments_agree_with_exact_arithmetic(table: Table, population: list[Event], events: list[Event]) -> None:
    table.fill([*population, *events])
    for got, want in zip(table.measure(*ALL), exact([*population, *events], ALL), strict=True):
        assert (got.arm, got.candidate, got.units) == (want.arm, want.candidate, want.units)
        np.testing.assert_allclose(got.mean, want.mean, rtol=1e-12, atol=1e-9)
        scale = np.sqrt(np.outer(np.diag(want.cross), np.diag(want.cross)))
        np.testing.assert_allclose(got.cross, want.cross, rtol=0, atol=1e-9 * scale.max() + 1e-9)


TIMED = tuple(
    replace(column, name=f"{column.name} {window} {lookback}", window=window, lookback=lookback)
    for column in (ALL[0], ALL[3], ALL[4])
    for window, lookback in ((None, None), (7.0, None), (None, 5.0))
)
moments_in_time = st.integers(0, 20).map(float)
timed_events = st.builds(
    Event,
    st.sampled_from(["u1", "u2", "Ünit", "u4"]),
    st.sampled_from(["a", "b"]),
    st.fixed_dictionaries({"x": amounts, "at": st.integers(0, 3)}),
    at=moments_in_time,
)
timed_exposed = st.lists(
    st.builds(Event, st.sampled_from(["u1", "u2", "Ünit", "u4"]), candidate=st.integers(0, 1), at=moments_in_time),
    min_size=1,
    unique_by=lambda event: event.unit,
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(timed_exposed, st.lists(timed_events, max_size=20), st.lists(timed_events, max_size=20))
def test_windows_and_covariates_agree_with_exact_arithmetic(
    table: Table, population: list[Event], earlier: list[Event], events: list[Event]
) -> None:
    earlier = [replace(event, version=3) for event in earlier]
    everything = [*earlier, *population, *events]
    after, past = len(earlier), CovariateWindow(min(1, len(earlier)), max(0, len(earlier) - 1), 12.0)
    table.fill(everything)
    got = table.measure(*TIMED, after=after, before=past)
    for one, want in zip(got, timed_exact(everything, TIMED, after, past), strict=True):
        assert (one.arm, one.candidate, one.units) == (want.arm, want.candidate, want.units)
        np.testing.assert_allclose(one.mean, want.mean, rtol=1e-12, atol=1e-9)
        scale = np.sqrt(np.outer(np.diag(want.cross), np.diag(want.cross)))
        np.testing.assert_allclose(one.cross, want.cross, rtol=0, atol=1e-9 * scale.max() + 1e-9)


@pytest.mark.parametrize("table", EXACT, indirect=True)
def test_the_order_of_arrival_within_round_and_past_changes_no_bit(table: Table) -> None:
    rng = random.Random(5)
    units = [f"unit {place}" for place in range(30)]

    def some() -> list[Event]:
        fields = [{"x": rng.lognormvariate(0, 6), "at": rng.randrange(4)} for _ in range(200)]
        return [Event(rng.choice(units), rng.choice("ab"), one, at=float(rng.randrange(20))) for one in fields]

    past, events = [replace(event, version=2) for event in some()], some()
    events += [Event(unit, candidate=place % 3, at=float(place % 7)) for place, unit in enumerate(units)]
    first = None
    for _ in range(20):
        rng.shuffle(past)
        rng.shuffle(events)
        table.fill([*past, *events])
        got = table.measure(*TIMED, after=len(past), before=CovariateWindow(0, len(past), 15.0))
        first = first or got
        assert got == first


@pytest.mark.parametrize("table", EXACT, indirect=True)
def test_the_order_of_arrival_changes_no_bit(table: Table) -> None:
    rng = random.Random(3)
    units = [f"unit {place}" for place in range(40)]
    events = [Event(unit, candidate=place % 3) for place, unit in enumerate(units)]
    events += [
        Event(rng.choice(units), rng.choice("ab"), {"x": rng.lognormvariate(0, 6), "at": rng.randrange(4)})
        for _ in range(400)
    ]
    table.fill(events)
    first = table.measure(*ALL)
    for _ in range(100):
        rng.shuffle(events)
        table.fill(events)
        assert table.measure(*ALL) == first


def test_the_archive_measures_as_the_embedded_store_to_the_last_bit() -> None:
    rng = random.Random(17)
    units = [f"unit {place}" for place in range(200)]
    events = [Event(unit, candidate=place % 5) for place, unit in enumerate(units)]
    events += [
        Event(rng.choice(units), rng.choice("ab"), {"x": rng.lognormvariate(0, 6), "at": rng.random()})
        for _ in range(5000)
    ]
    connection = sqlite3.connect(":memory:")
    store = Table(connection, "sqlite")
    store.fill(events)
    want = store.measure(*ALL)
    connection.close()
    rng.shuffle(events)
    with duckdb.connect() as lake:
        archive = Lake(lake, "archive")
        archive.fill(events)
        assert archive.measure(*ALL) == want


def test_a_large_mean_keeps_the_digits_of_its_variance(table: Table) -> None:
    rng = random.Random(5)
    values = [1e6 + rng.gauss(0, 1) for _ in range(2000)]
    events = [Event(f"u{place}") for place in range(len(values))]
    events += [Event(f"u{place}", "paid", {"x": value}) for place, value in enumerate(values)]
    table.fill(events)
    (cell,) = table.measure(total("paid"))
    mean = sum(map(Fraction, values)) / len(values)
    spread = sum((Fraction(value) - mean) ** 2 for value in values)
    assert abs(float(Fraction(cell.cross[0][0]) / spread - 1)) < 1e-9
    assert abs(float(Fraction(cell.mean[0]) / mean - 1)) < 1e-15


def test_numbers_too_small_to_square_stop_nothing(table: Table) -> None:
    events = [Event(f"u{place}") for place in range(3)]
    for unit, amount in (("u0", 5e-324), ("u1", 1e-200), ("u1", -1e-160), ("u2", 1e-140)):
        events.append(Event(unit, "paid", {"x": amount}))
    table.fill(events)
    (cell,) = table.measure(total("paid"), Column("mean", "paid", "x", "mean"), Column("max", "paid", "x", "max"))
    np.testing.assert_allclose(cell.mean, 1e-140 / 3, rtol=1e-9)


def test_many_columns_at_once(table: Table) -> None:
    columns = [count("click", f"c{place}", where=(Condition("x", "<", (float(place),)),)) for place in range(60)]
    table.fill([Event("ann"), Event("bob"), *(Event("ann", "click", {"x": x}) for x in range(60))])
    (cell,) = table.measure(*columns)
    assert cell.mean == tuple(place / 2 for place in range(60))
    np.testing.assert_allclose(cell.cross, np.outer(np.arange(60), np.arange(60)) / 2)


HOSTILE = [
    "x'); DROP TABLE events; --",
    'x"; SELECT pg_sleep(9); --',
    "$.x",
    "x' OR '1'='1",
    "' UNION SELECT id FROM api_keys --",
    "%s; COPY events TO PROGRAM 'id'",
    "{x}",
    "x\\",
    "?",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_only_ever_values(table: Table, text: str) -> None:
    table.fill([Event("ann"), Event("ann", text, {"x": 1.0}), Event("ann", "click", {"x": text})])
    where = (Condition("x", "=", (text,)),)
    (cell,) = table.measure(total(text), count("click", where=where))
    assert cell.mean == (1.0, 1.0)
    assert table.count() == 3


@pytest.mark.parametrize("text", [*HOSTILE, "\u0000", "a" * 200, "ä", ""])
def test_hostile_names_are_refused_where_they_would_be_part_of_a_path(text: str) -> None:
    for document in ({"event": text}, {"event": "e", "value": text}, {"event": "e", "where": {text: 1}}):
        with pytest.raises(StudyFileError, match=r"metrics\.m\."):
            parse_metrics({"m": document})


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(OptionError, match="'oracle'; there are sqlite, postgres"):
        measure(None, "oracle", study=1, version=1, after=0, until=1, columns=[WATCHED])
    with pytest.raises(OptionError, match="no column"):
        measure(None, "sqlite", study=1, version=1, after=0, until=1, columns=[])
    back = count("like", lookback=60.0)
    with pytest.raises(OptionError, match="'like' looks back, and `before` is missing"):
        measure(None, "sqlite", study=1, version=1, after=0, until=1, columns=[back])
    with pytest.raises(OptionError, match=r"before\.until must be at most 4, the start of the round, got 5"):
        measure(None, "sqlite", study=1, version=1, after=4, until=9, columns=[back], before=CovariateWindow(0, 5, 0.0))
