-- How many jobs ended in which state. The triggers count with the rows of the jobs, as those of user_totals do.

CREATE TABLE ended_totals (
    state INTEGER PRIMARY KEY,
    jobs  INTEGER NOT NULL
);
INSERT INTO ended_totals SELECT state, count(*) FROM jobs WHERE state <> 0 GROUP BY state;

CREATE TRIGGER ends_counted AFTER UPDATE OF state ON jobs WHEN NEW.state <> OLD.state BEGIN
    INSERT INTO ended_totals SELECT NEW.state, 1 WHERE NEW.state <> 0
        ON CONFLICT (state) DO UPDATE SET jobs = jobs + 1;
    UPDATE ended_totals SET jobs = jobs - 1 WHERE state = OLD.state;
END;
-- Jobs that are copied from another store may have ended there.
CREATE TRIGGER ended_jobs_counted AFTER INSERT ON jobs WHEN NEW.state <> 0 BEGIN
    INSERT INTO ended_totals VALUES (NEW.state, 1) ON CONFLICT (state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER ended_jobs_discounted AFTER DELETE ON jobs WHEN OLD.state <> 0 BEGIN
    UPDATE ended_totals SET jobs = jobs - 1 WHERE state = OLD.state;
END;
