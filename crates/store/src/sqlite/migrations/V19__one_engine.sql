-- A farm has one engine. What a divided farm had in shards is joined: jobs and workers are those of this engine, and what
-- became of tasks is in their rows, which all shards wrote to one table. What the engines had still to write of jobs was
-- written before this, by join.rs.

ALTER TABLE workers DROP COLUMN shard;
ALTER TABLE jobs DROP COLUMN home;

-- Keys of other shards than the first begin with a mark and the number of the shard. Turns are the first shard's, which
-- had most of the work. Jobs stay parked.
DELETE FROM turns WHERE substr(queue, 1, 1) = char(31);
DELETE FROM turn_clocks WHERE substr(queue, 1, 1) = char(31);
UPDATE parked SET queue = substr(queue, instr(substr(queue, 2), char(31)) + 2) WHERE substr(queue, 1, 1) = char(31);
INSERT INTO parked_counts (queue, class, jobs, tasks, waiting)
    SELECT substr(queue, instr(substr(queue, 2), char(31)) + 2), class, sum(jobs), sum(tasks), sum(waiting)
    FROM parked_counts WHERE substr(queue, 1, 1) = char(31) GROUP BY 1, 2
    ON CONFLICT (queue, class) DO UPDATE SET jobs = jobs + excluded.jobs, tasks = tasks + excluded.tasks,
        waiting = waiting + excluded.waiting;
DELETE FROM parked_counts WHERE substr(queue, 1, 1) = char(31);

-- Numbers of new workers follow the last one again.
DELETE FROM meta WHERE key = 'next_worker';

DROP TABLE messages;
DROP TABLE messages_heard;
DROP TABLE delegated;
DROP TABLE farm_shards;
