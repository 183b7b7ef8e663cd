-- A farm has one engine. What a divided farm had in shards is joined: jobs and workers are those of this engine, and what
-- became of tasks is in their rows, which all shards wrote to one table. What the engines had still to write of jobs was
-- written before this, by join.rs.

-- The owner's row has the number 0. Servers of the release before look for numbers from 1 on: they find no row, so they are
-- superseded, and the constraint refuses their claims. So the table keeps its name.
DELETE FROM shards WHERE id <> 0;
ALTER TABLE shards DROP CONSTRAINT IF EXISTS shards_have_one_row;
ALTER TABLE shards ADD CONSTRAINT shards_have_one_row CHECK (id = 0);

-- A worker that went to another shard left the row of a forgotten worker (state 4), which history names. An engine finds a
-- worker by its name, so these rows get names that no worker may have.
UPDATE workers SET name = name || '~' || id WHERE state = 4 AND EXISTS (SELECT 1 FROM workers AS other
    WHERE other.name = workers.name AND other.id <> workers.id AND (other.state <> 4 OR other.id > workers.id));
DROP INDEX workers_by_name;
ALTER TABLE workers DROP COLUMN shard;
ALTER TABLE jobs DROP COLUMN home;

-- Keys of other shards than the first begin with a mark and the number of the shard. Turns are the first shard's, which
-- had most of the work. Jobs stay parked.
DELETE FROM turns WHERE left(queue, 1) = chr(31);
DELETE FROM turn_clocks WHERE left(queue, 1) = chr(31);
UPDATE parked SET queue = substr(queue, strpos(substr(queue, 2), chr(31)) + 2) WHERE left(queue, 1) = chr(31);
INSERT INTO parked_counts (queue, class, jobs, tasks, waiting)
    SELECT substr(queue, strpos(substr(queue, 2), chr(31)) + 2), class, sum(jobs)::bigint, sum(tasks)::bigint,
        sum(waiting)::bigint
    FROM parked_counts WHERE left(queue, 1) = chr(31) GROUP BY 1, 2
    ON CONFLICT (queue, class) DO UPDATE SET jobs = parked_counts.jobs + excluded.jobs,
        tasks = parked_counts.tasks + excluded.tasks, waiting = parked_counts.waiting + excluded.waiting;
DELETE FROM parked_counts WHERE left(queue, 1) = chr(31);

-- Numbers of new workers follow the last one again. Requests to the owner of one shard have a colon in their kind.
DELETE FROM meta WHERE key = 'next_worker';
DELETE FROM requests WHERE strpos(kind, ':') > 0;

DROP TABLE messages, messages_heard, delegated, farm_shards, shard_events;
ALTER TABLE servers DROP COLUMN weight, DROP COLUMN pins;
