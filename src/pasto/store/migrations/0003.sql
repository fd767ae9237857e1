-- Ids in a table of their own, so that events can be deleted once the archive holds them, and what was deleted.

CREATE TABLE event_ids (
    digest $bytes PRIMARY KEY,
    content $integer
) $keyed;

CREATE TABLE archived_rounds (
    study $integer NOT NULL,
    version $integer NOT NULL,
    until_sequence $integer NOT NULL,
    events $integer NOT NULL,
    first_sequence $integer NOT NULL,
    last_sequence $integer NOT NULL,
    PRIMARY KEY (study, version, until_sequence)
) $keyed;

CREATE INDEX archived_by_sequence ON archived_rounds (last_sequence);

CREATE TABLE archived_counts (
    study $integer NOT NULL,
    version $integer NOT NULL,
    kind $integer NOT NULL,
    candidate $integer NOT NULL,
    arm $name NOT NULL,
    excluded $integer NOT NULL,
    numbered $integer NOT NULL,
    events $integer NOT NULL,
    PRIMARY KEY (study, version, kind, candidate, arm, excluded, numbered)
) $keyed;

CREATE TABLE archived_sources (
    study $integer NOT NULL,
    source $name NOT NULL,
    events $integer NOT NULL,
    first_position $integer NOT NULL,
    last_position $integer NOT NULL,
    PRIMARY KEY (study, source)
) $keyed;

-- The content of older events is not known: whatever comes again under their ids is a repeat.
INSERT INTO event_ids (digest) SELECT $digest AS digest FROM events GROUP BY 1 ORDER BY 1;

DROP INDEX events_by_id;

-- Events without a unit are in the archive or were forgotten; the same statements as when a round is archived.
INSERT INTO archived_counts (study, version, kind, candidate, arm, excluded, numbered, events)
SELECT study,
    CASE WHEN kind = 0 THEN coalesce(version, 0) WHEN version IS NULL THEN -1 ELSE 0 END,
    kind,
    CASE WHEN kind = 0 THEN coalesce(candidate, -1) ELSE -1 END,
    CASE WHEN kind = 0 THEN coalesce(arm, '') ELSE '' END,
    excluded,
    CASE WHEN kind = 0 AND source IS NOT NULL THEN 1 ELSE 0 END,
    count(*)
FROM events WHERE unit = '' GROUP BY 1, 2, 3, 4, 5, 6, 7;

INSERT INTO archived_sources (study, source, events, first_position, last_position)
SELECT study, source, count(*), min(position), max(position)
FROM events WHERE unit = '' AND source IS NOT NULL AND position IS NOT NULL GROUP BY study, source;

INSERT INTO archived_rounds (study, version, until_sequence, events, first_sequence, last_sequence)
SELECT study, coalesce(version, 0), max(sequence), count(*), min(sequence), max(sequence)
FROM events WHERE unit = '' GROUP BY 1, 2;

DELETE FROM events WHERE unit = '';
