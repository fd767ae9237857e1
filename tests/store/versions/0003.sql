BEGIN TRANSACTION;
CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY,
    study INTEGER NOT NULL,
    at REAL NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
INSERT INTO "audit" VALUES(1,1,1700000000.0,'ann','create','a try','{}');
INSERT INTO "audit" VALUES(2,1,1700000002.0,'bob','close','','{}');
CREATE TABLE closes (
    study INTEGER NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    high_water INTEGER NOT NULL,
    observed TEXT NOT NULL,
    learner_checksum TEXT NOT NULL,
    next_version INTEGER NOT NULL,
    closed_at REAL NOT NULL,
    PRIMARY KEY (study, round)
) STRICT;
INSERT INTO "closes" VALUES(1,1,1,9,'[]','',1,1700000002.0);
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
, key_prefix TEXT) STRICT;
INSERT INTO "events" VALUES(1,1,'e0',0,'unit 0',1,'learner',0,NULL,NULL,0,'s',0,1700000000.25,'ab12');
INSERT INTO "events" VALUES(2,1,'e1',0,'unit 1',1,'learner',1,NULL,NULL,0,'s',1,1700000000.25,'ab12');
INSERT INTO "events" VALUES(3,1,'e2',0,'unit 2',1,'learner',0,NULL,NULL,0,'s',2,1700000000.25,'ab12');
INSERT INTO "events" VALUES(4,1,'e3',0,'unit 0',1,'learner',1,NULL,NULL,0,'s',3,1700000000.25,'ab12');
INSERT INTO "events" VALUES(5,1,'e4',0,'unit 1',1,'learner',0,NULL,NULL,0,'s',4,1700000000.25,'ab12');
INSERT INTO "events" VALUES(6,1,'m0',1,'unit 0',1,'learner',1,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,'ab12');
INSERT INTO "events" VALUES(7,1,'m1',1,'unit 1',1,'learner',0,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,'ab12');
INSERT INTO "events" VALUES(8,1,'m2',1,'unit 2',1,'learner',0,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,'ab12');
INSERT INTO "events" VALUES(9,1,'m3',1,'unit 3',NULL,NULL,NULL,'like','{"value": 0.1}',0,NULL,NULL,1700000000.25,'ab12');
CREATE TABLE keys (
    prefix TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) STRICT, WITHOUT ROWID;
INSERT INTO "keys" VALUES('ab12','0000000000000000000000000000000000000000000000000000000000000000','mobile','["ingest"]',1700000000.0,NULL,NULL);
CREATE TABLE latest (
    study INTEGER NOT NULL,
    unit TEXT NOT NULL,
    version INTEGER NOT NULL,
    arm TEXT,
    candidate INTEGER,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (study, unit)
) STRICT, WITHOUT ROWID;
INSERT INTO "latest" VALUES(1,'unit 0',1,'learner',1,4);
INSERT INTO "latest" VALUES(1,'unit 1',1,'learner',0,5);
INSERT INTO "latest" VALUES(1,'unit 2',1,'learner',0,3);
CREATE TABLE learners (
    study INTEGER PRIMARY KEY,
    state TEXT NOT NULL
) STRICT;
INSERT INTO "learners" VALUES(1,'{}');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('schema','3');
CREATE TABLE policies (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    round INTEGER NOT NULL,
    learned INTEGER,
    text TEXT NOT NULL,
    checksum TEXT NOT NULL,
    after_sequence INTEGER NOT NULL,
    published_at REAL NOT NULL,
    PRIMARY KEY (study, version)
) STRICT;
INSERT INTO "policies" VALUES(1,1,1,1,'{"format":1,"note":"naïve"}','73bd07691c4e5fed5480feb54fd4e55dd413b47a43f367e10e2781a57940eef6',0,1700000001.0);
CREATE TABLE rejected_keys (
    study INTEGER NOT NULL,
    key_prefix TEXT NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (study, key_prefix)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejected_keys" VALUES(1,'ab12',2);
CREATE TABLE rejected_numbers (
    study INTEGER NOT NULL,
    source TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    PRIMARY KEY (study, source)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejected_numbers" VALUES(1,'s',2,6,7);
CREATE TABLE rejected_reasons (
    study INTEGER NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    events INTEGER NOT NULL,
    first_at REAL NOT NULL,
    PRIMARY KEY (study, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "rejected_reasons" VALUES(1,'no unit','no unit',2,1700000000.25);
CREATE TABLE studies (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL,
    seed TEXT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    opened_at REAL NOT NULL,
    created_at REAL NOT NULL,
    details TEXT NOT NULL
) STRICT;
INSERT INTO "studies" VALUES(1,'feed',2,'learning','{"name": "feed"}','18446744073709551617',2,1,1700000000.0,1700000000.0,'{}');
CREATE TABLE tallies (
    study INTEGER NOT NULL,
    version INTEGER NOT NULL,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    assigned TEXT NOT NULL,
    dropped TEXT NOT NULL,
    PRIMARY KEY (study, version, source)
) STRICT, WITHOUT ROWID;
INSERT INTO "tallies" VALUES(1,1,'s',5,'{"a": 5}','{}');
CREATE INDEX audit_of_study ON audit (study, sequence);
CREATE UNIQUE INDEX events_by_id ON events (study, id);
COMMIT;
