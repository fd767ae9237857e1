"""Event identities: 16 bytes that a store holds of each event for the life of its study.

Twelve bytes are a digest of study, source and id, which recognises a repeat. Its first four are of the id without its
last three characters: ids that count up are then neighbours in the table, and few pages are written for many of them.
Four more bytes are a checksum of the content, which separates a retry from another event with the same id. The API key
of an event is not part of it, so a retry after a key was rotated counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final
from zlib import crc32

from pasto.store.rows import EventRow

Identity = tuple[bytes, int]
"""Digest of an event's study, source and id, and checksum of its content."""
DIGEST_BYTES: Final = 12
"""Two of 10^11 events share a digest with a probability below 10^-5, if at most a thousand ids are in a group."""
GROUP_CHARACTERS: Final = 3
"""Characters at the end of an id that do not change its group: a thousand numbers."""
GROUP_BYTES: Final = 4
_OWN_BYTES: Final = DIGEST_BYTES - GROUP_BYTES


def compute_digest(study: int, source: str | None, event_id: str) -> bytes:
    """Return the digest of an event's study, source and id; PostgreSQL computes the same in 0003.sql.

    >>> compute_digest(1, "web", "7") == compute_digest(1, None, "7")
    False
    """
    start = f"{study}\0{source or ''}\0"
    group, own = (sha256((start + text).encode()).digest() for text in (event_id[:-GROUP_CHARACTERS], event_id))
    return group[:GROUP_BYTES] + own[:_OWN_BYTES]


def identify(study: int, events: Iterable[EventRow]) -> list[Identity]:
    """Return the digest of each event and a signed 32-bit checksum of its content.

    The position is not content, because senders may number their events again. This runs for every event, so it calls
    nothing twice.

    >>> like = EventRow("7", 1, "ann", None, None, None, "like", '{"x":1}')
    >>> (digest, content), (same, other) = identify(1, [like, like._replace(fields='{"x":2}')])
    >>> digest == same == compute_digest(1, None, "7"), content == other
    (True, False)
    """
    identities: list[Identity] = []
    last, group = "", b""
    for event_id, kind, unit, version, _, candidate, name, fields, excluded, source, _ in events:
        start = f"{study}\0{source or ''}\0"
        text = start + event_id[:-GROUP_CHARACTERS]
        if text != last:
            last, group = text, sha256(text.encode()).digest()[:GROUP_BYTES]
        own = sha256((start + event_id).encode()).digest()[:_OWN_BYTES]
        content = f"{kind}\0{unit}\0{version}\0{candidate}\0{name}\0{fields}\0{excluded}"
        identities.append((group + own, crc32(content.encode()) - 2**31))
    return identities
