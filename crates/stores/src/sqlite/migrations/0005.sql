-- Limits on what is handed out of queues.
CREATE TABLE limit_rule (
    name     TEXT    NOT NULL PRIMARY KEY,
    queue    TEXT    NOT NULL,    -- the module
    command  TEXT,                -- NULL = all its commands
    per_key  INTEGER NOT NULL,    -- 1: attempts of each key are counted for themselves
    running  INTEGER,             -- so many in hands at once
    starts   INTEGER,             -- so many begin
    per      INTEGER,             -- in so many milliseconds
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The newest task of a flow with a value of its `unique` key.
CREATE TABLE unique_task (
    flow     TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    task     BLOB    NOT NULL,    -- task.id
    checksum INTEGER NOT NULL,
    PRIMARY KEY (flow, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX unique_task_by_task ON unique_task (task);
