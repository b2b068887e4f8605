-- Triggers, devices and the like: small values with a name and a version.
CREATE TABLE record (
    kind     INTEGER NOT NULL,     -- trigger 1, device 2, presence 3
    name     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- What happened to them.
CREATE TABLE journal (
    seq      INTEGER PRIMARY KEY,
    kind     INTEGER NOT NULL,     -- trigger fired 1, job of a device 2, message of a device 3
    subject  TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    checksum INTEGER
) STRICT;
CREATE INDEX journal_by_subject ON journal (kind, subject, seq);
CREATE INDEX journal_by_time ON journal (kind, at);
