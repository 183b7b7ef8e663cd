-- Whether steps of the queue that say nothing of a jobserver have one; null: those of builds have.

ALTER TABLE queues ADD COLUMN jobserver boolean;
