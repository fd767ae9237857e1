"""A team's own tables of exposures and events: their columns by name, and nothing ever posted to PASTO.

What a unit was assigned is computed again from the published policy, in the database itself: exposures need only say
which units a policy's version met. Where they name the candidate too, those that the policy did not draw are left out.
If another platform assigns the units, the named candidate counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pasto.errors import OptionError
from pasto.metrics.definitions import Column
from pasto.metrics.sql import ColumnFields, QueryBuilder, Relation, Span
from pasto.metrics.sql.assignment import assignment_query, audience_test, external_query
from pasto.metrics.sql.field_access import Kind
from pasto_sdk.policy import PublishedPolicy

_LATER = {
    "duckdb": "({time} + to_microseconds(CAST({microseconds} AS BIGINT)))",
    "postgres": "({time} + {microseconds} * interval '1 microsecond')",
    "spark": "({time} + make_dt_interval(0, 0, 0, CAST({microseconds} AS DECIMAL(18, 0)) / 1000000))",
}


@dataclass(frozen=True, slots=True)
class TimeExpressions:
    """SQL over the times of exposures and events."""

    draft: QueryBuilder
    tables: TeamTables
    kinds: Mapping[str, Mapping[str, Kind]]
    """By table and column; a column that is not among them may be a timestamp."""

    def firsts(self, versions: str) -> str:
        """Return SQL for the first exposure of each unit under some versions: unit, began."""
        table, draft = self.tables.exposures, self.draft
        unit = draft.identifier(table.unit)
        return (
            f"SELECT {unit} AS unit, min({draft.identifier(self._column(table))}) AS began "  # noqa: S608 -- all quoted
            f"FROM {draft.table(table.table)} WHERE {draft.identifier(table.version)} {versions} GROUP BY {unit}"
        )

    def of(self, table: EventTable) -> str:
        """Return SQL for the time of an event."""
        return f"e.{self.draft.identifier(self._column(table))}"

    def later(self, time: str, seconds: float) -> str:
        """Return SQL for a time of the exposures plus so many seconds, which may be negative."""
        draft = self.draft
        exposures = self.tables.exposures
        if self.kinds.get(exposures.table, {}).get(self._column(exposures)) == "number":
            return f"({time} + {draft.double(draft.bind(seconds))})"
        return _LATER[draft.dialect.name].format(time=time, microseconds=draft.bind(round(seconds * 1e6)))

    def _column(self, table: EventTable | ExposureTable) -> str:
        if table.time is None:
            raise OptionError(
                f"the table {table.table!r} has no time, from which windows and look-backs count; name its column "
                "under time"
            )
        return table.time


@dataclass(frozen=True, slots=True)
class ExposureTable:
    """Table of exposures, with the names of its columns."""

    table: str
    unit: str = "unit"
    version: str = "version"
    candidate: str | None = None
    """The candidate's name, where it was logged."""
    time: str | None = None
    """When: of any type that can be ordered where events do not say their version; a timestamp, or a number of
    seconds, where a column has a window or looks back."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Columns of attributes by which the audience is checked; each other attribute is taken to meet it."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """Table of events, with the names of its columns."""

    table: str
    unit: str = "unit"
    name: str | None = "name"
    """Column with the name of the event; None if `event` is the name of all."""
    event: str | None = None
    version: str | None = None
    """Column with the policy version; without it, an event belongs to the latest exposure of its unit before it."""
    time: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """Column of each field that a metric reads; by default the column of the same name."""


@dataclass(frozen=True, slots=True)
class TeamTables:
    """A team's exposures, and its events in one table or in several."""

    exposures: ExposureTable
    events: tuple[EventTable, ...]


Kinds = Mapping[str, Mapping[str, Kind]]
"""Kind of each column, by table and column."""


def team_relations(
    draft: QueryBuilder,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: Sequence[Column],
    kinds: Kinds,
    since: int | None = None,
    *,
    is_external: bool = False,
) -> Relation:
    """Return the relation of a policy's exposures and their events, from a team's own tables.

    With `is_external`, another platform assigned the units: the logged candidate counts, and only arms are drawn.

    Columns that look back read the events of a unit before its first exposure under this policy, or under an earlier
    one from the version `since` on, if those assigned units alike.

    >>> from pasto_sdk.policy import publish_policy
    >>> from pasto.metrics.sql import DIALECTS
    >>> policy = publish_policy(study="feed", version=7, round=7, state="learning", mode="shuffled", salt="feed/7",
    ...                  candidates={0: ("a", {})}, baseline=0, shares=[("control", 0, 1.0)],
    ...                  valid_from=0, expires_after=60)
    >>> tables = TeamTables(ExposureTable("lake.seen", unit="user_id"), (EventTable("lake.events", version="policy"),))
    >>> likes = Column("likes", "like", None, "count")
    >>> text = team_relations(QueryBuilder(DIALECTS["spark"]), tables, policy, [likes], {"lake.events": {}}).text
    >>> "FROM `lake`.`seen` WHERE `version` = :p0" in text
    True
    """
    wanted = sorted({name for column in columns for name in _fields(column)})
    merged = {name: _kind(tables.events, kinds, name) for name in wanted}
    fields = ColumnFields(merged)
    carried = fields.carried(draft)
    version = draft.bind(policy.version)
    spans: dict[Span, str] = {}
    if any(column.span != (None, None) for column in columns):
        spans = {column.span: f"s{place}" for place, column in enumerate(columns)}
    absent = "".join(f", CAST(NULL AS {kind}) AS {draft.identifier(name)}" for name, kind in carried.items())
    absent += "".join(f", FALSE AS {flag}" for flag in spans.values())
    exposed = _exposures(draft, tables.exposures, policy, version, is_external)
    cluster = "" if policy.cluster is None else "cluster, "
    pieces = [
        f"SELECT unit, arm, candidate, {cluster}CAST(NULL AS {draft.dialect.text}) AS name{absent} "  # noqa: S608
        f"FROM ({exposed}) AS x"
    ]
    events = sorted({column.event for column in columns if column.aggregate != "members"})
    times = TimeExpressions(draft, tables, kinds)
    for table in tables.events:
        if table.event is not None and table.event not in events:
            continue
        selected = _select_event(draft, table, carried, kinds[table.table], has_cluster=policy.cluster is not None)
        pieces.append(_events(draft, times, table, version, events, selected, spans))
        if any(lookback is not None for _, lookback in spans):
            first = draft.bind(policy.version if since is None else since)
            firsts = times.firsts(f"BETWEEN {first} AND {version}")
            pieces.append(_before(draft, times, table, firsts, events, selected, spans))
    return Relation("\nUNION ALL\n".join(pieces), fields, spans)


def _exposures(
    draft: QueryBuilder, table: ExposureTable, policy: PublishedPolicy, version: str, is_external: bool
) -> str:
    """Return SQL for the cell of every exposed unit that takes part.

    Conditions of the audience on attributes without a column are met by every exposure. If another platform assigns
    the units, its exposures decide on the enrolment, too.
    """
    unit = f"CAST({draft.identifier(table.unit)} AS {draft.dialect.text})"
    place = f"FROM {draft.table(table.table)} WHERE {draft.identifier(table.version)} = {version}"
    for condition in policy.audience:
        if (column := table.attributes.get(condition.attribute)) is not None:
            place += f" AND {audience_test(draft.dialect.name, draft.identifier(column), condition)}"
    if is_external and table.candidate is None:
        raise OptionError(f"the table {table.table!r} needs the column of the candidate that its platform assigned")
    read, also = f"{unit} AS unit", ""
    if policy.cluster is not None:
        if policy.cluster not in table.attributes:
            raise OptionError(
                f"the table {table.table!r} needs the column of {policy.cluster!r}, by which units are assigned; name "
                "it under attributes"
            )
        read += f", CAST({draft.identifier(table.attributes[policy.cluster])} AS {draft.dialect.text}) AS cluster"
        also = "cluster"
    clusters = {} if policy.cluster is None else {policy.cluster: "cluster"}
    own = assignment_query(policy, draft.dialect.name, attributes=clusters, is_exposed=True)
    enrolled = "" if own.takes_part is None else "arm <> 'not_enrolled'"
    if table.candidate is None:
        drawn = own.query(f"(SELECT DISTINCT {read} {place}) AS exposed", also=also, named=False)
        return f"SELECT * FROM ({drawn}) AS drawn WHERE {enrolled}" if enrolled else drawn  # noqa: S608 -- as below
    claimed = f"CAST({draft.identifier(table.candidate)} AS {draft.dialect.text})"
    exposed = f"(SELECT DISTINCT {read}, {claimed} AS claimed {place}) AS exposed"
    if is_external:
        return external_query(policy, draft.dialect.name, "claimed").query(exposed, also="claimed", named=False)
    drawn = own.query(exposed, also=f"claimed, {also}" if also else "claimed")
    tests = f"name = claimed AND {enrolled}" if enrolled else "name = claimed"
    return f"SELECT * FROM ({drawn}) AS drawn WHERE {tests}"  # noqa: S608 -- all quoted or bound


def _select_event(
    draft: QueryBuilder,
    table: EventTable,
    carried: Mapping[str, str],
    kinds: Mapping[str, Kind],
    *,
    has_cluster: bool,
) -> str:
    """Return SQL for the columns of an event: its unit, name and fields."""
    selected = ""
    for wanted, kind in carried.items():
        column = table.fields.get(wanted, wanted)
        value = f"e.{draft.identifier(column)}" if column in kinds else "NULL"
        selected += f", CAST({value} AS {kind}) AS {draft.identifier(wanted)}"
    unit = f"CAST(e.{draft.identifier(table.unit)} AS {draft.dialect.text})"
    # The types of the two columns come from the exposures, which stand first in the union.
    cluster = "NULL AS cluster, " if has_cluster else ""
    return f"{unit} AS unit, NULL AS arm, NULL AS candidate, {cluster}{_name(draft, table)} AS name{selected}"


def _name(draft: QueryBuilder, table: EventTable) -> str:
    """Return SQL for the name of an event."""
    if table.event is None and table.name:
        return f"e.{draft.identifier(table.name)}"
    return draft.bind(str(table.event))


def _named(draft: QueryBuilder, table: EventTable, events: Sequence[str]) -> list[str]:
    """Return the condition on the name of an event."""
    return [] if table.event is not None else [f"{_name(draft, table)} IN ({', '.join(map(draft.bind, events))})"]


def _events(
    draft: QueryBuilder,
    times: TimeExpressions,
    table: EventTable,
    version: str,
    events: Sequence[str],
    selected: str,
    spans: Mapping[Span, str],
) -> str:
    """Return SQL for the events of one table that belong to the policy."""
    exposures = times.tables.exposures
    joined = f"{draft.table(table.table)} AS e"
    for (window, lookback), flag in spans.items():
        within = "FALSE" if lookback is not None else "TRUE"
        if window is not None:
            within = f"coalesce({times.of(table)} <= {times.later('f.began', window)}, FALSE)"
        selected += f", {within} AS {flag}"
    if any(window is not None for window, _ in spans):
        joined += f" LEFT JOIN ({times.firsts(f'= {version}')}) AS f ON e.{draft.identifier(table.unit)} = f.unit"
    tests = _named(draft, table, events)
    if table.version is not None:
        tests.append(f"e.{draft.identifier(table.version)} = {version}")
        return f"SELECT {selected} FROM {joined} WHERE {' AND '.join(tests)}"  # noqa: S608 -- all quoted or bound
    if table.time is None or exposures.time is None:
        raise OptionError(
            f"events of {table.table!r} have neither a version nor a time; name the column of one of them "
            "(with the time, that of the exposures too)"
        )
    unit, when = draft.identifier(exposures.unit), draft.identifier(exposures.time)
    ranges = (
        f"SELECT {unit} AS unit, {draft.identifier(exposures.version)} AS version, {when} AS began, "  # noqa: S608
        f"lead({when}) OVER (PARTITION BY {unit} ORDER BY {when}) AS ended FROM {draft.table(exposures.table)}"
    )
    moment = f"e.{draft.identifier(table.time)}"
    tests += [f"s.version = {version}", f"{moment} >= s.began", f"(s.ended IS NULL OR {moment} < s.ended)"]
    joined += f" JOIN ({ranges}) AS s ON e.{draft.identifier(table.unit)} = s.unit"
    return f"SELECT {selected} FROM {joined} WHERE {' AND '.join(tests)}"  # noqa: S608 -- all quoted or bound


def _before(
    draft: QueryBuilder,
    times: TimeExpressions,
    table: EventTable,
    firsts: str,
    events: Sequence[str],
    selected: str,
    spans: Mapping[Span, str],
) -> str:
    """Return SQL for the events before their unit's first exposure, as far back as any column looks."""
    moment = times.of(table)
    longest = 0.0
    for (_, lookback), flag in spans.items():
        within = "FALSE" if lookback is None else f"{moment} >= {times.later('f.began', -lookback)}"
        longest = max(longest, lookback or 0.0)
        selected += f", {within} AS {flag}"
    tests = _named(draft, table, events)
    tests += [f"{moment} < f.began", f"{moment} >= {times.later('f.began', -longest)}"]
    return (
        f"SELECT {selected} FROM {draft.table(table.table)} AS e JOIN ({firsts}) AS f "  # noqa: S608 -- all quoted or bound
        f"ON e.{draft.identifier(table.unit)} = f.unit WHERE {' AND '.join(tests)}"
    )


def _fields(column: Column) -> set[str]:
    """Return the fields that a column reads."""
    fields = {condition.field for condition in column.where}
    return fields | {name for name in (column.value, column.by) if name is not None}


def _kind(tables: Sequence[EventTable], kinds: Kinds, name: str) -> Kind:
    """Return the kind of a field; OptionError if no table has it, or two disagree."""
    found = {
        kinds[table.table][column]
        for table in tables
        for column in [table.fields.get(name, name)]
        if column in kinds[table.table]
    }
    if len(found) != 1:
        selected = ", ".join(repr(table.table) for table in tables)
        problem = "is a column of none" if not found else f"is {' and '.join(sorted(found))} in different ones"
        raise OptionError(f"the field {name!r} {problem} of the tables of events {selected}; map it under fields")
    return found.pop()
