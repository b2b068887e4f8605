-- A checksum in every row, of all its columns: see checksum.rs. Rows from before have none until they are written anew.
ALTER TABLE task ADD COLUMN checksum INTEGER;
ALTER TABLE active ADD COLUMN checksum INTEGER;
ALTER TABLE resting ADD COLUMN checksum INTEGER;
ALTER TABLE final ADD COLUMN checksum INTEGER;
ALTER TABLE history ADD COLUMN checksum INTEGER;
ALTER TABLE submit_key ADD COLUMN checksum INTEGER;
ALTER TABLE message ADD COLUMN checksum INTEGER;
ALTER TABLE alarm ADD COLUMN checksum INTEGER;
ALTER TABLE flow ADD COLUMN checksum INTEGER;
ALTER TABLE queue ADD COLUMN checksum INTEGER;
ALTER TABLE line ADD COLUMN checksum INTEGER;
ALTER TABLE log ADD COLUMN checksum INTEGER;
-- Up to this task.n rows may have none; 0 in a store that was made with this format.
ALTER TABLE meta ADD COLUMN unchecked_to INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN checksum INTEGER;
UPDATE meta SET unchecked_to = max(1, (SELECT coalesce(max(n), 0) FROM task),
                                   (SELECT coalesce(max(task), 0) FROM remains));
