-- Bearer tokens. The secret itself is nowhere: `hash` is its SHA-256.
CREATE TABLE tokens (
    id      TEXT PRIMARY KEY,
    hash    BLOB NOT NULL,
    role    TEXT NOT NULL,
    user    TEXT NOT NULL,
    worker  TEXT,
    note    TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER
) WITHOUT ROWID;
