BEGIN TRANSACTION;
CREATE TABLE "api_keys" (
    prefix TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) STRICT, WITHOUT ROWID;
INSERT INTO "api_keys" VALUES('ab12','0000000000000000000000000000000000000000000000000000000000000000','mobile','["ingest"]',1700000000.0,NULL,NULL);
CREATE TABLE "archived_event_counts" (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    candidate INTEGER NOT NULL,
    arm TEXT NOT NULL,
    excluded INTEGER NOT NULL,
    numbered INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, version, kind, candidate, arm, excluded, numbered)
) STRICT, WITHOUT ROWID;
CREATE TABLE "archived_sender_counts" (
    study INTEGER NOT NULL,
    key_prefix TEXT NOT NULL,
    source TEXT NOT NULL,
    kind INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, key_prefix, source, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE "archived_source_counts" (
    study INTEGER NOT NULL,
    source TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    PRIMARY KEY (study, source)
) STRICT, WITHOUT ROWID;
CREATE TABLE "archived_spans" (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    until_sequence INTEGER NOT NULL,
    events INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    PRIMARY KEY (study, version, until_sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE "audit_log" (
    sequence INTEGER PRIMARY KEY,
    study INTEGER NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
, row_checksum INTEGER) STRICT;
INSERT INTO "audit_log" VALUES(1,1,1700000000.0,'ann','create','a try','{}',220535354);
INSERT INTO "audit_log" VALUES(2,1,1700000002.0,'bob','close','','{}',171717559);
CREATE TABLE claims (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE event_ids (
    digest BLOB PRIMARY KEY,
    content_checksum INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "event_ids" VALUES(X'5E9DA77A2E6D404F50690E05',1956780511);
INSERT INTO "event_ids" VALUES(X'5E9DA77A37633505329D9A31',424097849);
INSERT INTO "event_ids" VALUES(X'5E9DA77A50FCAEBC4C523C28',1112574252);
INSERT INTO "event_ids" VALUES(X'5E9DA77AAE3CAB0A4523F746',800434378);
INSERT INTO "event_ids" VALUES(X'9C4BB62E17E1E8F7ECFA748D',-674316851);
INSERT INTO "event_ids" VALUES(X'9C4BB62E493513606E6950B4',-1912688885);
INSERT INTO "event_ids" VALUES(X'9C4BB62E9E1AB18C40773456',1349023374);
INSERT INTO "event_ids" VALUES(X'9C4BB62EA2E786236DF69AD4',66202890);
INSERT INTO "event_ids" VALUES(X'9C4BB62ECF15462F70462BD0',173565000);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY,
    study INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    unit TEXT NOT NULL,
    version INTEGER,
    arm TEXT,
    candidate INTEGER,
    name TEXT,
    fields TEXT,
    excluded INTEGER NOT NULL,
    source TEXT,
    position INTEGER,
    received_at REAL NOT NULL
, row_checksum INTEGER, key_prefix TEXT) STRICT;
INSERT INTO "events" VALUES(1,1,'e0',0,'unit 0',1,'learner',0,NULL,NULL,0,'s',0,1700000000.25,-938159073,'ab12');
INSERT INTO "events" VALUES(2,1,'e1',0,'unit 1',1,'learner',1,NULL,NULL,0,'s',1,1700000000.25,989612397,'ab12');
INSERT INTO "events" VALUES(3,1,'e2',0,'unit 2',1,'learner',0,NULL,NULL,0,'s',2,1700000000.25,1744571879,'ab12');
INSERT INTO "events" VALUES(4,1,'e3',0,'unit 0',1,'learner',1,NULL,NULL,0,'s',3,1700000000.25,-963720431,'ab12');
INSERT INTO "events" VALUES(5,1,'e4',0,'unit 1',1,'learner',0,NULL,NULL,0,'s',4,1700000000.25,-1246403126,'ab12');
INSERT INTO "events" VALUES(6,1,'m0',1,'unit 0',1,'learner',1,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,1026321215,'ab12');
INSERT INTO "events" VALUES(7,1,'m1',1,'unit 1',1,'learner',0,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,-1291732269,'ab12');
INSERT INTO "events" VALUES(8,1,'m2',1,'unit 2',1,'learner',0,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,1160440502,'ab12');
INSERT INTO "events" VALUES(9,1,'m3',1,'unit 3',NULL,NULL,NULL,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,-1320278311,'ab12');
CREATE TABLE "latest_exposures" (
    study INTEGER NOT NULL,
    unit TEXT NOT NULL,
    version INTEGER NOT NULL,
    arm TEXT,
    candidate INTEGER,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (study, unit)
) STRICT, WITHOUT ROWID;
INSERT INTO "latest_exposures" VALUES(1,'unit 0',1,'learner',1,4);
INSERT INTO "latest_exposures" VALUES(1,'unit 1',1,'learner',0,5);
INSERT INTO "latest_exposures" VALUES(1,'unit 2',1,'learner',0,3);
CREATE TABLE layer_slices (
    study INTEGER PRIMARY KEY,
    layer TEXT NOT NULL,
    unit TEXT NOT NULL,
    start INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE "learner_states" (
    study INTEGER PRIMARY KEY,
    state TEXT NOT NULL
) STRICT;
INSERT INTO "learner_states" VALUES(1,'{}');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('schema','7');
CREATE TABLE outbox (
    id TEXT PRIMARY KEY,
    study INTEGER NOT NULL,
    webhook TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at REAL NOT NULL,
    due_at REAL NOT NULL,
    attempts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE policies (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    round INTEGER NOT NULL,
    learner_version INTEGER,
    document TEXT NOT NULL,
    checksum TEXT NOT NULL,
    after_sequence INTEGER NOT NULL,
    published_at REAL NOT NULL, row_checksum INTEGER,
    PRIMARY KEY (study, version)
) STRICT;
INSERT INTO "policies" VALUES(1,1,1,1,'{"format":1,"note":"naïve"}','73bd07691c4e5fed5480feb54fd4e55dd413b47a43f367e10e2781a57940eef6',0,1700000001.0,1454017297);
CREATE TABLE "rejections_by_key" (
    study INTEGER NOT NULL,
    key_prefix TEXT NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, key_prefix)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejections_by_key" VALUES(1,'ab12',2);
CREATE TABLE "rejections_by_reason" (
    study INTEGER NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_at REAL NOT NULL,
    PRIMARY KEY (study, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejections_by_reason" VALUES(1,'no unit','no unit',2,1700000000.25);
CREATE TABLE "rejections_by_source" (
    study INTEGER NOT NULL,
    source TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    PRIMARY KEY (study, source)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejections_by_source" VALUES(1,'s',2,6,7);
CREATE TABLE "round_closes" (
    study INTEGER NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    high_water INTEGER NOT NULL,
    record TEXT NOT NULL,
    learner_checksum TEXT NOT NULL,
    next_version INTEGER NOT NULL,
    closed_at REAL NOT NULL, row_checksum INTEGER,
    PRIMARY KEY (study, round)
) STRICT;
INSERT INTO "round_closes" VALUES(1,1,1,9,'[]','',1,1700000002.0,373370957);
CREATE TABLE "sender_counts" (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    assigned TEXT NOT NULL,
    dropped TEXT NOT NULL,
    PRIMARY KEY (study, version, source)
) STRICT, WITHOUT ROWID;
INSERT INTO "sender_counts" VALUES(1,1,'s',5,'{"a": 5}','{}');
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE studies (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    study_file TEXT NOT NULL,
    seed TEXT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    opened_at REAL NOT NULL,
    created_at REAL NOT NULL,
    details TEXT NOT NULL
) STRICT;
INSERT INTO "studies" VALUES(1,'feed',2,'learning','{"name": "feed"}','18446744073709551617',2,1,1700000000.0,1700000000.0,'{}');
CREATE INDEX audit_log_by_study ON audit_log (study, sequence);
CREATE INDEX archived_spans_by_sequence ON archived_spans (last_sequence);
CREATE INDEX outbox_by_webhook ON outbox (webhook, due_at);
CREATE INDEX layer_slices_by_layer ON layer_slices (layer, start);
COMMIT;
