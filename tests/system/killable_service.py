"""Service processes that a test kills: `killable_service.py STORE`.

The parent imports everything once. For each line that it reads, it forks a child, which ingests events and closes
rounds as fast as it can, and prints a line for each acknowledgement. A batch stays in a file until it is acknowledged,
as in a client's queue; the next child sends it again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy


def batch(policy: PublishedPolicy, before: PublishedPolicy | None, number: int) -> list[dict[str, object]]:
    """Return events of twenty users; the first comes late, from the round before, if there was one."""
    events: list[dict[str, object]] = []
    for user in range(20):
        unit = f"user {number % 7}/{user}"
        served = policy if user or before is None else before
        drawn = {"unit": unit, "version": served.version, "candidate": served.draw(unit).name}
        events.append({"type": "exposure", "id": f"e/{number}/{user}", **drawn})
        fields = {"x": user / 3 - number % 5, "y": number % 3 - 1}
        events.append({"type": "metric", "id": f"m/{number}/{user}", "name": "seen", "fields": fields, **drawn})
    return events


def live(place: str) -> None:
    """Ingest and close until killed."""
    service = Service(open_store(place))
    queue = Path(place).with_suffix(".queue")
    number, events = json.loads(queue.read_text()) if queue.exists() else (0, [])
    say(f"alive {number}")
    while True:
        if events:
            answer = service.ingest("feed", service.decode(json.dumps(events).encode())).result()
            if answer.rejected:
                say(f"refused {answer.rejected[0]}")
            say(f"acked {number} {answer.accepted} {answer.duplicates}")
        if number % 2:
            say(f"closed {service.close_round('feed', who='child').round}")
        number += 1
        policy = service.policy_cache.current("feed")
        before = service.policy_cache.published(service.policy_cache.snapshot("feed"), policy.version - 1)
        events = batch(policy, before, number)
        fresh = queue.with_suffix(".new")
        fresh.write_text(json.dumps([number, events]))
        fresh.rename(queue)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(place: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                live(place)
            except BaseException as error:
                say(f"failed {type(error).__name__}: {error}")
            finally:
                os._exit(1)
        say(f"born {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main(sys.argv[1])
