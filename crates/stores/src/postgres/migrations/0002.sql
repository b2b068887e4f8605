-- Tasks that applications enqueue in transactions of their own: rows here, which a server takes in and deletes.
CREATE TABLE windlass_enqueued (
    seq         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order in which they are taken in
    id          uuid        NOT NULL UNIQUE,  -- the id that the task gets
    task        jsonb       NOT NULL,         -- as the body of POST /v1/tasks
    scope       bytea       UNIQUE,           -- of its idempotency key, where it has one
    enqueued_by text        NOT NULL,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused     text,                         -- why it was not accepted; NULL = it waits to be taken in
    refusals    integer     NOT NULL DEFAULT 0,
    stands_for  uuid,                         -- another task that is the same and stands for it
    stood_for_at timestamptz                  -- since when that is said
);
CREATE INDEX windlass_enqueued_waiting ON windlass_enqueued (seq) WHERE refused IS NULL AND stands_for IS NULL;
CREATE INDEX windlass_enqueued_old ON windlass_enqueued (stood_for_at) WHERE stands_for IS NOT NULL;

-- The functions are for roles that may do nothing else with these tables, so they act with their owner's rights, and find
-- tables in this schema only, whatever the caller has set.
DO $migration$
BEGIN
    EXECUTE format($function$
        CREATE FUNCTION windlass_submit(task jsonb) RETURNS uuid
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp AS $body$
        #variable_conflict use_column
        DECLARE
            micros  bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
            steps   integer := (micros %% 1000) * 4096 / 1000;
            bytes   bytea := uuid_send(gen_random_uuid());
            counted text := coalesce(split_part(windlass_submit.task ->> 'flow', '@', 1), 'adhoc:');
            key     text := windlass_submit.task ->> 'key';
            hashed  bytea;
            earlier uuid;
            made    uuid;
        BEGIN
            IF windlass_submit.task IS NULL OR jsonb_typeof(windlass_submit.task) <> 'object' THEN
                RAISE EXCEPTION 'the task must be a JSON object as the body of POST /v1/tasks is'
                    USING ERRCODE = 'invalid_parameter_value';
            ELSIF octet_length(windlass_submit.task::text) > 2097152 THEN
                RAISE EXCEPTION 'the task has %% bytes, and may have 2 MiB', octet_length(windlass_submit.task::text)
                    USING ERRCODE = 'program_limit_exceeded';
            END IF;
            -- A UUID of version 7: milliseconds, then 12 bits of where in the millisecond, then chance.
            bytes := overlay(bytes PLACING substring(int8send(micros / 1000) FROM 3) FROM 1 FOR 6);
            bytes := set_byte(set_byte(bytes, 6, 112 | (steps >> 8)), 7, steps & 255);
            IF key IS NOT NULL THEN
                -- The hash under which servers keep keys.
                hashed := sha256(int8send(0)
                    || int8send(octet_length(counted)) || convert_to(counted, 'UTF8')
                    || int8send(octet_length(key)) || convert_to(key, 'UTF8'));
            END IF;
            -- What was refused may be put right under its key. What is there otherwise stays as it is.
            INSERT INTO windlass_enqueued AS e (id, task, scope, enqueued_by)
                VALUES (encode(bytes, 'hex')::uuid, windlass_submit.task, hashed, session_user)
                ON CONFLICT (scope) DO UPDATE SET task = EXCLUDED.task, refused = NULL,
                    enqueued_by = CASE WHEN e.refused IS NULL THEN e.enqueued_by ELSE EXCLUDED.enqueued_by END
                WHERE e.refused IS NOT NULL OR e.task = EXCLUDED.task
                RETURNING coalesce(e.stands_for, e.id) INTO made;
            IF made IS NULL THEN
                RAISE EXCEPTION 'the idempotency key %% was used for another task', key
                    USING ERRCODE = 'unique_violation', HINT = 'Use a new key for each task.';
            END IF;
            -- After the row, which waits for others with this key: what a server has taken in until then is seen here.
            SELECT k.task INTO earlier FROM windlass_submit_key k WHERE k.scope = hashed;
            PERFORM pg_notify('windlass_enqueued', '');
            RETURN coalesce(earlier, made);
        END
        $body$
    $function$, current_schema());
    EXECUTE format($function$
        CREATE FUNCTION windlass_start(flow text, params jsonb DEFAULT '{}', key text DEFAULT NULL) RETURNS uuid
        LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp AS $body$
            SELECT windlass_submit(jsonb_build_object('flow', flow, 'params', coalesce(params, '{}'))
                || CASE WHEN key IS NULL THEN '{}' ELSE jsonb_build_object('key', key) END)
        $body$
    $function$, current_schema());
END
$migration$;
REVOKE ALL ON FUNCTION windlass_submit, windlass_start FROM PUBLIC;
