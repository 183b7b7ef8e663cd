-- Which part of the shards a server is to have. A server of the release before has no weight here.
ALTER TABLE servers ADD COLUMN weight integer;
ALTER TABLE servers ADD COLUMN pins integer[] NOT NULL DEFAULT '{}';

-- A worker that goes to another shard gets a row there. Its row in the shard before stays as that of a forgotten worker
-- (state 4), so that history can name it. So a name is unique among the workers that are not forgotten.
ALTER TABLE workers DROP CONSTRAINT workers_name_key;
ALTER TABLE workers ADD CONSTRAINT workers_name_key
    EXCLUDE USING btree (name WITH =) WHERE (state <> 4) DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX workers_by_name ON workers (name);
