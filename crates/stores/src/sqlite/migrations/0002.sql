-- Tasks that have not ended and that nothing will wake soon. A start does not read them. A task is in one of
-- `active`, `resting` and `final`.
CREATE TABLE resting (
    id               BLOB    NOT NULL PRIMARY KEY,  -- task.id
    task             INTEGER NOT NULL,              -- task.n
    last             INTEGER NOT NULL,              -- its newest row in history
    wake_at          INTEGER,                       -- when it must be woken; NULL = it waits for a person
    never_handed_out INTEGER NOT NULL,              -- 1: no current attempt of it was ever handed out
    state            BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX resting_by_wake ON resting (wake_at, id);
