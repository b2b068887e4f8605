-- Members of fanned-out steps: a row each, so that what happens to one writes no more than that, however many there
-- are. Those of a step that have begun are numbered from 1 without a gap.
CREATE TABLE member (
    task     INTEGER NOT NULL,    -- task.n
    step     INTEGER NOT NULL,    -- its place in the flow, from 0
    number   INTEGER NOT NULL,    -- from 1
    state    BLOB    NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (task, step, number)
) STRICT, WITHOUT ROWID;
