-- Notices that are owed: who gets it, what it says, and since when it is owed. A number is never given again, because the
-- server reads on from the last one that it has seen.
CREATE TABLE notices (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    job    INTEGER,
    user   TEXT    NOT NULL,
    target TEXT    NOT NULL,
    body   TEXT    NOT NULL,
    at     INTEGER NOT NULL
);
