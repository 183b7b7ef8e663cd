-- The schema of PostgreSQL, with the tables of the SQLite store. Times are nanoseconds since the Unix epoch, except
-- where a column is a timestamptz: those are of the database's own clock. Numbers without a sign are stored with the
-- same bits. States and ends are the codes of codes.rs, compound values the JSON of spec.rs.

CREATE TABLE meta (
    key   text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- A rename and a deletion of one batch may come in any order, so names are compared when it commits.
CREATE TABLE workers (
    id          bigint PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    epoch       bigint NOT NULL,
    incarnation bigint NOT NULL,
    draining    boolean NOT NULL,
    capacity    text NOT NULL,
    attributes  text NOT NULL,
    identity    bigint NOT NULL,
    state       smallint NOT NULL,
    lease_until bigint,
    note        text,
    UNIQUE (name) DEFERRABLE INITIALLY DEFERRED
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

CREATE TABLE jobs (
    id        bigint PRIMARY KEY,
    name      text COLLATE "C" NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    submitter text COLLATE "C" NOT NULL,
    key       text COLLATE "C",
    spec      text NOT NULL,
    created   bigint NOT NULL,
    state     smallint NOT NULL,
    stop      bigint,
    held      boolean NOT NULL DEFAULT false,
    ended     bigint,
    counts    text,
    parked    boolean NOT NULL DEFAULT false,
    back_offs text,
    done      text,
    bytes     bigint NOT NULL DEFAULT 0,
    priority  integer
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX jobs_by_key ON jobs (submitter, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_active ON jobs (parked, id) WHERE state = 0;
CREATE INDEX jobs_by_end ON jobs (ended, id) WHERE ended IS NOT NULL;
CREATE INDEX jobs_held ON jobs (id) WHERE state = 0 AND held;

CREATE TABLE bodies (
    job  bigint NOT NULL,
    step integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (job, step)
);

-- One row for each task that was ever booked. Inserting it is the compare-and-swap. Ends change no indexed column, so
-- with room in the page they touch no index.
CREATE TABLE tasks (
    job       bigint NOT NULL,
    idx       bigint NOT NULL,
    state     smallint NOT NULL,
    attempt   bigint NOT NULL,
    failures  bigint NOT NULL DEFAULT 0,
    losses    bigint NOT NULL DEFAULT 0,
    worker    bigint NOT NULL,
    epoch     bigint NOT NULL,
    booked    bigint NOT NULL,
    cpu       bigint,
    memory    bigint,
    ending    smallint,
    code      bigint,
    why       text,
    started   bigint,
    finished  bigint,
    cpu_ms    bigint,
    peak      bigint,
    out_bytes bigint,
    err_bytes bigint,
    disk      bigint,
    PRIMARY KEY (job, idx)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- Attempts that are not their task's last, and results that came too late.
CREATE TABLE attempts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job       bigint NOT NULL,
    idx       bigint NOT NULL,
    attempt   bigint NOT NULL,
    worker    bigint NOT NULL,
    epoch     bigint NOT NULL,
    late      boolean NOT NULL,
    ending    smallint NOT NULL,
    code      bigint,
    why       text,
    started   bigint,
    finished  bigint,
    cpu_ms    bigint,
    peak      bigint,
    out_bytes bigint,
    err_bytes bigint,
    disk      bigint
);
CREATE INDEX attempts_by_task ON attempts (job, idx, id);

CREATE TABLE tokens (
    id        text COLLATE "C" PRIMARY KEY,
    hash      bytea NOT NULL,
    role      text NOT NULL,
    submitter text COLLATE "C" NOT NULL,
    worker    text,
    note      text NOT NULL,
    created   bigint NOT NULL,
    expires   bigint,
    revoked   bigint
);

CREATE TABLE history (
    signature text COLLATE "C" PRIMARY KEY,
    samples   text NOT NULL,
    at        bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX history_by_time ON history (at, signature);

CREATE TABLE queues (
    name         text COLLATE "C" PRIMARY KEY,
    weight       bigint NOT NULL,
    band         bigint,
    quota_cpu    bigint,
    burst_cpu    bigint,
    paused       text,
    users        text,
    turns        boolean NOT NULL DEFAULT false,
    user_weights text
);

CREATE TABLE limits (
    name        text COLLATE "C" PRIMARY KEY,
    max         bigint,
    per_worker  bigint,
    busy_exits  text,
    back_off_ms bigint
);

-- Where queues, and users in queues, stand in their turns (WF2Q+), as in the SQLite store.
CREATE TABLE turns (
    queue     text COLLATE "C" NOT NULL,
    part      smallint NOT NULL,
    submitter text COLLATE "C" NOT NULL,
    band      bigint NOT NULL,
    start     bigint NOT NULL,
    frac      bigint NOT NULL,
    rest      bigint NOT NULL,
    weight    bigint NOT NULL,
    task      bigint NOT NULL,
    since     bigint NOT NULL,
    flags     bigint NOT NULL,
    ahead     bigint NOT NULL,
    rate      bigint NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (queue, part, submitter)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE turn_clocks (
    band       bigint NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    time       bigint NOT NULL,
    frac       bigint NOT NULL,
    express_in bigint NOT NULL,
    charge     bigint NOT NULL,
    PRIMARY KEY (band, queue)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE parked (
    job     bigint PRIMARY KEY,
    queue   text COLLATE "C" NOT NULL,
    class   bigint NOT NULL,
    rank    bigint NOT NULL,
    ranked  bigint NOT NULL,
    ready   bigint NOT NULL,
    tasks   bigint NOT NULL,
    waiting bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX parked_in_order ON parked (queue, class, rank, ranked, job) INCLUDE (tasks, waiting);

-- How much is parked of each queue and class. Every batch that parks changes these few rows.
CREATE TABLE parked_counts (
    queue   text COLLATE "C" NOT NULL,
    class   bigint NOT NULL,
    jobs    bigint NOT NULL,
    tasks   bigint NOT NULL,
    waiting bigint NOT NULL,
    PRIMARY KEY (queue, class)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE foreign_jobs (
    job  bigint PRIMARY KEY,
    open boolean NOT NULL,
    doc  text NOT NULL
);
CREATE INDEX foreign_jobs_open ON foreign_jobs (job) WHERE open;
CREATE INDEX foreign_jobs_nodes ON foreign_jobs ((job % 1000000000000));

CREATE TABLE foreign_hosts (
    name text COLLATE "C" PRIMARY KEY,
    doc  text NOT NULL
);

-- Jobs whose row is gone and whose tasks, attempts and bodies go piece by piece.
CREATE TABLE deleted (
    job bigint PRIMARY KEY
);

CREATE TABLE user_totals (
    submitter text COLLATE "C" PRIMARY KEY,
    jobs      bigint NOT NULL,
    bytes     bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE series (
    part smallint NOT NULL,
    step bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (part, step)
);

-- Servers that use this database, and when they were last heard.
CREATE TABLE servers (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text COLLATE "C" NOT NULL,
    addresses text[] NOT NULL,
    release   text NOT NULL,
    draining  boolean NOT NULL DEFAULT false,
    started   timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Who decides for which part of the farm. `epoch` rises with each owner, `batch` with each commit of an owner, and
-- `refused` has the refused writes of the last one, for an owner whose connection was lost meanwhile. Every commit
-- changes its shard's row, so the page has room for many versions of it.
CREATE TABLE shards (
    id      integer PRIMARY KEY,
    owner   bigint,
    epoch   bigint NOT NULL,
    batch   bigint NOT NULL,
    refused bigint[] NOT NULL,
    lease   interval NOT NULL,
    since   timestamptz,
    beat    timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);

-- Requests that one server has for another, and the answers.
CREATE TABLE requests (
    id       bigserial PRIMARY KEY,
    asked_by bigint NOT NULL,
    kind     text NOT NULL,
    body     bytea NOT NULL,
    created  timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered timestamptz,
    status   integer,
    answer   bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX requests_open ON requests (id) WHERE answered IS NULL;
CREATE INDEX requests_by_time ON requests (created);

-- Events for clients that are connected to servers which own nothing. Kept for a minute.
CREATE TABLE relayed_events (
    id      bigserial PRIMARY KEY,
    events  text NOT NULL,
    created timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX relayed_events_by_time ON relayed_events (created);
