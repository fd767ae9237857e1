-- Names that can be read without the code: tables say what their rows are, columns say what they hold.

ALTER TABLE studies RENAME COLUMN document TO study_file;

ALTER TABLE policies RENAME COLUMN learned TO learner_version;

ALTER TABLE policies RENAME COLUMN text TO document;

ALTER TABLE closes RENAME TO round_closes;

ALTER TABLE round_closes RENAME COLUMN observed TO record;

ALTER TABLE learners RENAME TO learner_states;

ALTER TABLE audit RENAME TO audit_log;

DROP INDEX audit_of_study;

CREATE INDEX audit_log_by_study ON audit_log (study, sequence);

ALTER TABLE keys RENAME TO api_keys;

ALTER TABLE latest RENAME TO latest_exposures;

ALTER TABLE tallies RENAME TO sender_counts;

ALTER TABLE event_ids RENAME COLUMN content TO content_checksum;

ALTER TABLE archived_rounds RENAME TO archived_spans;

DROP INDEX archived_by_sequence;

CREATE INDEX archived_spans_by_sequence ON archived_spans (last_sequence);

ALTER TABLE archived_counts RENAME TO archived_event_counts;

ALTER TABLE archived_sources RENAME TO archived_source_counts;

ALTER TABLE archived_senders RENAME TO archived_sender_counts;

ALTER TABLE rejected_reasons RENAME TO rejections_by_reason;

ALTER TABLE rejected_numbers RENAME TO rejections_by_source;

ALTER TABLE rejected_keys RENAME TO rejections_by_key;

-- Values that are computed again if they are missing.
UPDATE meta SET name = 'cache/' || substr(name, 6) WHERE substr(name, 1, 5) = 'note/';
