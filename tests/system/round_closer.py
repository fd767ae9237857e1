"""Node that closes rounds: `round_closer.py STORE LAST NUMBER` prints the number of its own closes."""

from __future__ import annotations

import json
import sys

from pasto.service.service import Service
from pasto.store import open_store


def main(place: str, last: int, closer: int) -> int:
    store = open_store(place)
    service = Service(store)
    own = 0
    while (number := service.show("feed").round) <= last:
        policy = service.policy_cache.current("feed")
        events = []
        for user in range(5):
            unit = f"user {closer}/{user}"
            drawn = {"unit": unit, "version": policy.version, "candidate": policy.draw(unit).name}
            identity = f"{policy.version}/{closer}/{user}"
            events.append({"type": "exposure", "id": f"e/{identity}", **drawn})
            fields = {"x": user / 3, "y": closer / 7}
            events.append({"type": "metric", "id": f"m/{identity}", "name": "seen", "fields": fields, **drawn})
        service.ingest("feed", service.decode(json.dumps(events).encode())).result(timeout=60)
        own += service.close_round("feed", who=f"closer {closer}", round=number).closed
    store.close()
    return own


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}\n")
