-- Checksums of rows that are written once, computed when they are written; NULL in older rows and in erased events.

ALTER TABLE events ADD COLUMN row_checksum $integer;

ALTER TABLE policies ADD COLUMN row_checksum $integer;

ALTER TABLE closes ADD COLUMN row_checksum $integer;

ALTER TABLE audit ADD COLUMN row_checksum $integer;
