-- The tables of OpenCue that are used here: names, types and defaults as its clients and schedulers know them.
-- The triggers below them do what OpenCue's do for these columns.

CREATE TABLE config (
    pk_config varchar(36) PRIMARY KEY, str_key varchar(36) NOT NULL, int_value bigint DEFAULT 0,
    long_value bigint DEFAULT 0, str_value varchar(255) DEFAULT '', b_value boolean DEFAULT false
);

CREATE TABLE facility (
    pk_facility varchar(36) PRIMARY KEY, str_name varchar(36) NOT NULL, b_default boolean NOT NULL DEFAULT false
);

CREATE TABLE dept (
    pk_dept varchar(36) PRIMARY KEY, str_name varchar(36) NOT NULL, b_default boolean NOT NULL DEFAULT false
);

CREATE TABLE show (
    pk_show varchar(36) PRIMARY KEY, str_name varchar(512) NOT NULL, b_paused boolean NOT NULL DEFAULT false,
    int_default_min_cores integer NOT NULL DEFAULT 100, int_default_max_cores integer NOT NULL DEFAULT 10000,
    b_booking_enabled boolean NOT NULL DEFAULT true, b_dispatch_enabled boolean NOT NULL DEFAULT true,
    b_active boolean NOT NULL DEFAULT true, str_comment_email varchar(1024),
    int_default_min_gpus integer NOT NULL DEFAULT 100, int_default_max_gpus integer NOT NULL DEFAULT 100000,
    b_scheduler_managed boolean NOT NULL DEFAULT false, UNIQUE (str_name)
);

CREATE TABLE show_stats (
    pk_show varchar(36) PRIMARY KEY, int_frame_insert_count bigint NOT NULL DEFAULT 0,
    int_job_insert_count bigint NOT NULL DEFAULT 0, int_frame_success_count bigint NOT NULL DEFAULT 0,
    int_frame_fail_count bigint NOT NULL DEFAULT 0
);

CREATE TABLE alloc (
    pk_alloc varchar(36) PRIMARY KEY, str_name varchar(36) NOT NULL, b_allow_edit boolean NOT NULL DEFAULT true,
    b_default boolean NOT NULL DEFAULT false, str_tag varchar(24), b_billable boolean NOT NULL DEFAULT true,
    pk_facility varchar(36) NOT NULL, b_enabled boolean DEFAULT true, UNIQUE (str_name)
);

CREATE TABLE subscription (
    pk_subscription varchar(36) PRIMARY KEY, pk_alloc varchar(36) NOT NULL, pk_show varchar(36) NOT NULL,
    int_size bigint NOT NULL DEFAULT 0, int_burst bigint NOT NULL DEFAULT 0, int_cores integer NOT NULL DEFAULT 0,
    float_tier numeric NOT NULL DEFAULT 0, int_gpus integer NOT NULL DEFAULT 0, UNIQUE (pk_show, pk_alloc)
);

CREATE TABLE folder (
    pk_folder varchar(36) PRIMARY KEY, pk_parent_folder varchar(36), pk_show varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL, int_priority bigint NOT NULL DEFAULT 1, b_default boolean NOT NULL DEFAULT false,
    pk_dept varchar(36) NOT NULL, int_job_min_cores integer NOT NULL DEFAULT '-1'::integer,
    int_job_max_cores integer NOT NULL DEFAULT '-1'::integer,
    int_job_priority integer NOT NULL DEFAULT '-1'::integer, int_min_cores integer NOT NULL DEFAULT 0,
    int_max_cores integer NOT NULL DEFAULT '-1'::integer, b_exclude_managed boolean NOT NULL DEFAULT false,
    f_order integer NOT NULL DEFAULT 0, int_job_min_gpus integer NOT NULL DEFAULT '-1'::integer,
    int_job_max_gpus integer NOT NULL DEFAULT '-1'::integer, int_min_gpus integer NOT NULL DEFAULT 0,
    int_max_gpus integer NOT NULL DEFAULT '-1'::integer
);

CREATE TABLE folder_resource (
    pk_folder_resource varchar(36) PRIMARY KEY, pk_folder varchar(36) NOT NULL,
    int_cores integer NOT NULL DEFAULT 0, int_max_cores integer NOT NULL DEFAULT '-1'::integer,
    int_min_cores integer NOT NULL DEFAULT 0, float_tier numeric NOT NULL DEFAULT 0,
    int_gpus integer NOT NULL DEFAULT 0, int_max_gpus integer NOT NULL DEFAULT '-1'::integer,
    int_min_gpus integer NOT NULL DEFAULT 0
);

CREATE TABLE folder_level (
    pk_folder_level varchar(36) PRIMARY KEY, pk_folder varchar(36) NOT NULL, int_level bigint NOT NULL DEFAULT 0
);

CREATE TABLE point (
    pk_point varchar(36) PRIMARY KEY, pk_dept varchar(36) NOT NULL, pk_show varchar(36) NOT NULL,
    str_ti_task varchar(36), int_cores integer NOT NULL DEFAULT 0, b_managed boolean NOT NULL DEFAULT false,
    int_min_cores integer NOT NULL DEFAULT 0, float_tier numeric NOT NULL DEFAULT 0,
    ts_updated timestamptz NOT NULL DEFAULT current_timestamp, int_gpus integer NOT NULL DEFAULT 0,
    int_min_gpus integer NOT NULL DEFAULT 0
);

CREATE TABLE host (
    pk_host varchar(36) PRIMARY KEY, pk_alloc varchar(36) NOT NULL, str_name varchar(45) NOT NULL,
    str_lock_state varchar(36) NOT NULL, b_nimby boolean NOT NULL DEFAULT false,
    ts_created timestamp NOT NULL DEFAULT current_timestamp, int_cores bigint NOT NULL DEFAULT 0,
    int_procs bigint NOT NULL DEFAULT 0, int_cores_idle bigint NOT NULL DEFAULT 0,
    int_mem bigint NOT NULL DEFAULT 0, int_mem_idle bigint NOT NULL DEFAULT 0,
    b_unlock_boot boolean NOT NULL DEFAULT false, b_unlock_idle boolean NOT NULL DEFAULT false,
    b_reboot_idle boolean NOT NULL DEFAULT false, str_tags varchar(128), str_fqdn varchar(128),
    b_comment boolean NOT NULL DEFAULT false, int_thread_mode integer NOT NULL DEFAULT 0,
    str_lock_source varchar(128), int_gpu_mem bigint NOT NULL DEFAULT 0, int_gpu_mem_idle bigint NOT NULL DEFAULT 0,
    int_gpus bigint NOT NULL DEFAULT 0, int_gpus_idle bigint NOT NULL DEFAULT 0, UNIQUE (str_name)
);

CREATE TABLE host_stat (
    pk_host_stat varchar(36) PRIMARY KEY, pk_host varchar(36) NOT NULL, int_mem_total bigint NOT NULL DEFAULT 0,
    int_mem_free bigint NOT NULL DEFAULT 0, int_swap_total bigint NOT NULL DEFAULT 0,
    int_swap_free bigint NOT NULL DEFAULT 0, int_mcp_total bigint NOT NULL DEFAULT 0,
    int_mcp_free bigint NOT NULL DEFAULT 0, int_load bigint NOT NULL DEFAULT 0,
    ts_ping timestamptz NOT NULL DEFAULT current_timestamp,
    ts_booted timestamptz NOT NULL DEFAULT current_timestamp, str_state varchar(32) NOT NULL DEFAULT 'UP',
    str_os varchar(32) NOT NULL DEFAULT 'rhel40', int_gpu_mem_total bigint NOT NULL DEFAULT 0,
    int_gpu_mem_free bigint NOT NULL DEFAULT 0
);

CREATE TABLE host_tag (
    pk_host_tag varchar(36) PRIMARY KEY, pk_host varchar(36) NOT NULL, str_tag varchar(45) NOT NULL,
    str_tag_type varchar(24) NOT NULL DEFAULT 'Hardware', b_constant boolean NOT NULL DEFAULT false
);

CREATE TABLE job (
    pk_job varchar(36) PRIMARY KEY, pk_folder varchar(36) NOT NULL, pk_show varchar(36) NOT NULL,
    str_name varchar(255) NOT NULL, str_visible_name varchar(255), str_shot varchar(64) NOT NULL,
    str_user varchar(32) NOT NULL, str_state varchar(16) NOT NULL, str_log_dir varchar(4000) NOT NULL DEFAULT '',
    int_uid bigint, b_paused boolean NOT NULL DEFAULT false, b_autoeat boolean NOT NULL DEFAULT false,
    int_frame_count integer NOT NULL DEFAULT 0, int_layer_count integer NOT NULL DEFAULT 0,
    int_max_retries smallint NOT NULL DEFAULT 3, b_auto_book boolean NOT NULL DEFAULT true,
    b_auto_unbook boolean NOT NULL DEFAULT true, b_comment boolean NOT NULL DEFAULT false, str_email varchar(256),
    pk_facility varchar(36) NOT NULL, pk_dept varchar(36) NOT NULL,
    ts_started timestamptz NOT NULL DEFAULT current_timestamp, ts_stopped timestamptz,
    int_min_cores integer NOT NULL DEFAULT 100, int_max_cores integer NOT NULL DEFAULT 20000,
    str_show varchar(512) NOT NULL DEFAULT 'none', ts_updated timestamptz NOT NULL DEFAULT current_timestamp,
    str_os varchar(12), int_min_gpus integer NOT NULL DEFAULT 0, int_max_gpus integer NOT NULL DEFAULT 100000,
    str_loki_url varchar(256), ts_eligible timestamptz NOT NULL DEFAULT current_timestamp,
    UNIQUE (str_visible_name)
);

CREATE TABLE job_resource (
    pk_job_resource varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, int_cores bigint NOT NULL DEFAULT 0,
    int_max_rss bigint NOT NULL DEFAULT 0, int_max_vss bigint NOT NULL DEFAULT 0,
    int_min_cores integer NOT NULL DEFAULT 100, int_max_cores integer NOT NULL DEFAULT 10000,
    float_tier numeric NOT NULL DEFAULT 0, int_priority integer NOT NULL DEFAULT 1,
    int_local_cores integer NOT NULL DEFAULT 0, int_gpus integer NOT NULL DEFAULT 0,
    int_min_gpus integer NOT NULL DEFAULT 0, int_max_gpus integer NOT NULL DEFAULT 100,
    int_local_gpus integer NOT NULL DEFAULT 0, int_gpu_mem_max bigint NOT NULL DEFAULT 0,
    int_max_pss bigint DEFAULT 0
);

CREATE TABLE job_stat (
    pk_job_stat varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, int_waiting_count bigint NOT NULL DEFAULT 0,
    int_running_count bigint NOT NULL DEFAULT 0, int_dead_count bigint NOT NULL DEFAULT 0,
    int_depend_count bigint NOT NULL DEFAULT 0, int_eaten_count bigint NOT NULL DEFAULT 0,
    int_succeeded_count bigint NOT NULL DEFAULT 0, int_checkpoint_count bigint NOT NULL DEFAULT 0
);

CREATE TABLE job_usage (
    pk_job_usage varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL,
    int_core_time_success bigint NOT NULL DEFAULT 0, int_core_time_fail bigint NOT NULL DEFAULT 0,
    int_frame_success_count integer NOT NULL DEFAULT 0, int_frame_fail_count integer NOT NULL DEFAULT 0,
    int_clock_time_fail integer NOT NULL DEFAULT 0, int_clock_time_high integer NOT NULL DEFAULT 0,
    int_clock_time_success integer NOT NULL DEFAULT 0, int_gpu_time_success bigint NOT NULL DEFAULT 0,
    int_gpu_time_fail bigint NOT NULL DEFAULT 0
);

CREATE TABLE job_mem (
    pk_job_mem varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, int_max_rss bigint NOT NULL DEFAULT 0,
    int_max_vss bigint NOT NULL DEFAULT 0, int_gpu_mem_max bigint NOT NULL DEFAULT 0, int_max_pss bigint DEFAULT 0
);

CREATE TABLE job_env (
    pk_job_env varchar(36) PRIMARY KEY, pk_job varchar(36), str_key varchar(2048), str_value varchar(2048)
);

CREATE TABLE job_history (
    pk_job varchar(36) PRIMARY KEY, pk_show varchar(36) NOT NULL, str_name varchar(512) NOT NULL,
    str_shot varchar(64) NOT NULL, str_user varchar(36) NOT NULL, int_core_time_success bigint NOT NULL DEFAULT 0,
    int_core_time_fail bigint NOT NULL DEFAULT 0, int_frame_count bigint NOT NULL DEFAULT 0,
    int_layer_count bigint NOT NULL DEFAULT 0, int_waiting_count bigint NOT NULL DEFAULT 0,
    int_dead_count bigint NOT NULL DEFAULT 0, int_depend_count bigint NOT NULL DEFAULT 0,
    int_eaten_count bigint NOT NULL DEFAULT 0, int_succeeded_count bigint NOT NULL DEFAULT 0,
    int_running_count bigint NOT NULL DEFAULT 0, int_max_rss bigint NOT NULL DEFAULT 0,
    b_archived boolean NOT NULL DEFAULT false, pk_facility varchar(36) NOT NULL, pk_dept varchar(36) NOT NULL,
    int_ts_started integer NOT NULL, int_ts_stopped integer NOT NULL DEFAULT 0, dt_last_modified date NOT NULL,
    int_gpu_time_success bigint NOT NULL DEFAULT 0, int_gpu_time_fail bigint NOT NULL DEFAULT 0,
    int_gpu_mem_max bigint NOT NULL DEFAULT 0
);

CREATE TABLE layer (
    pk_layer varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, str_name varchar(256) NOT NULL,
    str_cmd varchar(4000) NOT NULL, str_range varchar(4000) NOT NULL, int_chunk_size bigint NOT NULL DEFAULT 1,
    int_dispatch_order bigint NOT NULL DEFAULT 1, int_cores_min bigint NOT NULL DEFAULT 100,
    int_mem_min bigint NOT NULL DEFAULT 4194304, str_tags varchar(4000) NOT NULL DEFAULT '',
    str_type varchar(16) NOT NULL, b_threadable boolean NOT NULL DEFAULT true,
    str_services varchar(128) NOT NULL DEFAULT 'default', b_optimize boolean NOT NULL DEFAULT true,
    int_cores_max integer NOT NULL DEFAULT 0, int_gpu_mem_min bigint NOT NULL DEFAULT 0,
    int_timeout integer NOT NULL DEFAULT 0, int_timeout_llu integer NOT NULL DEFAULT 0,
    int_gpus_min bigint NOT NULL DEFAULT 0, int_gpus_max bigint NOT NULL DEFAULT 0,
    ts_eligible timestamptz NOT NULL DEFAULT current_timestamp, ts_start_after timestamptz,
    str_start_after_reason varchar(255), UNIQUE (str_name, pk_job)
);

CREATE TABLE layer_resource (
    pk_layer_resource varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL,
    int_cores bigint NOT NULL DEFAULT 0, int_max_rss bigint NOT NULL DEFAULT 0,
    int_max_vss bigint NOT NULL DEFAULT 0, int_gpus integer NOT NULL DEFAULT 0,
    int_gpu_mem_max bigint NOT NULL DEFAULT 0, int_max_pss bigint DEFAULT 0
);

CREATE TABLE layer_stat (
    pk_layer_stat varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL,
    int_total_count bigint NOT NULL DEFAULT 0, int_waiting_count bigint NOT NULL DEFAULT 0,
    int_running_count bigint NOT NULL DEFAULT 0, int_dead_count bigint NOT NULL DEFAULT 0,
    int_depend_count bigint NOT NULL DEFAULT 0, int_eaten_count bigint NOT NULL DEFAULT 0,
    int_succeeded_count bigint NOT NULL DEFAULT 0, int_checkpoint_count bigint NOT NULL DEFAULT 0,
    ts_started timestamptz, ts_stopped timestamptz
);

CREATE TABLE layer_usage (
    pk_layer_usage varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL,
    int_core_time_success bigint NOT NULL DEFAULT 0, int_core_time_fail bigint NOT NULL DEFAULT 0,
    int_frame_success_count integer NOT NULL DEFAULT 0, int_frame_fail_count integer NOT NULL DEFAULT 0,
    int_clock_time_fail integer NOT NULL DEFAULT 0, int_clock_time_high integer NOT NULL DEFAULT 0,
    int_clock_time_low integer NOT NULL DEFAULT 0, int_clock_time_success integer NOT NULL DEFAULT 0,
    int_gpu_time_success bigint NOT NULL DEFAULT 0, int_gpu_time_fail bigint NOT NULL DEFAULT 0
);

CREATE TABLE layer_mem (
    pk_layer_mem varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, pk_layer varchar(36) NOT NULL,
    int_max_rss bigint NOT NULL DEFAULT 0, int_max_vss bigint NOT NULL DEFAULT 0,
    int_gpu_mem_max bigint NOT NULL DEFAULT 0, int_max_pss bigint DEFAULT 0
);

CREATE TABLE layer_env (
    pk_layer_env varchar(36) PRIMARY KEY, pk_layer varchar(36), pk_job varchar(36), str_key varchar(2048),
    str_value varchar(2048)
);

CREATE TABLE layer_limit (
    pk_layer_limit varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_limit_record varchar(36) NOT NULL
);

CREATE TABLE layer_output (
    pk_layer_output varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL,
    str_filespec varchar(2048) NOT NULL, ser_order serial
);

CREATE TABLE layer_history (
    pk_layer varchar(36) PRIMARY KEY, pk_job varchar(36) NOT NULL, str_name varchar(512) NOT NULL,
    str_type varchar(16) NOT NULL, int_cores_min bigint NOT NULL DEFAULT 100,
    int_mem_min bigint NOT NULL DEFAULT 4194304, int_core_time_success bigint NOT NULL DEFAULT 0,
    int_core_time_fail bigint NOT NULL DEFAULT 0, int_frame_count bigint NOT NULL DEFAULT 0,
    int_layer_count bigint NOT NULL DEFAULT 0, int_waiting_count bigint NOT NULL DEFAULT 0,
    int_dead_count bigint NOT NULL DEFAULT 0, int_depend_count bigint NOT NULL DEFAULT 0,
    int_eaten_count bigint NOT NULL DEFAULT 0, int_succeeded_count bigint NOT NULL DEFAULT 0,
    int_running_count bigint NOT NULL DEFAULT 0, int_max_rss bigint NOT NULL DEFAULT 0,
    b_archived boolean NOT NULL DEFAULT false, dt_last_modified date NOT NULL, str_services varchar(128),
    int_gpus_min integer NOT NULL DEFAULT 0, int_gpu_time_success bigint NOT NULL DEFAULT 0,
    int_gpu_time_fail bigint NOT NULL DEFAULT 0, int_gpu_mem_min bigint NOT NULL DEFAULT 0,
    int_gpu_mem_max bigint NOT NULL DEFAULT 0
);

CREATE TABLE limit_record (
    pk_limit_record varchar(36) PRIMARY KEY, str_name varchar(255) NOT NULL, int_max_value integer,
    b_host_limit boolean NOT NULL DEFAULT false, UNIQUE (str_name)
);

CREATE TABLE frame (
    pk_frame varchar(36) PRIMARY KEY, pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL,
    str_name varchar(256) NOT NULL, str_state varchar(24) NOT NULL, int_number bigint NOT NULL,
    int_depend_count bigint NOT NULL DEFAULT 0, int_exit_status bigint NOT NULL DEFAULT '-1'::integer,
    int_retries bigint NOT NULL DEFAULT 0, int_mem_reserved bigint NOT NULL DEFAULT 0,
    int_mem_max_used bigint NOT NULL DEFAULT 0, int_mem_used bigint NOT NULL DEFAULT 0,
    int_dispatch_order bigint NOT NULL DEFAULT 0, str_host varchar(256), int_cores integer NOT NULL DEFAULT 0,
    int_layer_order integer NOT NULL, ts_started timestamptz, ts_stopped timestamptz, ts_last_run timestamptz,
    ts_updated timestamptz, int_version integer DEFAULT 0,
    str_checkpoint_state varchar(12) NOT NULL DEFAULT 'DISABLED', int_checkpoint_count smallint NOT NULL DEFAULT 0,
    int_gpu_mem_reserved bigint NOT NULL DEFAULT 0, int_total_past_core_time integer NOT NULL DEFAULT 0,
    ts_llu timestamptz, int_gpu_mem_used bigint NOT NULL DEFAULT 0, int_gpu_mem_max_used bigint NOT NULL DEFAULT 0,
    int_gpus integer NOT NULL DEFAULT 0, int_total_past_gpu_time integer NOT NULL DEFAULT 0,
    int_pss_max_used bigint DEFAULT 0, int_pss_used bigint DEFAULT 0, ts_eligible timestamptz,
    UNIQUE (str_name, pk_job)
);

CREATE TABLE frame_history (
    pk_frame_history varchar(36) PRIMARY KEY DEFAULT gen_random_uuid(), pk_frame varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL, pk_job varchar(36) NOT NULL, str_name varchar(256) NOT NULL,
    str_state varchar(24) NOT NULL, int_mem_reserved bigint NOT NULL DEFAULT 0,
    int_mem_max_used bigint NOT NULL DEFAULT 0, int_cores integer NOT NULL DEFAULT 100, str_host varchar(64),
    int_exit_status smallint NOT NULL DEFAULT '-1'::integer, pk_alloc varchar(36), int_ts_started integer NOT NULL,
    int_ts_stopped integer NOT NULL DEFAULT 0, int_checkpoint_count integer NOT NULL DEFAULT 0,
    dt_last_modified date NOT NULL, int_gpus integer NOT NULL DEFAULT 0,
    int_gpu_mem_reserved bigint NOT NULL DEFAULT 0, int_gpu_mem_max_used bigint NOT NULL DEFAULT 0
);

CREATE TABLE proc (
    pk_proc varchar(36) PRIMARY KEY, pk_host varchar(36) NOT NULL, pk_job varchar(36), pk_show varchar(36),
    pk_layer varchar(36), pk_frame varchar(36), int_cores_reserved bigint NOT NULL,
    int_mem_reserved bigint NOT NULL, int_mem_used bigint NOT NULL DEFAULT 0,
    int_mem_max_used bigint NOT NULL DEFAULT 0, b_unbooked boolean NOT NULL DEFAULT false,
    int_mem_pre_reserved bigint NOT NULL DEFAULT 0, int_virt_used bigint NOT NULL DEFAULT 0,
    int_virt_max_used bigint NOT NULL DEFAULT 0, str_redirect varchar(265), b_local boolean NOT NULL DEFAULT false,
    ts_ping timestamptz NOT NULL DEFAULT current_timestamp,
    ts_booked timestamptz NOT NULL DEFAULT current_timestamp,
    ts_dispatched timestamptz NOT NULL DEFAULT current_timestamp, int_gpu_mem_reserved bigint NOT NULL DEFAULT 0,
    int_gpus_reserved integer NOT NULL DEFAULT 0, int_gpu_mem_used bigint NOT NULL DEFAULT 0,
    int_gpu_mem_max_used bigint NOT NULL DEFAULT 0, int_gpu_mem_pre_reserved bigint NOT NULL DEFAULT 0,
    bytea_children bytea, int_swap_used bigint NOT NULL DEFAULT 0, int_pss_max_used bigint DEFAULT 0,
    int_pss_used bigint DEFAULT 0, UNIQUE (pk_frame)
);

CREATE TABLE depend (
    pk_depend varchar(36) PRIMARY KEY, pk_parent varchar(36), pk_job_depend_on varchar(36) NOT NULL,
    pk_job_depend_er varchar(36) NOT NULL, pk_frame_depend_on varchar(36), pk_frame_depend_er varchar(36),
    pk_layer_depend_on varchar(36), pk_layer_depend_er varchar(36), str_type varchar(36) NOT NULL,
    b_active boolean NOT NULL DEFAULT true, b_any boolean NOT NULL DEFAULT false,
    ts_created timestamp NOT NULL DEFAULT current_timestamp, ts_satisfied timestamp,
    str_target varchar(20) NOT NULL DEFAULT 'Internal', str_signature varchar(36) NOT NULL,
    b_composite boolean NOT NULL DEFAULT false, UNIQUE (str_signature)
);

CREATE TABLE service (
    pk_service varchar(36) PRIMARY KEY, str_name varchar(36) NOT NULL, b_threadable boolean NOT NULL,
    int_cores_min integer NOT NULL, int_mem_min integer NOT NULL, str_tags varchar(128) NOT NULL,
    int_cores_max integer NOT NULL DEFAULT 0, int_gpu_mem_min bigint NOT NULL DEFAULT 0,
    int_timeout integer NOT NULL DEFAULT 0, int_timeout_llu integer NOT NULL DEFAULT 0,
    int_gpus_min integer NOT NULL DEFAULT 0, int_gpus_max integer NOT NULL DEFAULT 0,
    int_min_memory_increase integer NOT NULL DEFAULT 2097152, UNIQUE (str_name)
);

CREATE TABLE show_service (
    pk_show_service varchar(36) PRIMARY KEY, pk_show varchar(36) NOT NULL, str_name varchar(36) NOT NULL,
    b_threadable boolean NOT NULL, int_cores_min integer NOT NULL, int_mem_min integer NOT NULL,
    str_tags varchar(128) NOT NULL, int_cores_max integer NOT NULL DEFAULT 0,
    int_gpu_mem_min bigint NOT NULL DEFAULT 0, int_timeout integer NOT NULL DEFAULT 0,
    int_timeout_llu integer NOT NULL DEFAULT 0, int_gpus_min integer NOT NULL DEFAULT 0,
    int_gpus_max integer NOT NULL DEFAULT 0, int_min_memory_increase integer NOT NULL DEFAULT 2097152
);

CREATE TABLE comments (
    pk_comment varchar(36) PRIMARY KEY, pk_job varchar(36), pk_host varchar(36),
    ts_created timestamp NOT NULL DEFAULT current_timestamp, str_user varchar(36) NOT NULL,
    str_subject varchar(128) NOT NULL, str_message varchar(4000) NOT NULL
);

CREATE INDEX ON frame (pk_job);
CREATE INDEX ON frame (pk_layer);
CREATE INDEX ON depend (pk_frame_depend_on);
CREATE INDEX ON depend (pk_layer_depend_on);
CREATE INDEX ON depend (pk_job_depend_on);

-- A job, layer or folder comes with the rows of its figures.
CREATE FUNCTION job_arrives() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO job_stat (pk_job_stat, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_resource (pk_job_resource, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_usage (pk_job_usage, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_mem (pk_job_mem, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    RETURN NULL;
END $$;
CREATE TRIGGER job_arrives AFTER INSERT ON job FOR EACH ROW EXECUTE FUNCTION job_arrives();

CREATE FUNCTION layer_arrives() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO layer_stat (pk_layer_stat, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_resource (pk_layer_resource, pk_layer, pk_job)
    VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_usage (pk_layer_usage, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_mem (pk_layer_mem, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    RETURN NULL;
END $$;
CREATE TRIGGER layer_arrives AFTER INSERT ON layer FOR EACH ROW EXECUTE FUNCTION layer_arrives();

CREATE FUNCTION folder_arrives() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO folder_level (pk_folder_level, pk_folder) VALUES (NEW.pk_folder, NEW.pk_folder);
    INSERT INTO folder_resource (pk_folder_resource, pk_folder) VALUES (NEW.pk_folder, NEW.pk_folder);
    RETURN NULL;
END $$;
CREATE TRIGGER folder_arrives AFTER INSERT ON folder FOR EACH ROW EXECUTE FUNCTION folder_arrives();

-- Frames with open dependencies do not wait for a host, and those without do not wait for others.
CREATE FUNCTION frame_waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.int_depend_count > 0 AND NEW.str_state IN ('DEAD', 'SUCCEEDED', 'WAITING', 'CHECKPOINT') THEN
        NEW.str_state := 'DEPEND';
    ELSIF OLD.int_depend_count > 0 AND NEW.int_depend_count < 1 AND OLD.str_state = 'DEPEND' THEN
        NEW.str_state := 'WAITING';
        NEW.ts_updated := current_timestamp;
        NEW.int_version := NEW.int_version + 1;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER frame_waits BEFORE UPDATE ON frame FOR EACH ROW EXECUTE FUNCTION frame_waits();

-- Frames that change their state are counted for their layer and job.
CREATE FUNCTION frame_counts() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('UPDATE layer_stat SET %1$I = %1$I - 1, %2$I = %2$I + 1 WHERE pk_layer = $1',
        'int_' || lower(OLD.str_state) || '_count', 'int_' || lower(NEW.str_state) || '_count')
        USING NEW.pk_layer;
    EXECUTE format('UPDATE job_stat SET %1$I = %1$I - 1, %2$I = %2$I + 1 WHERE pk_job = $1',
        'int_' || lower(OLD.str_state) || '_count', 'int_' || lower(NEW.str_state) || '_count')
        USING NEW.pk_job;
    RETURN NULL;
END $$;
CREATE TRIGGER frame_counts AFTER UPDATE ON frame FOR EACH ROW
    WHEN (OLD.str_state <> 'SETUP' AND OLD.str_state <> NEW.str_state) EXECUTE FUNCTION frame_counts();

-- No host gives more than it has.
CREATE FUNCTION host_gives() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.int_cores_idle < 0 OR NEW.int_mem_idle < 0 OR NEW.int_gpus_idle < 0 OR NEW.int_gpu_mem_idle < 0 THEN
        RAISE EXCEPTION 'unable to allocate additional core units or memory';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER host_gives BEFORE UPDATE ON host FOR EACH ROW EXECUTE FUNCTION host_gives();

