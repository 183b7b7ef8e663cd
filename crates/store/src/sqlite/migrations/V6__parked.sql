-- Jobs that a scheduler need not hold: nobody touched them and others of their queue and class come first.
-- `class` is a number of the core's, `rank` the priority negated, `ranked` and `ready` are times. The index has all
-- that counting needs.

ALTER TABLE jobs ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;
DROP INDEX jobs_active;
CREATE INDEX jobs_active ON jobs (parked, id) WHERE state = 0;

CREATE TABLE parked (
    job     INTEGER PRIMARY KEY,
    queue   TEXT NOT NULL,
    class   INTEGER NOT NULL,
    rank    INTEGER NOT NULL,
    ranked  INTEGER NOT NULL,
    ready   INTEGER NOT NULL,
    tasks   INTEGER NOT NULL,
    waiting INTEGER NOT NULL
);
CREATE INDEX parked_in_order ON parked (queue, class, rank, ranked, job, tasks, waiting);

-- How much is parked of each queue and class: jobs, their tasks that are ready, and those that wait.
CREATE TABLE parked_counts (
    queue   TEXT NOT NULL,
    class   INTEGER NOT NULL,
    jobs    INTEGER NOT NULL,
    tasks   INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    PRIMARY KEY (queue, class)
) WITHOUT ROWID;
