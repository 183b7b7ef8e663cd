-- What tasks were booked with, in hundredths of a core and bytes; what is known of tasks by signature, as
-- spec.rs writes it; queues and limits as somebody set them. A task from before was booked with what
-- its step asks for.

ALTER TABLE tasks ADD COLUMN cpu INTEGER;
ALTER TABLE tasks ADD COLUMN memory INTEGER;
ALTER TABLE tasks ADD COLUMN disk INTEGER;
ALTER TABLE attempts ADD COLUMN disk INTEGER;

CREATE TABLE history (
    signature TEXT PRIMARY KEY,
    samples   TEXT NOT NULL,
    at        INTEGER NOT NULL
);
CREATE INDEX history_by_time ON history (at, signature);

CREATE TABLE queues (
    name      TEXT PRIMARY KEY,
    weight    INTEGER NOT NULL,
    quota_cpu INTEGER
) WITHOUT ROWID;

CREATE TABLE limits (
    name TEXT PRIMARY KEY,
    max  INTEGER NOT NULL
) WITHOUT ROWID;
