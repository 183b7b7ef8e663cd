-- A job that runs on several nodes has a document for each. The first has the job's number, and those of the others are
-- apart by 10^12. They are deleted with the job.

CREATE INDEX foreign_jobs_nodes ON foreign_jobs (job % 1000000000000);
