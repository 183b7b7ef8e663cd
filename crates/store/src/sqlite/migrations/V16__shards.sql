-- A farm may be divided into shards, each with an engine of its own; a farm that is not divided is shard 1. Jobs and
-- workers are one shard's. Keys of `turns`, `turn_clocks`, `parked` and `parked_counts` of other shards than the first
-- begin with the number of the shard.

ALTER TABLE jobs ADD COLUMN home INTEGER NOT NULL DEFAULT 1;
ALTER TABLE workers ADD COLUMN shard INTEGER NOT NULL DEFAULT 1;

-- Messages that were not heard yet. The body is JSON.
CREATE TABLE messages (
    sender   INTEGER NOT NULL,
    receiver INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (receiver, sender, number)
) WITHOUT ROWID;

-- The last message of each pair of shards that was heard.
CREATE TABLE messages_heard (
    sender   INTEGER NOT NULL,
    receiver INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    PRIMARY KEY (receiver, sender)
) WITHOUT ROWID;

-- The tasks of a job that are with another shard than its home, or on the way there or back: pairs of first and count.
CREATE TABLE delegated (
    job   INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    tasks TEXT    NOT NULL,
    PRIMARY KEY (job, shard)
) WITHOUT ROWID;
CREATE INDEX delegated_by_shard ON delegated (shard, job);

-- The shards of a farm that is divided.
CREATE TABLE farm_shards (
    id INTEGER PRIMARY KEY
);
