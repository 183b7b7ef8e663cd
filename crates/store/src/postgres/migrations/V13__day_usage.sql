-- What attempts took, summed by the day (UTC, counted from the Unix epoch) on which they ended, user and queue. Rows
-- change with each commit, so pages keep room for their new versions.
CREATE TABLE day_usage (
    day       bigint NOT NULL,
    submitter text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    cpu_ms    bigint NOT NULL,
    tasks     bigint NOT NULL,
    failed    bigint NOT NULL,
    PRIMARY KEY (day, submitter, queue)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
