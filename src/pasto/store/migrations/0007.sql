-- Slices of layers, in millionths of the hash line. Studies of one layer never share a unit, so their slices never overlap.
-- The slice of an archived study and of a deleted draft is free.

CREATE TABLE layer_slices (
    study $integer PRIMARY KEY,
    layer $name NOT NULL,
    unit TEXT NOT NULL,
    start $integer NOT NULL,
    until $integer NOT NULL
) $keyed;

CREATE INDEX layer_slices_by_layer ON layer_slices (layer, start);

-- Settings of the whole installation, such as the holdout.

CREATE TABLE settings (
    name $name PRIMARY KEY,
    value TEXT NOT NULL
) $keyed;
