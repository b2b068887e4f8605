-- The floor of locks: no deleted lock had a higher version. Fences followed the clock before, so an older store begins a
-- day ahead of it.
CREATE TABLE windlass_lock_floor (
    one     boolean PRIMARY KEY CHECK (one),
    version bigint  NOT NULL
);
INSERT INTO windlass_lock_floor (one, version)
    SELECT true, CASE
        WHEN EXISTS (SELECT FROM windlass_task) OR EXISTS (SELECT FROM windlass_lock)
        THEN greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::int8,
                      (SELECT max(version) FROM windlass_lock)) + 24 * 3600 * 1000
        ELSE 0 END;

-- How often a session's lease was extended since the session was last heard of.
ALTER TABLE windlass_session ADD COLUMN extensions int NOT NULL DEFAULT 0;

-- A turn says when its round began from now on.
UPDATE windlass_queue SET turn = NULL;
COMMENT ON COLUMN windlass_queue.turn IS 'when the round began, 8 bytes, and the key that had its turn last';
