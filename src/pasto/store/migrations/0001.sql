-- Words after a dollar sign are replaced by those of each dialect: see schema.py.

CREATE TABLE meta (
    name $name PRIMARY KEY,
    value TEXT NOT NULL
) $keyed;

CREATE TABLE studies (
    number $numbered PRIMARY KEY,
    name $name NOT NULL UNIQUE,
    generation $integer NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL,
    seed TEXT NOT NULL,
    round $integer NOT NULL,
    version $integer NOT NULL,
    opened_at $real NOT NULL,
    created_at $real NOT NULL,
    details TEXT NOT NULL
) $plain;

CREATE TABLE policies (
    study $integer NOT NULL,
    version $integer NOT NULL,
    round $integer NOT NULL,
    learned $integer,
    text TEXT NOT NULL,
    checksum TEXT NOT NULL,
    after_sequence $integer NOT NULL,
    published_at $real NOT NULL,
    PRIMARY KEY (study, version)
) $plain;

CREATE TABLE closes (
    study $integer NOT NULL,
    round $integer NOT NULL,
    version $integer NOT NULL,
    high_water $integer NOT NULL,
    observed TEXT NOT NULL,
    learner_checksum TEXT NOT NULL,
    next_version $integer NOT NULL,
    closed_at $real NOT NULL,
    PRIMARY KEY (study, round)
) $plain;

CREATE TABLE learners (
    study $integer PRIMARY KEY,
    state TEXT NOT NULL
) $plain;

CREATE TABLE audit (
    sequence $numbered PRIMARY KEY,
    study $integer NOT NULL,
    at $real NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
) $plain;

CREATE INDEX audit_of_study ON audit (study, sequence);

CREATE TABLE keys (
    prefix $name PRIMARY KEY,
    digest TEXT NOT NULL,
    name $name NOT NULL,
    scopes TEXT NOT NULL,
    created_at $real NOT NULL,
    expires_at $real,
    revoked_at $real
) $keyed;

CREATE TABLE events (
    sequence $numbered PRIMARY KEY,
    study $integer NOT NULL,
    id $name NOT NULL,
    kind $integer NOT NULL,
    unit $name NOT NULL,
    version $integer,
    arm $name,
    candidate $integer,
    name $name,
    fields $json,
    excluded $integer NOT NULL,
    source $name,
    position $integer,
    received_at $real NOT NULL
) $plain;

CREATE UNIQUE INDEX events_by_id ON events (study, id);

CREATE TABLE latest (
    study $integer NOT NULL,
    unit $name NOT NULL,
    version $integer NOT NULL,
    arm $name,
    candidate $integer,
    sequence $integer NOT NULL,
    PRIMARY KEY (study, unit)
) $keyed;

CREATE TABLE tallies (
    study $integer NOT NULL,
    version $integer NOT NULL,
    source $name NOT NULL,
    position $integer NOT NULL,
    assigned TEXT NOT NULL,
    dropped TEXT NOT NULL,
    PRIMARY KEY (study, version, source)
) $keyed;
