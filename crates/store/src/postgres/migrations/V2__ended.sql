-- How many jobs ended in which state, as in the SQLite store. Every batch that ends jobs changes these three rows.
CREATE TABLE ended_totals (
    state smallint PRIMARY KEY,
    jobs  bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
INSERT INTO ended_totals SELECT state, count(*) FROM jobs WHERE state <> 0 GROUP BY state;
