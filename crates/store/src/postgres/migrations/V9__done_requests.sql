-- Requests of other servers that the owner has done, written in the transaction that did them. The owner that finds such a
-- request again, because its answer was lost, answers it by this row. Unlike `requests` the table survives a crash. It has no
-- command and no environment of a client.
CREATE TABLE done_requests (
    key       text COLLATE "C" PRIMARY KEY,
    answer    bytea NOT NULL,
    done_by   bigint NOT NULL,
    signature bytea NOT NULL,
    created   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX done_requests_by_time ON done_requests (created);

-- A server that has left stays for as long as those rows, because its key checks their signatures.
ALTER TABLE servers ADD COLUMN left_at timestamptz;
