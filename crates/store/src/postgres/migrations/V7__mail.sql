-- Requests between servers have what clients sent, such as the environment of a job. They stay out of the WAL, and so out
-- of standbys and of base backups, and the body goes when the request is answered. After a crash of PostgreSQL the table
-- is empty, and servers ask again. Numbers must not begin again then, so their sequence is no longer the table's own.
ALTER SEQUENCE requests_id_seq OWNED BY NONE;
ALTER TABLE requests SET UNLOGGED;
ALTER TABLE requests ALTER COLUMN body DROP NOT NULL;
ALTER TABLE requests ADD COLUMN signature bytea;
ALTER TABLE requests SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- By this key a request of a server is known to be its own. A server of the release before has none.
ALTER TABLE servers ADD COLUMN verify_key bytea;
