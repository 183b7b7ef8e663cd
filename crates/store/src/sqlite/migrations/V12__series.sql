-- Series of the farm over time as the server writes them, a blob for each part and step; see the server's figures.

CREATE TABLE series (
    part INTEGER NOT NULL,
    step INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (part, step)
);
