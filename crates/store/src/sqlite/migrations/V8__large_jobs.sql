-- Jobs whose row is gone and whose tasks, attempts and bodies go piece by piece. Of a large job, ranges of tasks
-- that succeeded, as spec.rs writes them: their rows need not be read to know that.

CREATE TABLE deleted (
    job INTEGER PRIMARY KEY
);

ALTER TABLE jobs ADD COLUMN done TEXT;
