-- What attempts took, summed by the day (UTC, counted from the Unix epoch) on which they ended, user and queue.
CREATE TABLE day_usage (
    day    INTEGER NOT NULL,
    user   TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    cpu_ms INTEGER NOT NULL,
    tasks  INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (day, user, queue)
) WITHOUT ROWID;
