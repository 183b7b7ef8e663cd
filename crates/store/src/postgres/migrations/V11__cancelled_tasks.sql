-- Tasks that requests cancelled and that were not retried since, as ranges; null is none. When an earlier attempt was
-- booked; null of one from before this was kept, and of a result that came too late.

ALTER TABLE jobs ADD COLUMN cancels text;
ALTER TABLE attempts ADD COLUMN booked bigint;
