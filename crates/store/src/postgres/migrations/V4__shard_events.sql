-- Events of shards, for the owner of the first one. The number holds the epoch of the shard's owner, so the rows of a
-- later owner follow those of the one before. Kept for a minute.
CREATE TABLE shard_events (
    shard   integer NOT NULL,
    number  bigint NOT NULL,
    events  text NOT NULL,
    created timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (shard, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
