-- The floor of locks: no deleted lock had a higher version. Fences followed the clock before, so an older store begins a
-- day ahead of it.
CREATE TABLE IF NOT EXISTS windlass_lock_floor (
    one     TINYINT NOT NULL PRIMARY KEY,
    version BIGINT  NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO windlass_lock_floor (one, version)
    SELECT 1, IF(
        EXISTS (SELECT 1 FROM windlass_task) OR EXISTS (SELECT 1 FROM windlass_lock),
        GREATEST(FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000),
                 (SELECT COALESCE(MAX(version), 0) FROM windlass_lock)) + 24 * 3600 * 1000,
        0);

-- How often a session's lease was extended since the session was last heard of. MySQL has no ADD COLUMN IF NOT EXISTS.
SET @windlass_step = IF(
    EXISTS (SELECT 1 FROM information_schema.columns
            WHERE table_schema = database() AND table_name = 'windlass_session' AND column_name = 'extensions'),
    'DO 0',
    'ALTER TABLE windlass_session ADD COLUMN extensions INT NOT NULL DEFAULT 0');
PREPARE windlass_step FROM @windlass_step;
EXECUTE windlass_step;
DEALLOCATE PREPARE windlass_step;

-- A turn says when its round began from now on: 8 bytes before the key that had its turn last.
UPDATE windlass_queue SET turn = NULL;
ALTER TABLE windlass_queue MODIFY turn VARBINARY(520) NULL;
