-- What Windlass keeps in a PostgreSQL database. Times are milliseconds since 1970 by the database's clock.
-- Names are ASCII; whatever else people or workers may write is kept as bytes, since text cannot hold every character.

-- A row per task: what was submitted, and its state, which a commit writes anew. Indexes have only what does not
-- change until the end, so that most updates stay in their page (HOT).
CREATE TABLE windlass_task (
    id         uuid    PRIMARY KEY,
    flow       text    COLLATE "C" NOT NULL,
    version    bigint  NOT NULL,
    created_at bigint  NOT NULL,
    head       bytea   NOT NULL,     -- what was submitted, without its parameters
    params     text    NOT NULL,
    scope      bytea,                -- of its idempotency key, where it has one
    kept_for   bigint,               -- how long it is kept once it has ended, where its flow says
    top        uuid,                 -- of a child: the topmost task above it
    events     bigint  NOT NULL,     -- how many it has had: its version
    ending     smallint,             -- 1 succeeded, 2 rolled back, 3 failed, 4 cancelled; NULL = it has not ended
    ended_at   bigint,
    state      bytea   NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX windlass_task_ended ON windlass_task (ending, id) WHERE ending IS NOT NULL;
CREATE INDEX windlass_task_old ON windlass_task (ended_at) WHERE ending IS NOT NULL AND kept_for IS NULL;
CREATE INDEX windlass_task_old_by_flow ON windlass_task ((ended_at + kept_for))
    WHERE ending IS NOT NULL AND kept_for IS NOT NULL;
-- Tasks that brought their flow along, by it: whether it has any still.
CREATE INDEX windlass_task_adhoc ON windlass_task (flow) WHERE flow LIKE 'adhoc-%';

-- What tasks wait for: a row per act (or start, or deadline). A claim is some columns of it, so it goes with the row.
CREATE TABLE windlass_wait (
    task       uuid    NOT NULL,
    act        bigint  NOT NULL,     -- step << 33 | member << 1 | backward; -1 = the start, the greatest = the deadline
    attempt    bigint  NOT NULL,
    due_at     bigint,               -- when the task must be woken
    module     text    COLLATE "C",  -- the queue of the ready attempt; NULL = none is ready
    command    text    COLLATE "C",
    fairness   bytea,                -- what it takes turns by: "=" and its key, or nothing
    rank       bigint,               -- its place in the queue
    ready_at   bigint,
    timeout    bigint,
    free       smallint,             -- while nobody has it it is 0 handed out, 1 parked, 2 given up
    handed_out bigint,               -- the last attempt that a session got
    session    uuid,                 -- who has it
    claim      bigint,               -- grows each time an attempt is handed out
    claimed_at bigint,
    timeout_at bigint,
    PRIMARY KEY (task, act)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX windlass_wait_ready ON windlass_wait (module, rank, task, act) WHERE session IS NULL AND free = 0;
CREATE INDEX windlass_wait_keyed ON windlass_wait (module, fairness, rank, task, act)
    WHERE session IS NULL AND free = 0 AND fairness <> '';
CREATE INDEX windlass_wait_kept_back ON windlass_wait (task, act) WHERE session IS NULL AND free > 0;
CREATE INDEX windlass_wait_due ON windlass_wait (due_at, task, act) WHERE due_at IS NOT NULL;
CREATE INDEX windlass_wait_claimed ON windlass_wait (timeout_at, session) WHERE session IS NOT NULL;
CREATE SEQUENCE windlass_claim;

-- Members of fanned-out steps, numbered from 1 without a gap.
CREATE TABLE windlass_member (
    task   uuid    NOT NULL,
    step   bigint  NOT NULL,
    number bigint  NOT NULL,
    state  bytea   NOT NULL,
    PRIMARY KEY (task, step, number)
) WITH (fillfactor = 80);

-- What acts returned.
CREATE TABLE windlass_result (
    task  uuid   NOT NULL,
    act   bigint NOT NULL,
    value text   NOT NULL,
    PRIMARY KEY (task, act)
);

-- What happened: a row per task and commit.
CREATE TABLE windlass_history (
    task   uuid   NOT NULL,
    last   bigint NOT NULL,          -- number of the last event in it
    events bytea  NOT NULL,
    PRIMARY KEY (task, last)
);

-- Idempotency keys of submits.
CREATE TABLE windlass_submit_key (
    scope       bytea   PRIMARY KEY,
    fingerprint bytea   NOT NULL,
    task        uuid    NOT NULL,
    created_at  bigint  NOT NULL,
    orphan      boolean NOT NULL DEFAULT false  -- its task was deleted
);
CREATE INDEX windlass_submit_key_orphan ON windlass_submit_key (created_at) WHERE orphan;

-- The newest task of a flow with a value of its `unique` key.
CREATE TABLE windlass_unique_task (
    flow text  COLLATE "C" NOT NULL,
    key  bytea NOT NULL,
    task uuid  NOT NULL,
    PRIMARY KEY (flow, key)
);
CREATE INDEX windlass_unique_task_by_task ON windlass_unique_task (task);

-- Tasks that were deleted, and of which rows in other tables are still to go.
CREATE TABLE windlass_remains (
    task uuid PRIMARY KEY
);

-- Messages between aggregates that were not consumed yet. The sender is 0 and a task, or 1 and the name of a lock.
CREATE TABLE windlass_message (
    sender bytea  NOT NULL,
    n      bigint NOT NULL,
    data   bytea  NOT NULL,
    PRIMARY KEY (sender, n)
);

-- Locks that somebody has or waits for.
CREATE TABLE windlass_lock (
    name    text   COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    holder  bytea  NOT NULL
);
CREATE TABLE windlass_lock_waiter (
    name   text   COLLATE "C" NOT NULL,
    place  bigint NOT NULL,
    waiter bytea  NOT NULL,
    PRIMARY KEY (name, place)
);

CREATE TABLE windlass_alarm (
    id        text    COLLATE "C" PRIMARY KEY,
    version   bigint  NOT NULL,
    task      uuid    NOT NULL,
    resolved  boolean NOT NULL,
    raised_at bigint  NOT NULL,
    data      bytea   NOT NULL
);
CREATE INDEX windlass_alarm_by_time ON windlass_alarm (raised_at DESC, id);
CREATE INDEX windlass_alarm_open_by_time ON windlass_alarm (raised_at DESC, id) WHERE NOT resolved;
CREATE INDEX windlass_alarm_by_task ON windlass_alarm (task);

CREATE TABLE windlass_flow (
    name       text   COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    data       bytea  NOT NULL,
    PRIMARY KEY (name, version)
);

-- Queues that hold or held something, or are paused.
CREATE TABLE windlass_queue (
    name       text    COLLATE "C" PRIMARY KEY,
    used       boolean NOT NULL,     -- it holds or held something
    paused_at  bigint,
    by_name    bytea,
    by_claimed boolean,
    turn       bytea                 -- the key that had its turn last; NULL = none had one
);

-- Limits on what is handed out of queues.
CREATE TABLE windlass_limit (
    name    text    COLLATE "C" PRIMARY KEY,
    queue   text    COLLATE "C" NOT NULL,
    command text    COLLATE "C",     -- NULL = all its commands
    per_key boolean NOT NULL,        -- attempts of each key are counted for themselves
    running bigint,                  -- so many in hands at once
    starts  bigint,                  -- so many begin
    per     bigint                   -- in so many milliseconds
);
CREATE INDEX windlass_limit_by_queue ON windlass_limit (queue);

-- When attempts began that count under limits by starts.
CREATE TABLE windlass_begun (
    name  text   COLLATE "C" NOT NULL,
    key   bytea  NOT NULL,           -- as in windlass_wait; nothing = the key of all
    at    bigint NOT NULL,
    claim bigint NOT NULL,
    PRIMARY KEY (name, key, at, claim)
);
CREATE INDEX windlass_begun_by_claim ON windlass_begun (claim);

-- Sessions of workers. Leases go by the time that all servers on the database share.
CREATE TABLE windlass_session (
    id             uuid    PRIMARY KEY,
    lease_until    bigint  NOT NULL,
    lease          bigint  NOT NULL,
    lease_unpolled bigint  NOT NULL,
    poll           bigint  NOT NULL,   -- twice the number of its last poll, and one more once that is closed
    last_seen_at   bigint  NOT NULL,
    attached       boolean,            -- what it said of itself; NULL = nothing yet
    name           bytea,
    host           bytea,
    program        bytea,              -- its version
    modules        text    COLLATE "C" -- with a space between them
) WITH (fillfactor = 50);

-- Servers on this database.
CREATE TABLE windlass_server (
    id         uuid   PRIMARY KEY,
    version    text   NOT NULL,
    address    text   NOT NULL,
    level      bigint NOT NULL,
    started_at bigint NOT NULL,
    heard_at   bigint NOT NULL,
    heard      bigint NOT NULL
) WITH (fillfactor = 50);

-- What only one server at a time does, and which one that is.
CREATE TABLE windlass_service (
    name   text   COLLATE "C" PRIMARY KEY,
    holder uuid   NOT NULL,
    fence  bigint NOT NULL,
    until  bigint NOT NULL
) WITH (fillfactor = 50);

-- Lines that attempts wrote, in the order they came.
CREATE TABLE windlass_log (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task    uuid   NOT NULL,
    act     bigint NOT NULL,
    attempt bigint NOT NULL,
    at      bigint NOT NULL,
    line    bytea  NOT NULL
);
CREATE INDEX windlass_log_by_task ON windlass_log (task, seq);

-- The one row about the whole.
CREATE TABLE windlass_meta (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema_version integer NOT NULL,  -- this many migrations were run
    readable_from  integer NOT NULL,  -- servers that know at least this version may work on it
    created_at     bigint  NOT NULL,
    token_key      bytea   NOT NULL,  -- 32 random bytes that tokens are signed with
    probed         bigint  NOT NULL   -- counted up when somebody asks whether the database writes
);
