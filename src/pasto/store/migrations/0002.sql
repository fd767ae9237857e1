-- Events that were rejected: how many for which reason, and which numbers of each sender.

CREATE TABLE rejected_reasons (
    study $integer NOT NULL,
    kind $name NOT NULL,
    reason TEXT NOT NULL,
    events $integer NOT NULL,
    first_at $real NOT NULL,
    PRIMARY KEY (study, kind)
) $keyed;

CREATE TABLE rejected_numbers (
    study $integer NOT NULL,
    source $name NOT NULL,
    events $integer NOT NULL,
    first_position $integer NOT NULL,
    last_position $integer NOT NULL,
    PRIMARY KEY (study, source)
) $keyed;
