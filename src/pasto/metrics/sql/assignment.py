"""A published policy as SQL: a nightly job assigns every unit of a table, and agrees with the SDK to the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from pasto.errors import OptionError
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
    """Columns to compute first, by name: the unit's place on the line, and its score for each candidate of an arm."""
    arm: str
    """An expression over those columns; so are the others."""
    candidate: str
    """The candidate's index."""
    name: str
    """The candidate's name."""

    def query(self, table: str, also: str = "", *, named: bool = True) -> str:
        """Return SQL for the assignment of every row of a table with a column `unit`: unit, arm, candidate, name.

        `also` is a further column of the table. Without `named`, names are left out, and a database plans the rest in
        half the time. Each hash is computed once: OFFSET keeps a database from merging the subquery.
        """
        hashes = ", ".join(f"{expression} AS {name}" for name, expression in self.hashes.items())
        along = f", {also}" if also else ""
        name = f", {self.name} AS name" if named else ""
        selected = f"{self.arm} AS arm, {self.candidate} AS candidate{name}{along}"
        return (
            f"SELECT unit, {selected} "  # noqa: S608 -- numbers, digits in hexadecimal, and the caller's own columns
            f"FROM (SELECT {self.unit} AS unit, {hashes}{along} FROM {table} OFFSET 0) AS hashed"
        )


def assignment_query(policy: PublishedPolicy, dialect: str, unit: str = "unit") -> AssignmentQuery:
    """Return a policy as SQL expressions over a column of units, for "duckdb", "postgres" or "spark".

    `unit` is SQL, such as a column's quoted name, and must be text; numbers are hashed as the text that the SDK is
    given. Names are written in hexadecimal and made text again, so that any script passes any client.

    >>> from pasto_sdk.policy import publish_policy
    >>> policy = publish_policy(study="feed", version=1, round=1, state="learning", mode="shuffled", salt="feed/1",
    ...                  candidates={0: ("a", {}), 1: ("b", {})}, baseline=0,
    ...                  shares=[("control", 0, 0.25), ("learner", 1, 0.75)], valid_from=0, expires_after=60)
    >>> assignment_query(policy, "spark").arm
    "CASE WHEN place < 2251799813685248 THEN 'control' ELSE 'learner' END"
    """
    if dialect not in _DIGEST:
        raise OptionError(f"no SQL of {dialect!r} is known; there are {', '.join(_DIGEST)}")
    cells = policy.cells
    entries: list[list[int]] = [[place] for place in range(len(cells))]
    if policy.mode == "sticky":
        arms = groupby(enumerate(cells), lambda pair: pair[1].arm)
        entries = [[place for place, _ in group] for _, group in arms]
    cuts = list(accumulate(sum(cells[place].width for place in entry) for entry in entries))
    hashes = {"place": _hashed(dialect, unit, policy.salt)}
    for place in (place for entry in entries if len(entry) > 1 for place in entry):
        hashes[f"score{place}"] = _score(dialect, unit, policy.salt, cells[place])

    def written(value: Callable[[Bucket], str]) -> str:
        return _tree(cuts, [_leaf(entry, [value(cells[place]) for place in entry]) for entry in entries])

    return AssignmentQuery(
        unit=unit,
        hashes=hashes,
        arm=written(lambda cell: f"'{cell.arm}'"),
        candidate=written(lambda cell: str(cell.candidate)),
        name=written(lambda cell: _text(dialect, cell.name)),
    )


def _tree(cuts: Sequence[int], leaves: Sequence[str]) -> str:
    """Return a balanced tree of CASE: few comparisons per unit, and little nesting."""
    if len(set(leaves)) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    left, right = _tree(cuts[:middle], leaves[:middle]), _tree(cuts[middle:], leaves[middle:])
    return f"CASE WHEN place < {cuts[middle - 1]} THEN {left} ELSE {right} END"


def _leaf(entry: Sequence[int], values: Sequence[str]) -> str:
    """Return the value of one bucket; of several candidates that of the smallest score."""
    if len(set(values)) == 1:
        return values[0]
    least = f"least({', '.join(f'score{place}' for place in entry)})"
    tests = (f"WHEN score{place} = {least} THEN {value}" for place, value in zip(entry, values, strict=True))
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
