-- Bands, bursts and pauses of queues; limits of each worker, and what is done when a licence was busy, with the
-- steps that back off for one, as spec.rs writes them.

ALTER TABLE queues ADD COLUMN band INTEGER;
ALTER TABLE queues ADD COLUMN burst_cpu INTEGER;
ALTER TABLE queues ADD COLUMN paused TEXT;

CREATE TABLE limits_now (
    name        TEXT PRIMARY KEY,
    max         INTEGER,
    per_worker  INTEGER,
    busy_exits  TEXT,
    back_off_ms INTEGER
) WITHOUT ROWID;
INSERT INTO limits_now (name, max) SELECT name, max FROM limits;
DROP TABLE limits;
ALTER TABLE limits_now RENAME TO limits;

ALTER TABLE jobs ADD COLUMN back_offs TEXT;
