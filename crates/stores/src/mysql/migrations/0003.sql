-- What happened and is to be announced: it leads to the rows of history that are not announced yet.
CREATE TABLE IF NOT EXISTS windlass_outbox (
    task  BINARY(16) NOT NULL,
    after BIGINT     NOT NULL,           -- number of the event before those of the row
    last  BIGINT     NOT NULL,           -- of the row in windlass_history
    PRIMARY KEY (task, after)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
