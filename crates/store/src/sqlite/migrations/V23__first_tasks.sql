-- Of a job that comes after another one task by task: the tasks that had succeeded when that one ended last, as ranges;
-- null is none.

ALTER TABLE jobs ADD COLUMN first_succeeded TEXT;
