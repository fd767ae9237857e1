"""The SQL that both kinds of database understand, with ? where a value goes."""

from __future__ import annotations

from typing import Final

STUDIES: Final = (
    "SELECT name, number, generation, state, document, seed, round, version, opened_at, created_at, details "
    "FROM studies WHERE state <> 'deleted'"
)
GENERATIONS: Final = "SELECT name, number, generation FROM studies WHERE state <> 'deleted'"
STUDY: Final = (
    "SELECT name, number, generation, state, document, seed, round, version, opened_at, created_at, details "
    "FROM studies WHERE name = ?"
)
ADD_STUDY: Final = (
    "INSERT INTO studies (name, generation, state, document, seed, round, version, opened_at, created_at, details) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
)
CHANGE_STUDY: Final = (
    "UPDATE studies SET generation = ?, state = ?, document = ?, round = ?, version = ?, opened_at = ?, details = ? "
    "WHERE number = ? AND generation = ?"
)
RENAME_ARCHIVED: Final = (
    "UPDATE studies SET name = ?, generation = generation + 1 WHERE name = ? AND state = 'archived' RETURNING number"
)
DELETE_DRAFT: Final = (
    "UPDATE studies SET name = ?, state = 'deleted', generation = ? "
    "WHERE number = ? AND generation = ? AND state = 'draft'"
)

POLICY: Final = (
    "SELECT version, round, learned, text, checksum, after_sequence, published_at FROM policies "
    "WHERE study = ? AND version = ?"
)
POLICIES: Final = (
    "SELECT version, round, learned, text, checksum, after_sequence, published_at FROM policies "
    "WHERE study = ? AND version > ? ORDER BY version LIMIT ?"
)
ADD_POLICY: Final = (
    "INSERT INTO policies (study, version, round, learned, text, checksum, after_sequence, published_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

CLOSES: Final = (
    "SELECT round, version, high_water, observed, learner_checksum, next_version, closed_at FROM closes "
    "WHERE study = ? AND round > ? ORDER BY round LIMIT ?"
)
ADD_CLOSE: Final = (
    "INSERT INTO closes (study, round, version, high_water, observed, learner_checksum, next_version, closed_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)

LEARNER: Final = "SELECT state FROM learners WHERE study = ?"
SET_LEARNER: Final = (
    "INSERT INTO learners (study, state) VALUES (?, ?) ON CONFLICT (study) DO UPDATE SET state = excluded.state"
)

AUDIT: Final = (
    "SELECT at, who, action, reason, detail, sequence FROM audit "
    "WHERE study = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
ADD_AUDIT: Final = "INSERT INTO audit (study, at, who, action, reason, detail) VALUES (?, ?, ?, ?, ?, ?)"

KEYS: Final = "SELECT prefix, digest, name, scopes, created_at, expires_at, revoked_at FROM keys"
ADD_KEY: Final = (
    "INSERT INTO keys (prefix, digest, name, scopes, created_at, expires_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
REVOKE_KEY: Final = "UPDATE keys SET revoked_at = ? WHERE prefix = ? AND (revoked_at IS NULL OR revoked_at > ?)"

TALLIES: Final = "SELECT source, version, position, assigned, dropped FROM tallies WHERE study = ? AND version = ?"
SET_TALLY: Final = (
    "INSERT INTO tallies (study, version, source, position, assigned, dropped) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (study, version, source) DO UPDATE SET "
    "position = excluded.position, assigned = excluded.assigned, dropped = excluded.dropped "
    "WHERE excluded.position > tallies.position"
)

REJECTED_REASONS: Final = "SELECT kind, reason, events, first_at FROM rejected_reasons WHERE study = ?"
ADD_REJECTED_REASON: Final = (
    "INSERT INTO rejected_reasons (study, kind, reason, events, first_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (study, kind) DO UPDATE SET events = rejected_reasons.events + excluded.events"
)
REJECTED_NUMBERS: Final = "SELECT source, events, first_position, last_position FROM rejected_numbers WHERE study = ?"
ADD_REJECTED_NUMBERS: Final = (
    "INSERT INTO rejected_numbers (study, source, events, first_position, last_position) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (study, source) DO UPDATE SET events = rejected_numbers.events + excluded.events, "
    "first_position = CASE WHEN excluded.first_position < rejected_numbers.first_position "
    "THEN excluded.first_position ELSE rejected_numbers.first_position END, "
    "last_position = CASE WHEN excluded.last_position > rejected_numbers.last_position "
    "THEN excluded.last_position ELSE rejected_numbers.last_position END"
)

NOTE: Final = "SELECT value FROM meta WHERE name = ?"
NOTE_NAMES: Final = "SELECT name FROM meta WHERE name >= ? AND name < ?"
DELETE_NOTE: Final = "DELETE FROM meta WHERE name = ?"
ADD_NOTE: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
SET_NOTE: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

LAST_SEQUENCE: Final = "SELECT coalesce(max(sequence), 0) FROM events"
ADD_EVENT: Final = (
    "INSERT INTO events (sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, "
    "position, received_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ARCHIVED: Final = (
    "UPDATE events SET unit = '', name = NULL, fields = NULL "
    "WHERE +study = ? AND coalesce(version, 0) = ? AND sequence > ? AND sequence <= ? AND unit <> ''"
)
# The plus keeps databases from walking a whole study by its ids, where the span of sequences is what is short.
TO_ARCHIVE: Final = (
    "SELECT 1 FROM events WHERE +study = ? AND coalesce(version, 0) = ? AND sequence > ? AND sequence <= ? "
    "AND unit <> '' LIMIT 1"
)
EVENTS_OF: Final = (
    "SELECT sequence, coalesce(version, 0) FROM events "
    "WHERE +study = ? AND sequence > ? AND sequence <= ? AND unit = ? ORDER BY sequence"
)
FORGET_EVENT: Final = (
    "UPDATE events SET unit = '', name = NULL, fields = NULL WHERE sequence = ? AND +study = ? AND unit = ?"
)
FORGET_LATEST: Final = "DELETE FROM latest WHERE study = ? AND unit = ?"
OLD_LATEST: Final = (
    "SELECT max(unit), sum(CASE WHEN version < ? THEN 1 ELSE 0 END) FROM "
    "(SELECT unit, version FROM latest WHERE study = ? AND unit > ? ORDER BY unit LIMIT ?) AS piece"
)
TRIM_LATEST: Final = "DELETE FROM latest WHERE study = ? AND unit > ? AND unit <= ? AND version < ?"
SET_LATEST: Final = (
    "INSERT INTO latest (study, unit, version, arm, candidate, sequence) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (study, unit) DO UPDATE SET version = excluded.version, arm = excluded.arm, "
    "candidate = excluded.candidate, sequence = excluded.sequence WHERE excluded.sequence > latest.sequence"
)
