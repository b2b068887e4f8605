-- Triggers, devices and the like: small values with a name and a version.
CREATE TABLE windlass_record (
    kind    bigint NOT NULL,               -- trigger 1, device 2, presence 3
    name    text   COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What happened to them.
CREATE TABLE windlass_journal (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    bigint NOT NULL,               -- trigger fired 1, job of a device 2, message of a device 3
    subject text   COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    body    bytea  NOT NULL
);
CREATE INDEX windlass_journal_by_subject ON windlass_journal (kind, subject, seq);
CREATE INDEX windlass_journal_by_time ON windlass_journal (kind, at);
