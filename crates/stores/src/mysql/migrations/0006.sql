-- Triggers, devices and the like: small values with a name and a version.
CREATE TABLE IF NOT EXISTS windlass_record (
    kind    BIGINT         NOT NULL,     -- trigger 1, device 2, presence 3
    name    VARBINARY(128) NOT NULL,
    version BIGINT         NOT NULL,
    body    LONGBLOB       NOT NULL,
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB;

-- What happened to them.
CREATE TABLE IF NOT EXISTS windlass_journal (
    seq     BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind    BIGINT         NOT NULL,     -- trigger fired 1, job of a device 2, message of a device 3
    subject VARBINARY(128) NOT NULL,
    at      BIGINT         NOT NULL,
    body    LONGBLOB       NOT NULL,
    KEY by_subject (kind, subject, seq),
    KEY by_time (kind, at)
) ENGINE = InnoDB;
