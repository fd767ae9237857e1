-- The API key that each event came with, and how many events of each key were rejected.

ALTER TABLE events ADD COLUMN key_prefix $name;

CREATE TABLE rejected_keys (
    study $integer NOT NULL,
    key_prefix $name NOT NULL,
    events $integer NOT NULL,
    PRIMARY KEY (study, key_prefix)
) $keyed;
