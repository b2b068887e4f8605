-- The floor of locks: no deleted lock had a higher version. Without the row it is 0.
CREATE TABLE lock_floor (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    version  INTEGER NOT NULL,
    checksum INTEGER
) STRICT;
