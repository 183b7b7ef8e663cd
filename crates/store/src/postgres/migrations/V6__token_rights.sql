-- What a token lets its holder do beyond its role. Tokens of earlier releases have no such right.
-- `nix`: the worker may declare that it builds for Nix. `for_users`: a JSON array of patterns of users, and `queue`: the
-- queue that a submitter submits their jobs to.

ALTER TABLE tokens ADD COLUMN nix boolean NOT NULL DEFAULT false;
ALTER TABLE tokens ADD COLUMN for_users text;
ALTER TABLE tokens ADD COLUMN queue text;
