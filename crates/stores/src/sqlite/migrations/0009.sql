-- The floor of locks: no deleted lock had a higher version. Without the row it is 0.
CREATE TABLE lock_floor (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    version  INTEGER NOT NULL,
    checksum INTEGER
) STRICT;

-- Claims of the engine's own sessions: attempts that are offered on a broker, or run where only the broker is known. They
-- are the same after a start. Claims of workers are in memory alone: workers name what they have.
CREATE TABLE claim (
    task     BLOB    NOT NULL,    -- task.id
    act      INTEGER NOT NULL,    -- as in history
    attempt  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    session  BLOB    NOT NULL,    -- 16 bytes
    at       INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (task, act)
) STRICT, WITHOUT ROWID;
