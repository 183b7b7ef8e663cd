-- What the holder of a token may do with the remote cache: `read` or `write`; null is what its role says.

ALTER TABLE tokens ADD COLUMN cache text;
