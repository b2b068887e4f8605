-- What happened and is to be announced: it leads to the rows of history that are not announced yet.
CREATE TABLE outbox (
    id       BLOB    NOT NULL,    -- task.id
    after    INTEGER NOT NULL,    -- number of the event before those of the row
    seq      INTEGER NOT NULL,    -- history.seq
    checksum INTEGER NOT NULL,
    PRIMARY KEY (id, after)
) STRICT, WITHOUT ROWID;
