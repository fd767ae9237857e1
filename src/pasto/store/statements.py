"""SQL statements that SQLite and PostgreSQL share, with ? for each value."""

from __future__ import annotations

from typing import Final

STUDIES: Final = (
    "SELECT name, number, generation, state, study_file, seed, round, version, opened_at, created_at, details "
    "FROM studies WHERE state <> 'deleted'"
)
GENERATIONS: Final = "SELECT name, number, generation FROM studies WHERE state <> 'deleted'"
STUDY: Final = (
    "SELECT name, number, generation, state, study_file, seed, round, version, opened_at, created_at, details "
    "FROM studies WHERE name = ?"
)
ADD_STUDY: Final = (
    "INSERT INTO studies (name, generation, state, study_file, seed, round, version, opened_at, created_at, details) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
)
CHANGE_STUDY: Final = (
    "UPDATE studies SET generation = ?, state = ?, study_file = ?, round = ?, version = ?, opened_at = ?, details = ? "
    "WHERE number = ? AND generation = ?"
)
RENAME_ARCHIVED: Final = (
    "UPDATE studies SET name = ?, generation = generation + 1 WHERE name = ? AND state = 'archived' RETURNING number"
)
DELETE_DRAFT: Final = (
    "UPDATE studies SET name = ?, state = 'deleted', generation = ? "
    "WHERE number = ? AND generation = ? AND state = 'draft'"
)

LAYER_SLICES: Final = (
    "SELECT layer, unit, start, until, name, state FROM layer_slices JOIN studies ON number = study "
    "WHERE state NOT IN ('archived', 'deleted')"
)
TAKEN_SLICE: Final = (
    "SELECT 1 FROM layer_slices JOIN studies ON number = study "
    "WHERE layer = ? AND start < ? AND until > ? AND state NOT IN ('archived', 'deleted') LIMIT 1"
)
ADD_SLICE: Final = "INSERT INTO layer_slices (study, layer, unit, start, until) VALUES (?, ?, ?, ?, ?)"
DELETE_SLICE: Final = "DELETE FROM layer_slices WHERE study = ?"

SETTING: Final = "SELECT value FROM settings WHERE name = ?"
SET_SETTING: Final = (
    "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

POLICY: Final = (
    "SELECT version, round, learner_version, document, checksum, after_sequence, published_at FROM policies "
    "WHERE study = ? AND version = ?"
)
POLICIES: Final = (
    "SELECT version, round, learner_version, document, checksum, after_sequence, published_at FROM policies "
    "WHERE study = ? AND version > ? ORDER BY version LIMIT ?"
)
ADD_POLICY: Final = (
    "INSERT INTO policies (study, version, round, learner_version, document, checksum, after_sequence, published_at, "
    "row_checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

CLOSES: Final = (
    "SELECT round, version, high_water, record, learner_checksum, next_version, closed_at FROM round_closes "
    "WHERE study = ? AND round > ? ORDER BY round LIMIT ?"
)
ADD_CLOSE: Final = (
    "INSERT INTO round_closes (study, round, version, high_water, record, learner_checksum, next_version, closed_at, "
    "row_checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

LEARNER_STATE: Final = "SELECT state FROM learner_states WHERE study = ?"
SET_LEARNER_STATE: Final = (
    "INSERT INTO learner_states (study, state) VALUES (?, ?) ON CONFLICT (study) DO UPDATE SET state = excluded.state"
)

AUDIT_LOG: Final = (
    "SELECT at, who, action, reason, detail, sequence FROM audit_log "
    "WHERE study = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
ADD_AUDIT: Final = (
    "INSERT INTO audit_log (study, at, who, action, reason, detail, row_checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
)

API_KEYS: Final = "SELECT prefix, digest, name, scopes, created_at, expires_at, revoked_at FROM api_keys"
ADD_KEY: Final = (
    "INSERT INTO api_keys (prefix, digest, name, scopes, created_at, expires_at, revoked_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
REVOKE_KEY: Final = "UPDATE api_keys SET revoked_at = ? WHERE prefix = ? AND (revoked_at IS NULL OR revoked_at > ?)"

SENDER_COUNTS: Final = (
    "SELECT source, version, position, assigned, dropped FROM sender_counts WHERE study = ? AND version = ?"
)
SET_SENDER_COUNTS: Final = (
    "INSERT INTO sender_counts (study, version, source, position, assigned, dropped) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (study, version, source) DO UPDATE SET "
    "position = excluded.position, assigned = excluded.assigned, dropped = excluded.dropped "
    "WHERE excluded.position > sender_counts.position"
)

REJECTIONS_BY_REASON: Final = "SELECT kind, reason, events, first_at FROM rejections_by_reason WHERE study = ?"
ADD_REJECTIONS_BY_REASON: Final = (
    "INSERT INTO rejections_by_reason (study, kind, reason, events, first_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (study, kind) DO UPDATE SET events = rejections_by_reason.events + excluded.events"
)
REJECTIONS_BY_KEY: Final = "SELECT key_prefix, events FROM rejections_by_key WHERE study = ?"
ADD_REJECTIONS_BY_KEY: Final = (
    "INSERT INTO rejections_by_key (study, key_prefix, events) VALUES (?, ?, ?) "
    "ON CONFLICT (study, key_prefix) DO UPDATE SET events = rejections_by_key.events + excluded.events"
)
REJECTIONS_BY_SOURCE: Final = (
    "SELECT source, events, first_position, last_position FROM rejections_by_source WHERE study = ?"
)
ADD_REJECTIONS_BY_SOURCE: Final = (
    "INSERT INTO rejections_by_source (study, source, events, first_position, last_position) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (study, source) DO UPDATE SET events = rejections_by_source.events + excluded.events, "
    "first_position = CASE WHEN excluded.first_position < rejections_by_source.first_position "
    "THEN excluded.first_position ELSE rejections_by_source.first_position END, "
    "last_position = CASE WHEN excluded.last_position > rejections_by_source.last_position "
    "THEN excluded.last_position ELSE rejections_by_source.last_position END"
)

_OUTBOX: Final = "id, study, webhook, event, body, created_at, due_at, attempts"
ADD_MESSAGE: Final = f"INSERT INTO outbox ({_OUTBOX}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 -- our own names
DUE_MESSAGE: Final = "SELECT id, due_at FROM outbox WHERE webhook = ? ORDER BY due_at, created_at, id LIMIT 1"
# Two nodes may read the same message as due: the condition is checked again by the one that writes later.
CLAIM_MESSAGE: Final = (
    "UPDATE outbox SET due_at = ?, attempts = attempts + 1 WHERE id = ? AND due_at = ? RETURNING "  # noqa: S608
    + _OUTBOX
)
POSTPONE_MESSAGE: Final = "UPDATE outbox SET due_at = ? WHERE id = ? AND attempts = ?"
DELETE_MESSAGE: Final = "DELETE FROM outbox WHERE id = ?"
DELETE_OLD_MESSAGES: Final = f"DELETE FROM outbox WHERE created_at < ? RETURNING {_OUTBOX}"  # noqa: S608
OUTBOX_SIZES: Final = "SELECT webhook, count(*), min(created_at) FROM outbox GROUP BY webhook ORDER BY webhook"

CLAIM: Final = "SELECT holder, until FROM claims WHERE name = ?"
SET_CLAIM: Final = (
    "INSERT INTO claims (name, holder, until) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
    "holder = excluded.holder, until = excluded.until WHERE claims.holder = excluded.holder OR claims.until <= ?"
)
DELETE_CLAIM: Final = "DELETE FROM claims WHERE name = ? AND holder = ?"

META: Final = "SELECT value FROM meta WHERE name = ?"
META_NAMES: Final = "SELECT name FROM meta WHERE name >= ? AND name < ?"
DELETE_META: Final = "DELETE FROM meta WHERE name = ?"
ADD_META: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
SET_META: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

LAST_SEQUENCE: Final = (
    "SELECT max(sequence) FROM (SELECT coalesce(max(sequence), 0) AS sequence FROM events "
    "UNION ALL SELECT coalesce(max(last_sequence), 0) FROM archived_spans) AS marks"
)
ADD_EVENT: Final = (
    "INSERT INTO events (sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, "
    "position, received_at, key_prefix, row_checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ADD_ID: Final = "INSERT INTO event_ids (digest, content_checksum) VALUES (?, ?)"

_ARCHIVED_SPAN: Final = "study = ? AND coalesce(version, 0) = ? AND sequence > ? AND sequence <= ?"
HAS_ARCHIVED: Final = f"SELECT 1 FROM events WHERE {_ARCHIVED_SPAN} LIMIT 1"  # noqa: S608 -- our own names
DELETE_ARCHIVED: Final = f"DELETE FROM events WHERE {_ARCHIVED_SPAN}"  # noqa: S608
# Exposures are counted by policy. Metric events are counted together, under -1 if they have no policy, else 0.
COUNT_ARCHIVED: Final = (
    "INSERT INTO archived_event_counts (study, version, kind, candidate, arm, excluded, numbered, events) "  # noqa: S608
    "SELECT study, CASE WHEN kind = 0 THEN coalesce(version, 0) WHEN version IS NULL THEN -1 ELSE 0 END, kind, "
    "CASE WHEN kind = 0 THEN coalesce(candidate, -1) ELSE -1 END, "
    "CASE WHEN kind = 0 THEN coalesce(arm, '') ELSE '' END, excluded, "
    "CASE WHEN kind = 0 AND source IS NOT NULL THEN 1 ELSE 0 END, count(*) "
    f"FROM events WHERE {_ARCHIVED_SPAN} GROUP BY 1, 2, 3, 4, 5, 6, 7 "
    "ON CONFLICT (study, version, kind, candidate, arm, excluded, numbered) "
    "DO UPDATE SET events = archived_event_counts.events + excluded.events"
)
COUNT_ARCHIVED_SOURCES: Final = (
    "INSERT INTO archived_source_counts (study, source, events, first_position, last_position) "  # noqa: S608
    "SELECT study, source, count(*), min(position), max(position) "
    f"FROM events WHERE {_ARCHIVED_SPAN} AND source IS NOT NULL AND position IS NOT NULL GROUP BY study, source "
    "ON CONFLICT (study, source) DO UPDATE SET events = archived_source_counts.events + excluded.events, "
    "first_position = CASE WHEN excluded.first_position < archived_source_counts.first_position "
    "THEN excluded.first_position ELSE archived_source_counts.first_position END, "
    "last_position = CASE WHEN excluded.last_position > archived_source_counts.last_position "
    "THEN excluded.last_position ELSE archived_source_counts.last_position END"
)
COUNT_ARCHIVED_SENDERS: Final = (
    "INSERT INTO archived_sender_counts (study, key_prefix, source, kind, events) "  # noqa: S608
    f"SELECT study, coalesce(key_prefix, ''), coalesce(source, ''), kind, count(*) FROM events WHERE {_ARCHIVED_SPAN} "
    "GROUP BY 1, 2, 3, 4 "
    "ON CONFLICT (study, key_prefix, source, kind) "
    "DO UPDATE SET events = archived_sender_counts.events + excluded.events"
)
ADD_ARCHIVED_SPAN: Final = (
    "INSERT INTO archived_spans (study, version, until_sequence, events, first_sequence, last_sequence) "  # noqa: S608
    "SELECT study, coalesce(version, 0), CAST(? AS BIGINT), count(*), min(sequence), max(sequence) "
    f"FROM events WHERE {_ARCHIVED_SPAN} GROUP BY 1, 2 "
    "ON CONFLICT (study, version, until_sequence) DO UPDATE SET events = archived_spans.events + excluded.events, "
    "first_sequence = CASE WHEN excluded.first_sequence < archived_spans.first_sequence "
    "THEN excluded.first_sequence ELSE archived_spans.first_sequence END, "
    "last_sequence = CASE WHEN excluded.last_sequence > archived_spans.last_sequence "
    "THEN excluded.last_sequence ELSE archived_spans.last_sequence END"
)
# Exposures of old policies are counted together under -2, so that the table does not grow for ever.
_OLD_COUNTS: Final = "study = ? AND kind = 0 AND version > 0 AND version <= ?"
NEWEST_COUNT: Final = "SELECT coalesce(max(version), 0) FROM archived_event_counts WHERE study = ? AND kind = 0"
MERGE_OLD_COUNTS: Final = (
    "INSERT INTO archived_event_counts (study, version, kind, candidate, arm, excluded, numbered, events) "  # noqa: S608
    "SELECT study, -2, kind, candidate, arm, excluded, numbered, CAST(sum(events) AS BIGINT) "
    f"FROM archived_event_counts WHERE {_OLD_COUNTS} GROUP BY study, kind, candidate, arm, excluded, numbered "
    "ON CONFLICT (study, version, kind, candidate, arm, excluded, numbered) "
    "DO UPDATE SET events = archived_event_counts.events + excluded.events"
)
DELETE_OLD_COUNTS: Final = f"DELETE FROM archived_event_counts WHERE {_OLD_COUNTS}"  # noqa: S608
ARCHIVED_SPANS: Final = (
    "SELECT version, events, first_sequence, last_sequence FROM archived_spans "
    "WHERE study = ? AND first_sequence <= ? AND last_sequence > ? ORDER BY version, until_sequence"
)
SIZES: Final = "SELECT (SELECT count(*) FROM event_ids), (SELECT coalesce(sum(events), 0) FROM archived_spans)"
UNIT_EVENTS: Final = (
    "SELECT sequence, coalesce(version, 0) FROM events "
    "WHERE study = ? AND sequence > ? AND sequence <= ? AND unit = ? ORDER BY sequence"
)
ERASE_EVENT: Final = (
    "UPDATE events SET id = '', unit = '', name = NULL, fields = NULL, row_checksum = NULL "
    "WHERE sequence = ? AND study = ? AND unit = ?"
)
ERASE_LATEST_EXPOSURE: Final = "DELETE FROM latest_exposures WHERE study = ? AND unit = ?"
COUNT_OLD_EXPOSURES: Final = (
    "SELECT max(unit), sum(CASE WHEN version < ? THEN 1 ELSE 0 END) FROM "
    "(SELECT unit, version FROM latest_exposures WHERE study = ? AND unit > ? ORDER BY unit LIMIT ?) AS piece"
)
DELETE_OLD_EXPOSURES: Final = "DELETE FROM latest_exposures WHERE study = ? AND unit > ? AND unit <= ? AND version < ?"
SET_LATEST_EXPOSURE: Final = (
    "INSERT INTO latest_exposures (study, unit, version, arm, candidate, sequence) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (study, unit) DO UPDATE SET version = excluded.version, arm = excluded.arm, "
    "candidate = excluded.candidate, sequence = excluded.sequence WHERE excluded.sequence > latest_exposures.sequence"
)
