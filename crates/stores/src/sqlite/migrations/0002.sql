-- Tasks that have not ended and that nothing will wake soon, or whose turn comes later. A start does not read them.
-- A task is in one of `active`, `resting` and `final`.
CREATE TABLE resting (
    id               BLOB    NOT NULL PRIMARY KEY,  -- task.id
    task             INTEGER NOT NULL,              -- task.n
    last             INTEGER NOT NULL,              -- its newest row in history
    wake_at          INTEGER,                       -- when it must be woken; NULL = by what is said of it else
    never_handed_out INTEGER NOT NULL,              -- 1: no current attempt of it was ever handed out
    module           TEXT,                          -- the line in which its ready attempt stands,
    command          TEXT,
    rank             INTEGER,                       -- and where; NULL = nothing is ready of it
    state            BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX resting_by_wake ON resting (wake_at, id);
CREATE INDEX resting_by_line ON resting (module, command, rank, id) WHERE module IS NOT NULL;

-- Lines of which tasks rest: up to this place they are in memory, and may have been handed out.
CREATE TABLE line (
    module  TEXT    NOT NULL,
    command TEXT    NOT NULL,
    rank    INTEGER NOT NULL,
    id      BLOB    NOT NULL,
    PRIMARY KEY (module, command)
) STRICT, WITHOUT ROWID;
