-- Locks that somebody has or waits for; others are not kept. A start reads them all.
CREATE TABLE lock (
    name     TEXT    NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    holder   BLOB    NOT NULL,    -- who has it, if anybody does
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who waits for them, by their places: a row each, so that a change costs the same however many wait.
CREATE TABLE lock_waiter (
    name     TEXT    NOT NULL,
    place    INTEGER NOT NULL,
    waiter   BLOB    NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (name, place)
) STRICT, WITHOUT ROWID;

-- The sender of a message (message.task) is a task, by the 16 bytes of its id, or a lock: 16 bytes of zeros and its
-- name.
