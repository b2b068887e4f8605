-- What happened and is to be announced: it leads to the rows of history that are not announced yet.
CREATE TABLE windlass_outbox (
    task  uuid   NOT NULL,
    after bigint NOT NULL,           -- number of the event before those of the row
    last  bigint NOT NULL,           -- of the row in windlass_history
    PRIMARY KEY (task, after)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
