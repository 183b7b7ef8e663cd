-- States are the codes of codes.rs. Workers from before have no lease, and no number of their machine's.

ALTER TABLE workers ADD COLUMN identity INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN state INTEGER NOT NULL DEFAULT 2;
ALTER TABLE workers ADD COLUMN lease_until INTEGER;
