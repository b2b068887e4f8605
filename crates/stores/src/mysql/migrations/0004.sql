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
