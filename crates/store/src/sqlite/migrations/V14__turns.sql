-- Where queues and users stand in their turns (WF2Q+), so that a server that starts goes on where the one before it was.
-- A queue without a row starts at the clock of its band.

CREATE TABLE turns (
    queue  TEXT    NOT NULL,
    part   INTEGER NOT NULL, -- 0 is the queue itself, 1 a user's part of it
    user   TEXT    NOT NULL, -- whose part; empty of the queue itself
    band   INTEGER NOT NULL,
    start  INTEGER NOT NULL, -- the start tag: whole units of charge over weight
    frac   INTEGER NOT NULL, -- and what is less than one, in units of 2^-56
    rest   INTEGER NOT NULL, -- and what was charged beyond, less than the weight
    weight INTEGER NOT NULL,
    task   INTEGER NOT NULL,
    since  INTEGER NOT NULL,
    flags  INTEGER NOT NULL, -- 1 it waits, 2 it was passed over, 4 its first task may go out of turn
    ahead  INTEGER NOT NULL,
    rate   INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (queue, part, user)
) WITHOUT ROWID;

CREATE TABLE turn_clocks (
    band       INTEGER NOT NULL, -- -1 is the clock of a queue's users
    queue      TEXT    NOT NULL, -- empty of a band
    time       INTEGER NOT NULL, -- whole units of charge over weight
    frac       INTEGER NOT NULL,
    express_in INTEGER NOT NULL,
    charge     INTEGER NOT NULL, -- 0 is time, 1 tasks
    PRIMARY KEY (band, queue)
) WITHOUT ROWID;
