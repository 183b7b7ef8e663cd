-- A farm may be divided into shards, each with an engine of its own; a farm that is not divided is shard 1. Jobs and
-- workers are one shard's. Keys of `turns`, `turn_clocks`, `parked` and `parked_counts` of other shards than the first
-- begin with the number of the shard, so servers of the release before go on while this runs.

ALTER TABLE jobs ADD COLUMN home integer NOT NULL DEFAULT 1;
ALTER TABLE workers ADD COLUMN shard integer NOT NULL DEFAULT 1;

-- Messages that were not heard yet. The body is JSON. Rows come and go, so the table stays small only if it is vacuumed.
CREATE TABLE messages (
    sender   integer NOT NULL,
    receiver integer NOT NULL,
    number   bigint NOT NULL,
    body     text NOT NULL,
    PRIMARY KEY (receiver, sender, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The last message of each pair of shards that was heard.
CREATE TABLE messages_heard (
    sender   integer NOT NULL,
    receiver integer NOT NULL,
    number   bigint NOT NULL,
    PRIMARY KEY (receiver, sender)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- The tasks of a job that are with another shard than its home, or on the way there or back: pairs of first and count.
CREATE TABLE delegated (
    job   bigint NOT NULL,
    shard integer NOT NULL,
    tasks text NOT NULL,
    PRIMARY KEY (job, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX delegated_by_shard ON delegated (shard, job);

-- The shards of a farm that is divided.
CREATE TABLE farm_shards (
    id integer PRIMARY KEY
);
