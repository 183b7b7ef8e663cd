-- Times are nanoseconds since the Unix epoch; states and ends are the codes of codes.rs.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    epoch       INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    draining    INTEGER NOT NULL,
    capacity    TEXT NOT NULL,
    attributes  TEXT NOT NULL
);

CREATE TABLE jobs (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    queue    TEXT NOT NULL,
    user     TEXT NOT NULL,
    key      TEXT,
    spec     TEXT NOT NULL,
    created  INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    stop     INTEGER,
    held     INTEGER NOT NULL DEFAULT 0,
    ended    INTEGER,
    counts   TEXT
);
CREATE UNIQUE INDEX jobs_by_key ON jobs (user, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_active ON jobs (id) WHERE state = 0;
CREATE INDEX jobs_by_end ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE bodies (
    job  INTEGER NOT NULL,
    step INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job, step)
);

-- One row for each task that was ever booked. Inserting it is the compare-and-swap.
CREATE TABLE tasks (
    job       INTEGER NOT NULL,
    idx       INTEGER NOT NULL,
    state     INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    failures  INTEGER NOT NULL DEFAULT 0,
    losses    INTEGER NOT NULL DEFAULT 0,
    worker    INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    booked    INTEGER NOT NULL,
    end       INTEGER,
    code      INTEGER,
    why       TEXT,
    started   INTEGER,
    finished  INTEGER,
    cpu_ms    INTEGER,
    peak      INTEGER,
    out_bytes INTEGER,
    err_bytes INTEGER,
    PRIMARY KEY (job, idx)
) WITHOUT ROWID;

-- Attempts that are not their task's last, and results that came too late.
CREATE TABLE attempts (
    job       INTEGER NOT NULL,
    idx       INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    worker    INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    late      INTEGER NOT NULL,
    end       INTEGER NOT NULL,
    code      INTEGER,
    why       TEXT,
    started   INTEGER,
    finished  INTEGER,
    cpu_ms    INTEGER,
    peak      INTEGER,
    out_bytes INTEGER,
    err_bytes INTEGER
);
CREATE INDEX attempts_by_task ON attempts (job, idx);
