"""The way of events through an embedded store: taken in, measured, closed, archived, forgotten."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from pasto.bench.measure_turns import Spent, beside, row, timed
from pasto.bench.subjects import DOCUMENT
from pasto.measure import measure
from pasto.store import EXPOSURE, METRIC, EventRow, open_store

BATCH = 10_000
"""Events taken in together."""


def kept(size: int) -> list[dict[str, Any]]:
    """Rates of an embedded store, from one study of so many events, four a unit."""
    from pasto.service.service import Service

    with tempfile.TemporaryDirectory(prefix="pasto-bench-") as folder:
        store = open_store(folder)
        service = Service(store)
        try:
            service.create(DOCUMENT, who="bench")
            service.change("bench", "start", who="bench")
            taken = _taken(service, size)
            with store.reading() as connection:
                pages, each = (connection.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
            standing = service.board.standing("bench")
            number, columns = standing.row.number, standing.spec.columns
            query = "SELECT unit, kind, name, fields FROM events WHERE version = 1"
            with store.reading() as connection:
                raw, own, *_ = beside(
                    lambda: connection.execute(query).fetchall(),
                    lambda: measure(
                        connection, store.dialect, study=number, version=1, after=0, until=10**12, columns=columns
                    ),
                )
            closed, _ = timed(lambda: service.close_round("bench", who="bench"))
            archived, told = timed(lambda: service.archive_events("bench", who="bench"))
            compacted, _ = timed(store.compact)
            remain = store.size()
            files = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
            forgotten, _ = timed(lambda: service.forget("bench", "user-7", who="bench"))
        finally:
            service.shutdown()
    return [
        row("take in, embedded store", size, taken, bytes_each=pages * each / size),
        row("measure, embedded store", size, own, raw),
        row("close of a round, embedded store", size, closed),
        row("archive, embedded store", told["events"], archived, bytes_each=files / max(1, told["events"])),
        row("compact, what remains of archived events", remain.ids, compacted, bytes_each=remain.bytes_an_event),
        row("forget a unit, archive included", size, forgotten),
    ]


def _taken(service: Any, size: int) -> Spent:
    """What it takes to keep events with random ids of 32 characters, in batches; making them does not count."""
    draw, policy = random.Random(7), service.board.current("bench")  # noqa: S311 -- ids only
    number = service.board.standing("bench").row.number
    wall = core = 0.0
    for first in range(0, size // 4, BATCH // 4):
        events = []
        for user in range(first, min(first + BATCH // 4, size // 4)):
            unit = f"user-{user}"
            cell = policy.draw(unit)
            place = (unit, policy.version, cell.arm, cell.candidate)
            ids = [f"{draw.getrandbits(128):032x}" for _ in range(4)]
            events.append(EventRow(ids[0], EXPOSURE, *place))
            events.append(EventRow(ids[1], METRIC, *place, "watch", f'{{"seconds":{user % 97}.5}}'))
            events.append(EventRow(ids[2], METRIC, *place, "watch", f'{{"seconds":{user % 31}.25}}'))
            events.append(EventRow(ids[3], METRIC, *place, "like"))
        spent, _ = timed(service.store.append(number, events).result)
        wall, core = wall + spent[0], core + spent[1]
    return wall, core
