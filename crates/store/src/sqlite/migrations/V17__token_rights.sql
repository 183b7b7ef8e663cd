-- What a token lets its holder do beyond its role. Tokens of earlier releases have no such right.
-- `serves`: a JSON array of the systems whose clients the worker may serve. `for_users`: a JSON array of patterns of users, and `queue`: the
-- queue that a submitter submits their jobs to.

ALTER TABLE tokens ADD COLUMN serves TEXT;
ALTER TABLE tokens ADD COLUMN for_users TEXT;
ALTER TABLE tokens ADD COLUMN queue TEXT;
