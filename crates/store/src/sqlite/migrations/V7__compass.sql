-- Jobs that hosts of another system run, as that system tells of them, and its hosts, as JSON of the server's. `open` is
-- set while something of the job may still change.

CREATE TABLE foreign_jobs (
    job  INTEGER PRIMARY KEY,
    open INTEGER NOT NULL,
    doc  TEXT NOT NULL
);
CREATE INDEX foreign_jobs_open ON foreign_jobs (job) WHERE open = 1;

CREATE TABLE foreign_hosts (
    name TEXT PRIMARY KEY,
    doc  TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX jobs_held ON jobs (id) WHERE state = 0 AND held = 1;
