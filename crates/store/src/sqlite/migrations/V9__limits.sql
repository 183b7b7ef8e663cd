-- Who may submit to a queue besides administrators, as a JSON list of names; null is nobody.

ALTER TABLE queues ADD COLUMN users TEXT;

-- What each user's jobs take, counted with them: `bytes` is a job's own row and what its tasks run.

ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET bytes = length(spec) +
    (SELECT coalesce(sum(length(body)), 0) FROM bodies WHERE bodies.job = jobs.id);

CREATE TABLE user_totals (
    user  TEXT PRIMARY KEY,
    jobs  INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO user_totals SELECT user, count(*), sum(bytes) FROM jobs GROUP BY user;

CREATE TRIGGER jobs_counted AFTER INSERT ON jobs BEGIN
    INSERT INTO user_totals VALUES (NEW.user, 1, NEW.bytes)
        ON CONFLICT (user) DO UPDATE SET jobs = jobs + 1, bytes = bytes + NEW.bytes;
END;
CREATE TRIGGER jobs_discounted AFTER DELETE ON jobs BEGIN
    UPDATE user_totals SET jobs = jobs - 1, bytes = bytes - OLD.bytes WHERE user = OLD.user;
    DELETE FROM user_totals WHERE user = OLD.user AND jobs <= 0;
END;
