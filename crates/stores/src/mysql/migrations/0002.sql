-- Tasks that applications enqueue in transactions of their own: rows here, which a server takes in and deletes. What
-- people read and put right by hand is text.
CREATE TABLE IF NOT EXISTS windlass_enqueued (
    seq         BIGINT     NOT NULL AUTO_INCREMENT PRIMARY KEY,  -- the order in which they are taken in
    id          BINARY(16) NOT NULL,                             -- the id that the task gets
    task        LONGTEXT   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,  -- as the body of POST /v1/tasks
    scope       BINARY(32) NULL,                                 -- of its idempotency key, where it has one
    enqueued_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    enqueued_at TIMESTAMP  NOT NULL DEFAULT CURRENT_TIMESTAMP,
    refused     TEXT       CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,  -- why it was not accepted, NULL = it waits
    refusals    INT        NOT NULL DEFAULT 0,
    stands_for  BINARY(16) NULL,                                 -- another task that is the same
    stood_for_at TIMESTAMP NULL DEFAULT NULL,                    -- since when that is said
    waits       TINYINT    GENERATED ALWAYS AS (IF(refused IS NULL AND stands_for IS NULL, 1, NULL)) STORED,
    UNIQUE KEY by_id (id),
    UNIQUE KEY by_scope (scope),
    KEY by_waits (waits, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The procedures are for users who may do nothing else with these tables, so they act with the rights of who made them.
-- Parameters are of types that nothing is cut off for: without a strict sql_mode that happens in silence.
DROP PROCEDURE IF EXISTS windlass_submit;
CREATE PROCEDURE windlass_submit(
    IN in_task LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT out_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
)
    MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE micros BIGINT DEFAULT FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000);
    DECLARE chance CHAR(64) CHARACTER SET ascii DEFAULT SHA2(CONCAT(UUID(), RAND(), CONNECTION_ID()), 256);
    DECLARE digits CHAR(32) CHARACTER SET ascii DEFAULT LOWER(CONCAT(
        LPAD(HEX(micros DIV 1000), 12, '0'),
        '7', LPAD(HEX((micros MOD 1000) * 4096 DIV 1000), 3, '0'),
        ELT(1 + CONV(LEFT(chance, 1), 16, 10) MOD 4, '8', '9', 'a', 'b'), SUBSTR(chance, 2, 15)
    ));
    DECLARE counted, idempotency_key, kept LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE hashed BINARY(32);
    DECLARE found BINARY(16);
    DECLARE message VARCHAR(128) CHARACTER SET utf8mb4;
    IF in_task IS NULL OR NOT JSON_VALID(in_task) OR JSON_TYPE(in_task) <> 'OBJECT' THEN
        SIGNAL SQLSTATE '22023'
            SET MESSAGE_TEXT = 'the task must be a JSON object as the body of POST /v1/tasks is';
    ELSEIF LENGTH(in_task) > 2097152 THEN
        SET message = CONCAT('the task has ', LENGTH(in_task), ' bytes, and may have 2 MiB');
        SIGNAL SQLSTATE '54000' SET MESSAGE_TEXT = message;
    END IF;
    SET found = UNHEX(digits);
    IF JSON_TYPE(JSON_EXTRACT(in_task, '$.key')) = 'STRING' THEN
        SET idempotency_key = JSON_UNQUOTE(JSON_EXTRACT(in_task, '$.key'));
        -- The hash under which servers keep keys.
        SET counted = COALESCE(
            SUBSTRING_INDEX(JSON_UNQUOTE(JSON_EXTRACT(in_task, '$.flow')), '@', 1), 'adhoc:');
        SET hashed = UNHEX(SHA2(CONCAT(REPEAT(x'00', 8),
            UNHEX(LPAD(HEX(LENGTH(counted)), 16, '0')), CAST(counted AS BINARY),
            UNHEX(LPAD(HEX(LENGTH(idempotency_key)), 16, '0')), CAST(idempotency_key AS BINARY)), 256));
    END IF;
    -- What was refused may be put right under its key, what is there otherwise stays as it is. Assignments are made in
    -- their order.
    INSERT INTO windlass_enqueued (id, task, scope, enqueued_by)
        VALUES (found, in_task, hashed, SUBSTRING_INDEX(USER(), '@', 1))
        ON DUPLICATE KEY UPDATE
            task = IF(refused IS NULL, task, VALUES(task)),
            enqueued_by = IF(refused IS NULL, enqueued_by, VALUES(enqueued_by)),
            refused = NULL;
    IF hashed IS NOT NULL THEN
        SELECT COALESCE(e.stands_for, e.id), e.task INTO found, kept
            FROM windlass_enqueued e WHERE e.scope = hashed FOR UPDATE;
        IF kept <> in_task THEN
            SIGNAL SQLSTATE '23000'
                SET MESSAGE_TEXT = 'the idempotency key was used for another task';
        END IF;
        -- Without a lock: where there is no such key, it would keep servers from adding keys that are near by.
        SELECT COALESCE(MAX(k.task), found) INTO found FROM windlass_submit_key k WHERE k.scope = hashed;
    END IF;
    SET digits = LOWER(HEX(found));
    SET out_id = CONCAT_WS('-', SUBSTR(digits, 1, 8), SUBSTR(digits, 9, 4), SUBSTR(digits, 13, 4),
        SUBSTR(digits, 17, 4), SUBSTR(digits, 21));
END;

DROP PROCEDURE IF EXISTS windlass_start;
CREATE PROCEDURE windlass_start(
    IN in_flow LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN in_params LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN in_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT out_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin
)
    MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    IF NOT JSON_VALID(COALESCE(in_params, '{}')) THEN
        SIGNAL SQLSTATE '22023' SET MESSAGE_TEXT = 'the parameters are no JSON';
    END IF;
    CALL windlass_submit(CONCAT('{"flow": ', COALESCE(JSON_QUOTE(in_flow), 'null'),
        ', "params": ', COALESCE(in_params, '{}'),
        IF(in_key IS NULL, '', CONCAT(', "key": ', JSON_QUOTE(in_key))), '}'), out_id);
END
