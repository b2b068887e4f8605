-- What was submitted. Insert-only; `n` grows, so rows are appended.
CREATE TABLE task (
    n          INTEGER PRIMARY KEY,
    id         BLOB    NOT NULL,  -- the UUID in 16 bytes
    flow       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,  -- milliseconds since 1970, as all times here
    head       BLOB    NOT NULL,  -- input without its parameters
    params     TEXT    NOT NULL,
    scope      BLOB               -- of its idempotency key, where it has one
) STRICT;

-- What changes about a task that has not ended. Small: it is all that a start reads.
CREATE TABLE active (
    task  INTEGER PRIMARY KEY,    -- task.n
    last  INTEGER NOT NULL,       -- its newest row in history
    state BLOB    NOT NULL
) STRICT;

-- Tasks that have ended. The key serves both ways of asking: by id, and newest first in one status.
CREATE TABLE final (
    status   INTEGER NOT NULL,    -- 1 succeeded, 2 rolled back, 3 failed, 4 cancelled
    id       BLOB    NOT NULL,
    task     INTEGER NOT NULL,    -- task.n
    last     INTEGER NOT NULL,    -- its newest row in history
    ended_at INTEGER NOT NULL,
    state    BLOB    NOT NULL,
    PRIMARY KEY (status, id)
) STRICT, WITHOUT ROWID;

-- What happened: a row per task and commit, and the results that came with it. Insert-only and appended;
-- `previous` leads from a task's newest row back to its first.
CREATE TABLE history (
    seq      INTEGER PRIMARY KEY,
    task     INTEGER NOT NULL,    -- task.n
    previous INTEGER,
    first    INTEGER NOT NULL,    -- number of the first event
    count    INTEGER NOT NULL,    -- number of events
    act      INTEGER,             -- which act returned the result: step << 33 | member << 1 | backward
    events   BLOB,
    result   TEXT
) STRICT;

-- Idempotency keys of submits.
CREATE TABLE submit_key (
    scope       BLOB NOT NULL PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    task        BLOB NOT NULL,    -- task.id
    created_at  INTEGER NOT NULL,
    orphan      INTEGER NOT NULL  -- 1 once its task was deleted
) STRICT, WITHOUT ROWID;
CREATE INDEX submit_key_orphan ON submit_key (created_at) WHERE orphan = 1;

-- What is left of tasks that were deleted: rows of history and log lines that are still to go.
CREATE TABLE remains (
    task INTEGER PRIMARY KEY,     -- what was task.n
    id   BLOB    NOT NULL,        -- what was task.id
    last INTEGER                  -- the newest row of history that is left
) STRICT;

-- Messages between aggregates that were not consumed yet.
CREATE TABLE message (
    task BLOB    NOT NULL,        -- task.id of the sender
    n    INTEGER NOT NULL,
    data BLOB    NOT NULL,
    PRIMARY KEY (task, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE alarm (
    id        TEXT    NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL,
    task      BLOB    NOT NULL,   -- task.id
    resolved  INTEGER NOT NULL,   -- 0 or 1
    raised_at INTEGER NOT NULL,
    data      BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX alarm_by_time ON alarm (raised_at DESC, id);
CREATE INDEX alarm_open_by_time ON alarm (raised_at DESC, id) WHERE resolved = 0;
CREATE INDEX alarm_by_task ON alarm (task);

CREATE TABLE flow (
    name       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    data       BLOB    NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- Queues that are paused.
CREATE TABLE queue (
    name       TEXT    NOT NULL PRIMARY KEY,
    paused_at  INTEGER NOT NULL,
    by_name    TEXT,
    by_claimed INTEGER
) STRICT, WITHOUT ROWID;

-- Lines that attempts wrote, in the order they came.
CREATE TABLE log (
    seq     INTEGER PRIMARY KEY,
    task    BLOB    NOT NULL,     -- task.id
    act     INTEGER NOT NULL,     -- as in history
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    line    TEXT    NOT NULL
) STRICT;
CREATE INDEX log_by_task ON log (task);

-- The one row about the file itself.
CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    created_at INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,  -- how often the data was opened
    latest_at  INTEGER NOT NULL,  -- the latest time written
    token_key  BLOB    NOT NULL   -- 32 random bytes that tokens are signed with
) STRICT;
