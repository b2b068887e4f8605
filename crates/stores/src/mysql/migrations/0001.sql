-- What Windlass keeps in a MySQL or MariaDB database. Times are milliseconds since 1970 by the database's clock.
-- Names and keys are compared byte by byte, and whatever people or workers may write is kept as bytes. There is no
-- semicolon but at the end of a statement: the statements are told apart by it.

-- A row per task: what was submitted. It never changes.
CREATE TABLE IF NOT EXISTS windlass_task (
    id         BINARY(16)     NOT NULL PRIMARY KEY,
    flow       VARBINARY(128) NOT NULL,
    version    BIGINT         NOT NULL,
    created_at BIGINT         NOT NULL,
    head       LONGBLOB       NOT NULL,  -- what was submitted, without its parameters
    params     LONGBLOB       NOT NULL,
    scope      BINARY(32)     NULL,      -- of its idempotency key, where it has one
    KEY by_flow (flow)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The state of each task, which a commit writes anew.
CREATE TABLE IF NOT EXISTS windlass_state (
    task       BINARY(16) NOT NULL PRIMARY KEY,
    events     BIGINT     NOT NULL,      -- how many it has had, which is its version
    ending     TINYINT    NULL,          -- 1 succeeded, 2 rolled back, 3 failed, 4 cancelled, NULL = it has not ended
    kept_since BIGINT     NULL,          -- of one that has ended: since when, where its flow does not say how long
    kept_until BIGINT     NULL,          -- or until when, where it does
    kept_for   BINARY(16) NULL,          -- and the task that must have ended before, whose undo may undo it as well
    state      LONGBLOB   NOT NULL,
    KEY by_ending (ending, task),
    KEY by_kept_since (kept_since),
    KEY by_kept_until (kept_until)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What tasks wait for: a row per act (or start, or deadline). A claim is some columns of it, so it goes with the row.
CREATE TABLE IF NOT EXISTS windlass_wait (
    task       BINARY(16)     NOT NULL,
    act        BIGINT         NOT NULL,  -- step << 33 | member << 1 | backward, -1 = the start, the greatest = the deadline
    attempt    BIGINT         NOT NULL,
    due_at     BIGINT         NULL,      -- when the task must be woken
    module     VARBINARY(128) NULL,      -- the queue of the ready attempt, NULL = none is ready
    command    VARBINARY(128) NULL,
    fairness   VARBINARY(512) NULL,      -- what it takes turns by: "=" and its key, or nothing
    place      BIGINT         NULL,      -- its rank in the queue
    ready_at   BIGINT         NULL,
    timeout    BIGINT         NULL,
    free       TINYINT        NULL,      -- while nobody has it it is 0 handed out, 1 parked, 2 given up
    queue      VARBINARY(128) NULL,      -- the module, while it may be handed out
    kept_back  TINYINT        NULL,      -- 1 while nobody has it and it is not handed out
    handed_out BIGINT         NULL,      -- the last attempt that a session got
    session    BINARY(16)     NULL,      -- who has it
    claim      BIGINT         NULL,      -- grows each time an attempt is handed out
    claimed_at BIGINT         NULL,
    timeout_at BIGINT         NULL,
    PRIMARY KEY (task, act),
    KEY by_queue (queue, fairness, place, task, act),
    KEY by_due (due_at),
    KEY by_timeout (timeout_at),
    KEY by_session (session),
    KEY by_kept_back (kept_back)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Where the numbers of claims come from. It is empty but for a moment: only its counter counts.
CREATE TABLE IF NOT EXISTS windlass_claim (
    n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY
) ENGINE = InnoDB;

-- Members of fanned-out steps, numbered from 1 without a gap.
CREATE TABLE IF NOT EXISTS windlass_member (
    task   BINARY(16) NOT NULL,
    step   BIGINT     NOT NULL,
    number BIGINT     NOT NULL,
    state  LONGBLOB   NOT NULL,
    PRIMARY KEY (task, step, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What acts returned.
CREATE TABLE IF NOT EXISTS windlass_result (
    task  BINARY(16) NOT NULL,
    act   BIGINT     NOT NULL,
    value LONGBLOB   NOT NULL,
    PRIMARY KEY (task, act)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What happened: a row per task and commit.
CREATE TABLE IF NOT EXISTS windlass_history (
    task   BINARY(16) NOT NULL,
    last   BIGINT     NOT NULL,          -- number of the last event in it
    events LONGBLOB   NOT NULL,
    PRIMARY KEY (task, last)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Idempotency keys of submits.
CREATE TABLE IF NOT EXISTS windlass_submit_key (
    scope       BINARY(32) NOT NULL PRIMARY KEY,
    fingerprint BINARY(32) NOT NULL,
    task        BINARY(16) NOT NULL,
    created_at  BIGINT     NOT NULL,
    orphan      TINYINT    NULL,         -- 1 once its task was deleted
    KEY by_orphan (orphan, created_at)
) ENGINE = InnoDB;

-- The newest task of a flow with a value of its `unique` key.
CREATE TABLE IF NOT EXISTS windlass_unique_task (
    flow  VARBINARY(128) NOT NULL,
    value VARBINARY(512) NOT NULL,
    task  BINARY(16)     NOT NULL,
    PRIMARY KEY (flow, value),
    KEY by_task (task)
) ENGINE = InnoDB;

-- Tasks that were deleted, and of which rows in other tables are still to go.
CREATE TABLE IF NOT EXISTS windlass_remains (
    task BINARY(16) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- Messages between aggregates that were not consumed yet. The sender is 0 and a task, or 1 and the name of a lock.
CREATE TABLE IF NOT EXISTS windlass_message (
    sender VARBINARY(160) NOT NULL,
    n      BIGINT         NOT NULL,
    data   LONGBLOB       NOT NULL,
    PRIMARY KEY (sender, n)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Locks that somebody has or waits for.
CREATE TABLE IF NOT EXISTS windlass_lock (
    name    VARBINARY(128) NOT NULL PRIMARY KEY,
    version BIGINT         NOT NULL,
    holder  LONGBLOB       NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS windlass_lock_waiter (
    name   VARBINARY(128) NOT NULL,
    place  BIGINT         NOT NULL,
    waiter LONGBLOB       NOT NULL,
    PRIMARY KEY (name, place)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS windlass_alarm (
    id        VARBINARY(255) NOT NULL PRIMARY KEY,
    version   BIGINT         NOT NULL,
    task      BINARY(16)     NOT NULL,
    resolved  TINYINT        NOT NULL,
    raised_at BIGINT         NOT NULL,
    data      LONGBLOB       NOT NULL,
    KEY by_time (raised_at, id),
    KEY open_by_time (resolved, raised_at, id),
    KEY by_task (task)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS windlass_flow (
    name       VARBINARY(128) NOT NULL,
    version    BIGINT         NOT NULL,
    created_at BIGINT         NOT NULL,
    data       LONGBLOB       NOT NULL,
    PRIMARY KEY (name, version)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Queues that hold or held something, or are paused.
CREATE TABLE IF NOT EXISTS windlass_queue (
    name       VARBINARY(128) NOT NULL PRIMARY KEY,
    used       TINYINT        NOT NULL,  -- it holds or held something
    paused_at  BIGINT         NULL,
    by_name    LONGBLOB       NULL,
    by_claimed TINYINT        NULL,
    turn       VARBINARY(512) NULL       -- the key that had its turn last, NULL = none had one
) ENGINE = InnoDB;

-- Limits on what is handed out of queues.
CREATE TABLE IF NOT EXISTS windlass_limit (
    name    VARBINARY(128) NOT NULL PRIMARY KEY,
    queue   VARBINARY(128) NOT NULL,
    command VARBINARY(128) NULL,         -- NULL = all its commands
    per_key TINYINT        NOT NULL,     -- attempts of each key are counted for themselves
    running BIGINT         NULL,         -- so many in hands at once
    starts  BIGINT         NULL,         -- so many begin
    per     BIGINT         NULL,         -- in so many milliseconds
    KEY by_queue (queue)
) ENGINE = InnoDB;

-- When attempts began that count under limits by starts.
CREATE TABLE IF NOT EXISTS windlass_begun (
    name     VARBINARY(128) NOT NULL,
    fairness VARBINARY(512) NOT NULL,    -- as in windlass_wait, nothing = the key of all
    at       BIGINT         NOT NULL,
    claim    BIGINT         NOT NULL,
    PRIMARY KEY (name, fairness, at, claim),
    KEY by_claim (claim)
) ENGINE = InnoDB;

-- Sessions of workers. Leases go by the time that all servers on the database share.
CREATE TABLE IF NOT EXISTS windlass_session (
    id             BINARY(16) NOT NULL PRIMARY KEY,
    lease_until    BIGINT     NOT NULL,
    lease          BIGINT     NOT NULL,
    lease_unpolled BIGINT     NOT NULL,
    poll           BIGINT     NOT NULL,  -- twice the number of its last poll, and one more once that is closed
    last_seen_at   BIGINT     NOT NULL,
    attached       TINYINT    NULL,      -- what it says of itself, NULL = it has said nothing yet
    name           LONGBLOB   NULL,
    host           LONGBLOB   NULL,
    program        LONGBLOB   NULL,
    modules        LONGBLOB   NULL,      -- names with a space between them
    KEY by_lease (lease_until)
) ENGINE = InnoDB;

-- Servers on this database.
CREATE TABLE IF NOT EXISTS windlass_server (
    id         BINARY(16) NOT NULL PRIMARY KEY,
    version    LONGBLOB   NOT NULL,
    address    LONGBLOB   NOT NULL,
    level      BIGINT     NOT NULL,
    started_at BIGINT     NOT NULL,
    heard_at   BIGINT     NOT NULL,
    heard      BIGINT     NOT NULL
) ENGINE = InnoDB;

-- What only one server at a time does, and which one that is.
CREATE TABLE IF NOT EXISTS windlass_service (
    name       VARBINARY(64) NOT NULL PRIMARY KEY,
    holder     BINARY(16)    NOT NULL,
    fence      BIGINT        NOT NULL,
    ends       BIGINT        NOT NULL
) ENGINE = InnoDB;

-- Lines that attempts wrote, in the order they came.
CREATE TABLE IF NOT EXISTS windlass_log (
    seq     BIGINT     NOT NULL AUTO_INCREMENT PRIMARY KEY,
    task    BINARY(16) NOT NULL,
    act     BIGINT     NOT NULL,
    attempt BIGINT     NOT NULL,
    at      BIGINT     NOT NULL,
    line    LONGBLOB   NOT NULL,
    KEY by_task (task, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The last transaction of each connection that commits: a connection that is lost while it commits is asked about here.
CREATE TABLE IF NOT EXISTS windlass_commit (
    connection BINARY(16) NOT NULL,
    n          BIGINT     NOT NULL,
    at         BIGINT     NOT NULL,
    PRIMARY KEY (connection, n),
    KEY by_time (at)
) ENGINE = InnoDB;

-- The one row about the whole.
CREATE TABLE IF NOT EXISTS windlass_meta (
    one            TINYINT    NOT NULL PRIMARY KEY,
    schema_version BIGINT     NOT NULL,  -- this many migrations were run
    readable_from  BIGINT     NOT NULL,  -- servers that know at least this version may work on it
    created_at     BIGINT     NOT NULL,
    token_key      BINARY(32) NOT NULL,  -- random bytes that tokens are signed with
    probed         BIGINT     NOT NULL   -- counted up when somebody asks whether the database writes
) ENGINE = InnoDB;
