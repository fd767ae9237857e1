"""A published policy as SQL: a nightly job assigns every unit of a table, and agrees with the SDK to the last one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from types import MappingProxyType

from pasto.errors import OptionError
from pasto.metrics.external_assignment import ARM_KEY, arm_draw
from pasto_sdk.enrolment import MAX_ATTRIBUTE_NUMBER, AudienceCondition, SegmentRule
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL, Bucket

_DIGEST = {
    "duckdb": "sha256({})",
    "postgres": "encode(sha256({}), 'hex')",
    "spark": "sha2({}, 256)",
}
_BYTES = {
    "duckdb": ("encode({})", " || ", "unhex('{}')"),
    "postgres": ("convert_to({}, 'UTF8')", " || ", "decode('{}', 'hex')"),
    "spark": ("encode({}, 'UTF-8')", ", ", "X'{}'"),
}
_PLACE = {
    "duckdb": "(CAST('0x' || substr({}, 1, 14) AS BIGINT) >> 3)",
    "postgres": "(('x' || substr({}, 1, 14))::bit(56)::bigint >> 3)",
    "spark": "shiftright(CAST(conv(substr({}, 1, 14), 16, 10) AS BIGINT), 3)",
}
"""The top 53 of the first 56 bits."""
_DOUBLE = {"duckdb": "DOUBLE", "postgres": "double precision", "spark": "DOUBLE"}


@dataclass(frozen=True, slots=True)
class AssignmentQuery:
    """SQL for what a policy gives the unit of a row; nothing in it but hexadecimal digits came from its document."""

    unit: str
    """The column of units, as it was given."""
    hashes: Mapping[str, str]
    """Columns to compute first, by name: places on the line, scores of the candidates of an arm, and attributes."""
    arm: str
    """An expression over those columns; so are the others."""
    candidate: str
    """The candidate's index."""
    name: str
    """The candidate's name."""
    takes_part: str | None = None
    """Condition over those columns that only units of the study meet; None if all take part."""
    segment: str | None = None
    """The segment's name, NULL for units that do not take part; None if the policy has no segments."""

    def query(self, table: str, also: str = "", *, named: bool = True) -> str:
        """Return SQL for the assignment of every row of a table with a column `unit`: unit, arm, candidate, name.

        A policy with segments adds the column segment. A unit that does not take part has the arm "not_enrolled" and
        the baseline. `also` is a further column of the table. Without `named`, names are left out, and a database plans
        the rest in half the time. Each hash is computed once: OFFSET keeps a database from merging the subquery.
        """
        hashes = ", ".join(f"{expression} AS {name}" for name, expression in self.hashes.items())
        along = f", {also}" if also else ""
        name = f", {self.name} AS name" if named else ""
        segment = "" if self.segment is None else f", {self.segment} AS segment"
        selected = f"{self.arm} AS arm, {self.candidate} AS candidate{name}{segment}{along}"
        return (
            f"SELECT unit, {selected} "  # noqa: S608 -- numbers, digits in hexadecimal, and the caller's own columns
            f"FROM (SELECT {self.unit} AS unit, {hashes}{along} FROM {table} OFFSET 0) AS hashed"
        )


def assignment_query(
    policy: PublishedPolicy,
    dialect: str,
    unit: str = "unit",
    attributes: Mapping[str, str] = MappingProxyType({}),
    *,
    is_exposed: bool = False,
) -> AssignmentQuery:
    """Return a policy as SQL expressions over a column of units, for "duckdb", "postgres" or "spark".

    `unit` is SQL, such as a column's quoted name, and must be text; numbers are hashed as the text that the SDK is
    given. Names are written in hexadecimal and made text again, so that any script passes any client.

    `attributes` names the column of each attribute that the policy's audience and segments read; its type is text,
    number or boolean, and NULL meets no condition. With `is_exposed`, all units have met the audience already, and it
    reads no attributes. If the policy has clusters, `attributes` names their column, of texts or integers.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {}), 1: ("b", {})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("learner", 1, 0.75)], valid_from=0, expires_after=60)
    >>> assignment_query(policy, "spark").arm
    "CASE WHEN place < 2251799813685248 THEN 'control' ELSE 'learner' END"
    """
    if dialect not in _DIGEST:
        raise OptionError(f"no SQL of {dialect!r} is known; there are {', '.join(_DIGEST)}")
    baseline = policy.not_enrolled
    drawn_by, tests = unit, []
    if policy.cluster is not None:
        column = _column(attributes, policy.cluster, "cluster")
        drawn_by = f"CAST({column} AS {'STRING' if dialect == 'spark' else 'VARCHAR'})"
        tests.append("drawn_by <> ''")
    hashes = {"place": _hashed(dialect, drawn_by, policy.salt)}
    if policy.cluster is not None:
        hashes["drawn_by"] = drawn_by
    for number, part in enumerate(policy.enrolment):
        hashes[f"enrolment{number}"] = _hashed(dialect, drawn_by, part.salt)
        tests.append(f"enrolment{number} >= {part.start} AND enrolment{number} < {part.until}")
    for number, condition in enumerate(() if is_exposed else policy.audience):
        hashes[f"attribute{number}"] = _column(attributes, condition.attribute, "audience")
        tests.append(audience_test(dialect, f"attribute{number}", condition))
    takes_part = " AND ".join(tests) or None
    if policy.segments is not None:
        hashes["segment_number"] = _segment_number(dialect, policy.segments, attributes)
    lines = [_divide(cells, policy.mode) for cells in policy.cells_by_segment.values() or [policy.cells]]
    scores: dict[ScoreKey, str] = {}
    for cell in (cell for _, entries in lines for entry in entries if len(entry) > 1 for cell in entry):
        column = scores.setdefault(_score_key(cell), f"score{len(scores)}")
        hashes[column] = _score(dialect, drawn_by, policy.salt, cell)

    def written(value: Callable[[Bucket], str]) -> str:
        drawn = _choose([_tree(cuts, [_leaf(entry, value, scores) for entry in entries]) for cuts, entries in lines])
        return drawn if takes_part is None else f"CASE WHEN {takes_part} THEN {drawn} ELSE {value(baseline)} END"

    return AssignmentQuery(
        unit=unit,
        hashes=hashes,
        arm=written(lambda cell: f"'{cell.arm}'"),
        candidate=written(lambda cell: str(cell.candidate)),
        name=written(lambda cell: _text(dialect, cell.name)),
        takes_part=takes_part,
        segment=None
        if policy.segments is None
        else written(lambda cell: "NULL" if cell.segment is None else _text(dialect, cell.segment)),
    )


ScoreKey = tuple[str, int]
"""Name and width of a candidate, on which its score depends."""


def _score_key(cell: Bucket) -> ScoreKey:
    return cell.name, cell.width


def _divide(cells: Sequence[Bucket], mode: str) -> tuple[list[int], list[list[Bucket]]]:
    """Return the sections of the hash line: the end of each, and its bucket or the competing buckets of its arm."""
    entries = [[cell] for cell in cells]
    if mode == "sticky":
        entries = [list(group) for _, group in groupby(cells, lambda cell: cell.arm)]
    return list(accumulate(sum(cell.width for cell in entry) for entry in entries)), entries


def _segment_number(dialect: str, rule: SegmentRule, attributes: Mapping[str, str]) -> str:
    """Return SQL for the place of a unit's segment in the rule; the number of segments for "other"."""
    number = ""
    for part in rule.attributes:
        column = _column(attributes, part.attribute, "segments")
        conditions = [AudienceCondition(part.attribute, "in", (value,)) for value in part.values]
        conditions += [AudienceCondition(part.attribute, "<", (cut,)) for cut in part.cuts]
        conditions += [AudienceCondition(part.attribute, ">=", part.cuts[-1:])] if part.cuts else []
        tests = (f"WHEN {audience_test(dialect, column, test)} THEN {place}" for place, test in enumerate(conditions))
        before = f"({number}) * {part.part_count} + " if number else ""
        number = f"{before}CASE {' '.join(tests)} END"
    return f"coalesce({number}, {len(rule.names)})"


@dataclass(frozen=True, slots=True)
class HoldoutColumns:
    """Table with a row for each unit, and its columns, by which units of a holdout are compared with the others."""

    table: str
    """Name, which may have a schema and a catalog."""
    unit: str
    metrics: Sequence[str]
    """Columns of numbers: what each unit did, 0 for a unit that did nothing."""


def holdout_query(columns: HoldoutColumns, salt: str, until: int, dialect: str) -> str:
    """Return SQL that compares the units whose place under a salt is below `until` with all others.

    One row for each metric: the units and the mean of both sides, the difference of the means, the change in percent
    of the holdout's mean, and the ends of the 95% interval of the difference.

    >>> query = holdout_query(HoldoutColumns("lake.users", "user_id", ["watch"]), "holdout:global", 2**48, "duckdb")
    >>> query.splitlines()[-1]
    'WHERE held.held_out AND NOT rest.held_out ORDER BY rest.number'
    """
    if dialect not in _DIGEST:
        raise OptionError(f"no SQL of {dialect!r} is known; there are {', '.join(_DIGEST)}")
    if not columns.metrics:
        raise OptionError("a comparison needs at least one metric; name a column with --metric")
    if not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", name) for name in columns.table.split(".")):
        raise OptionError(f"table must be a name such as lake.users, got {columns.table!r}; make a view of a query")
    kind, mark = _DOUBLE[dialect], "`" if dialect == "spark" else '"'

    def quoted(name: str) -> str:
        return mark + name.replace(mark, mark * 2) + mark

    unit = f"CAST({quoted(columns.unit)} AS {'STRING' if dialect == 'spark' else 'VARCHAR'})"
    table = ".".join(map(quoted, columns.table.split(".")))
    numbers = [f"CAST({quoted(name)} AS {kind}) AS metric{place}" for place, name in enumerate(columns.metrics)]
    sums = [
        f"  SELECT {place} AS number, {_text(dialect, name)} AS metric, held_out, count(metric{place}) AS units, "  # noqa: S608
        f"avg(metric{place}) AS mean, var_samp(metric{place}) / count(metric{place}) AS variance\n"
        "  FROM units GROUP BY held_out"
        for place, name in enumerate(columns.metrics)
    ]
    error = "1.959964 * sqrt(held.variance + rest.variance)"
    return "\n".join(
        [
            "WITH units AS (",
            f"  SELECT {_hashed(dialect, unit, salt)} < {until} AS held_out,",
            f"    {', '.join(numbers)}",
            f"  FROM {table} WHERE {quoted(columns.unit)} IS NOT NULL",
            "), sums AS (",
            "\n  UNION ALL\n".join(sums),
            ")",
            "SELECT rest.metric, held.units AS holdout_units, rest.units AS other_units,",
            "  held.mean AS holdout_mean, rest.mean AS other_mean,",
            "  rest.mean - held.mean AS difference,",
            "  100 * (rest.mean - held.mean) / nullif(held.mean, 0) AS change_percent,",
            f"  rest.mean - held.mean - {error} AS low, rest.mean - held.mean + {error} AS high",
            "FROM sums AS rest JOIN sums AS held ON rest.metric = held.metric",
            "WHERE held.held_out AND NOT rest.held_out ORDER BY rest.number",
        ]
    )


def _column(attributes: Mapping[str, str], attribute: str, reader: str) -> str:
    """Return the column of an attribute; OptionError if none is named."""
    if attribute not in attributes:
        verb = "read" if reader == "segments" else "reads"
        raise OptionError(
            f"the policy's {reader} {verb} the attribute {attribute!r}, and no column of it is given; pass "
            f"attributes={{{attribute!r}: 'its column'}}"
        )
    return attributes[attribute]


def audience_test(dialect: str, column: str, condition: AudienceCondition) -> str:
    """Return SQL for a condition of an audience; it is false for NULL, and for numbers that are not finite."""
    first = condition.values[0]
    if isinstance(first, str):
        wanted = ", ".join(_text(dialect, str(value)) for value in condition.values)
        return f"coalesce({column} IN ({wanted}), FALSE)"
    if isinstance(first, bool):
        wanted = ", ".join("TRUE" if value else "FALSE" for value in condition.values)
        return f"coalesce({column} IN ({wanted}), FALSE)"
    kind = _DOUBLE[dialect]
    number = f"CAST({column} AS {kind})"
    limit = f"CAST({MAX_ATTRIBUTE_NUMBER:.17e} AS {kind})"
    # With an exponent, every database reads a double; without one, some read a decimal and round it twice.
    values = [f"CAST({value:.17e} AS {kind})" for value in condition.values]
    test = f"IN ({', '.join(values)})" if condition.operator == "in" else f"{condition.operator} {values[0]}"
    return f"coalesce({number} {test} AND {number} BETWEEN -{limit} AND {limit}, FALSE)"


def external_query(policy: PublishedPolicy, dialect: str, claimed: str, unit: str = "unit") -> AssignmentQuery:
    """Return the cell of units whose candidate another platform gave, as SQL over columns of units and names.

    Only the arm is drawn. Arm and candidate are NULL if the policy does not serve the named candidate.
    """
    draw = arm_draw(policy)

    def written(value: Callable[[Bucket], str]) -> str:
        cases = (
            f"WHEN {_text(dialect, name)} THEN {_tree(draw.cuts[name], [value(cell) for cell in cells])}"
            for name, cells in draw.cells.items()
        )
        return f"CASE {claimed} {' '.join(cases)} END"

    return AssignmentQuery(
        unit=unit,
        hashes={"place": _hashed(dialect, unit, policy.salt, ARM_KEY)},
        arm=written(lambda cell: f"'{cell.arm}'"),
        candidate=written(lambda cell: str(cell.candidate)),
        name=claimed,
    )


def _tree(cuts: Sequence[int], leaves: Sequence[str]) -> str:
    """Return a balanced tree of CASE: few comparisons per unit, and little nesting."""
    if len(set(leaves)) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    left, right = _tree(cuts[:middle], leaves[:middle]), _tree(cuts[middle:], leaves[middle:])
    return f"CASE WHEN place < {cuts[middle - 1]} THEN {left} ELSE {right} END"


def _choose(trees: Sequence[str]) -> str:
    """Return the tree of a unit's segment; the last one is that of "other"."""
    if len(set(trees)) == 1:
        return trees[0]
    *named, other = trees
    cases = (f"WHEN {number} THEN {tree}" for number, tree in enumerate(named) if tree != other)
    return f"CASE segment_number {' '.join(cases)} ELSE {other} END"


def _leaf(entry: Sequence[Bucket], value: Callable[[Bucket], str], scores: Mapping[ScoreKey, str]) -> str:
    """Return the value of one bucket; of several candidates that of the smallest score."""
    values = [value(cell) for cell in entry]
    if len(set(values)) == 1:
        return values[0]
    columns = [scores[_score_key(cell)] for cell in entry]
    least = f"least({', '.join(columns)})"
    tests = (f"WHEN {column} = {least} THEN {value}" for column, value in zip(columns, values, strict=True))
    return f"CASE {' '.join(tests)} END"


def _score(dialect: str, unit: str, salt: str, cell: Bucket) -> str:
    """SQL for a candidate's score in the weighted rendezvous of its arm."""
    kind = _DOUBLE[dialect]
    share = f"(CAST({_hashed(dialect, unit, salt, cell.name)} AS {kind}) + 0.5) / CAST({BUCKET_TOTAL} AS {kind})"
    return f"-ln({share}) / CAST({cell.width} AS {kind})"


def _hashed(dialect: str, unit: str, *parts: str) -> str:
    """SQL for a unit's place on the line [0, 2^53), from SHA-256 of the parts and the unit with NULs between."""
    encoded, joined, constant = _BYTES[dialect]
    before = "".join(part.encode().hex() + "00" for part in parts)
    pieces = joined.join([constant.format(before), encoded.format(unit)])
    return _PLACE[dialect].format(_DIGEST[dialect].format(f"concat({pieces})" if dialect == "spark" else pieces))


def _text(dialect: str, text: str) -> str:
    """Return SQL for any constant text."""
    digits = text.encode().hex()
    return {
        "duckdb": f"decode(unhex('{digits}'))",
        "postgres": f"convert_from(decode('{digits}', 'hex'), 'UTF8')",
        "spark": f"decode(X'{digits}', 'UTF-8')",
    }[dialect]
