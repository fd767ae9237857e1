-- Checksums of rows that are written once, computed when they are written; NULL in older rows and in erased events.

ALTER TABLE events ADD COLUMN row_checksum $integer;

ALTER TABLE policies ADD COLUMN row_checksum $integer;

ALTER TABLE closes ADD COLUMN row_checksum $integer;

ALTER TABLE audit ADD COLUMN row_checksum $integer;

-- The API key that each event came with, how many events of each key were rejected, and how many of each sender are in
-- the archive.

ALTER TABLE events ADD COLUMN key_prefix $name;

CREATE TABLE rejected_keys (
    study $integer NOT NULL,
    key_prefix $name NOT NULL,
    events $integer NOT NULL,
    PRIMARY KEY (study, key_prefix)
) $keyed;

CREATE TABLE archived_senders (
    study $integer NOT NULL,
    key_prefix $name NOT NULL,
    source $name NOT NULL,
    kind $integer NOT NULL,
    events $integer NOT NULL,
    PRIMARY KEY (study, key_prefix, source, kind)
) $keyed;
