-- A job's priority once somebody changed it; null is the one that it was submitted with. Why a worker is drained, as the
-- operator noted; null is no note.

ALTER TABLE jobs ADD COLUMN priority INTEGER;
ALTER TABLE workers ADD COLUMN note TEXT;
