-- How long ended tasks are kept, of the versions of flows that say so.
CREATE TABLE flow_retention (
    name     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    kept     INTEGER NOT NULL,    -- milliseconds
    checksum INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX flow_retention_by_length ON flow_retention (kept);

-- Tasks that brought their flow along, by it: whether it has any still.
CREATE INDEX task_by_adhoc_flow ON task (flow) WHERE flow GLOB 'adhoc-*';
