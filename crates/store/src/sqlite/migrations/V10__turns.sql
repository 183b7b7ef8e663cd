-- Who takes turns inside a queue: 0 is its users, 1 nobody. The weights of its users as a JSON object; null is none.

ALTER TABLE queues ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN user_weights TEXT;
