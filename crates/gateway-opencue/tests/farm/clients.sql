-- Tables of OpenCue that only its clients need; the compact schema has the others.

CREATE TABLE show_stats (
    pk_show varchar(36) PRIMARY KEY, int_frame_insert_count bigint NOT NULL DEFAULT 0,
    int_job_insert_count bigint NOT NULL DEFAULT 0, int_frame_success_count bigint NOT NULL DEFAULT 0,
    int_frame_fail_count bigint NOT NULL DEFAULT 0
);
