-- The tables of OpenCue that the gateway reads and writes, with OpenCue's names, types and keys: a compact schema for tests,
-- and for a farm that starts without Cuebot. Cores are hundredths, memory is in KiB.

CREATE SEQUENCE layer_output_ser_order_seq;

CREATE TABLE config (
    pk_config varchar(36) NOT NULL,
    str_key varchar(36) NOT NULL,
    int_value bigint DEFAULT 0,
    long_value bigint DEFAULT 0,
    str_value varchar(255) DEFAULT '',
    b_value boolean DEFAULT false,
    CONSTRAINT c_show_uk UNIQUE (str_key),
    CONSTRAINT c_pk_pkconfig PRIMARY KEY (pk_config)
);

CREATE TABLE facility (
    pk_facility varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    b_default boolean DEFAULT false NOT NULL,
    CONSTRAINT c_facility_pk PRIMARY KEY (pk_facility)
);

CREATE TABLE show (
    pk_show varchar(36) NOT NULL,
    str_name varchar(512) NOT NULL,
    b_paused boolean DEFAULT false NOT NULL,
    int_default_min_cores integer DEFAULT 100 NOT NULL,
    int_default_max_cores integer DEFAULT 10000 NOT NULL,
    b_booking_enabled boolean DEFAULT true NOT NULL,
    b_dispatch_enabled boolean DEFAULT true NOT NULL,
    b_active boolean DEFAULT true NOT NULL,
    str_comment_email varchar(1024),
    int_default_min_gpus integer DEFAULT 100 NOT NULL,
    int_default_max_gpus integer DEFAULT 100000 NOT NULL,
    b_scheduler_managed boolean DEFAULT false NOT NULL,
    CONSTRAINT c_show_pk PRIMARY KEY (pk_show)
);

CREATE TABLE show_stats (
    pk_show varchar(36) NOT NULL,
    int_frame_insert_count bigint DEFAULT 0 NOT NULL,
    int_job_insert_count bigint DEFAULT 0 NOT NULL,
    int_frame_success_count bigint DEFAULT 0 NOT NULL,
    int_frame_fail_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_show_stats_pk PRIMARY KEY (pk_show)
);

CREATE TABLE alloc (
    pk_alloc varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    b_allow_edit boolean DEFAULT true NOT NULL,
    b_default boolean DEFAULT false NOT NULL,
    str_tag varchar(24),
    b_billable boolean DEFAULT true NOT NULL,
    pk_facility varchar(36) NOT NULL,
    b_enabled boolean DEFAULT true,
    CONSTRAINT c_alloc_name_uniq UNIQUE (str_name),
    CONSTRAINT c_alloc_pk PRIMARY KEY (pk_alloc)
);

CREATE TABLE subscription (
    pk_subscription varchar(36) NOT NULL,
    pk_alloc varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    int_size bigint DEFAULT 0 NOT NULL,
    int_burst bigint DEFAULT 0 NOT NULL,
    int_cores integer DEFAULT 0 NOT NULL,
    float_tier numeric(16,2) DEFAULT 0 NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    CONSTRAINT c_subscription_uk UNIQUE (pk_show, pk_alloc),
    CONSTRAINT c_subscription_pk PRIMARY KEY (pk_subscription)
);

CREATE TABLE dept (
    pk_dept varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    b_default boolean DEFAULT false NOT NULL,
    CONSTRAINT c_dept_pk PRIMARY KEY (pk_dept)
);

CREATE TABLE folder (
    pk_folder varchar(36) NOT NULL,
    pk_parent_folder varchar(36),
    pk_show varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    int_priority bigint DEFAULT 1 NOT NULL,
    b_default boolean DEFAULT false NOT NULL,
    pk_dept varchar(36) NOT NULL,
    int_job_min_cores integer DEFAULT -1 NOT NULL,
    int_job_max_cores integer DEFAULT -1 NOT NULL,
    int_job_priority integer DEFAULT -1 NOT NULL,
    int_min_cores integer DEFAULT 0 NOT NULL,
    int_max_cores integer DEFAULT -1 NOT NULL,
    b_exclude_managed boolean DEFAULT false NOT NULL,
    f_order integer DEFAULT 0 NOT NULL,
    int_job_min_gpus integer DEFAULT -1 NOT NULL,
    int_job_max_gpus integer DEFAULT -1 NOT NULL,
    int_min_gpus integer DEFAULT 0 NOT NULL,
    int_max_gpus integer DEFAULT -1 NOT NULL,
    CONSTRAINT c_folder_uk UNIQUE (pk_parent_folder, str_name),
    CONSTRAINT c_folder_pk PRIMARY KEY (pk_folder)
);

CREATE TABLE folder_level (
    pk_folder_level varchar(36) NOT NULL,
    pk_folder varchar(36) NOT NULL,
    int_level bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_folder_level_uk UNIQUE (pk_folder),
    CONSTRAINT c_folder_level_pk PRIMARY KEY (pk_folder_level)
);

CREATE TABLE folder_resource (
    pk_folder_resource varchar(36) NOT NULL,
    pk_folder varchar(36) NOT NULL,
    int_cores integer DEFAULT 0 NOT NULL,
    int_max_cores integer DEFAULT -1 NOT NULL,
    int_min_cores integer DEFAULT 0 NOT NULL,
    float_tier numeric(16,2) DEFAULT 0 NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_max_gpus integer DEFAULT -1 NOT NULL,
    int_min_gpus integer DEFAULT 0 NOT NULL,
    CONSTRAINT c_folder_resource_pk PRIMARY KEY (pk_folder_resource)
);

CREATE TABLE point (
    pk_point varchar(36) NOT NULL,
    pk_dept varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    str_ti_task varchar(36),
    int_cores integer DEFAULT 0 NOT NULL,
    b_managed boolean DEFAULT false NOT NULL,
    int_min_cores integer DEFAULT 0 NOT NULL,
    float_tier numeric(16,2) DEFAULT 0 NOT NULL,
    ts_updated timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_min_gpus integer DEFAULT 0 NOT NULL,
    CONSTRAINT c_point_pk_show_dept UNIQUE (pk_show, pk_dept),
    CONSTRAINT c_point_pk PRIMARY KEY (pk_point)
);

CREATE TABLE service (
    pk_service varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    b_threadable boolean NOT NULL,
    int_cores_min integer NOT NULL,
    int_mem_min integer NOT NULL,
    str_tags varchar(128) NOT NULL,
    int_cores_max integer DEFAULT 0 NOT NULL,
    int_gpu_mem_min bigint DEFAULT 0 NOT NULL,
    int_timeout integer DEFAULT 0 NOT NULL,
    int_timeout_llu integer DEFAULT 0 NOT NULL,
    int_gpus_min integer DEFAULT 0 NOT NULL,
    int_gpus_max integer DEFAULT 0 NOT NULL,
    int_min_memory_increase integer DEFAULT 2097152 NOT NULL,
    CONSTRAINT c_pk_service PRIMARY KEY (pk_service)
);

CREATE TABLE show_service (
    pk_show_service varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    b_threadable boolean NOT NULL,
    int_cores_min integer NOT NULL,
    int_mem_min integer NOT NULL,
    str_tags varchar(128) NOT NULL,
    int_cores_max integer DEFAULT 0 NOT NULL,
    int_gpu_mem_min bigint DEFAULT 0 NOT NULL,
    int_timeout integer DEFAULT 0 NOT NULL,
    int_timeout_llu integer DEFAULT 0 NOT NULL,
    int_gpus_min integer DEFAULT 0 NOT NULL,
    int_gpus_max integer DEFAULT 0 NOT NULL,
    int_min_memory_increase integer DEFAULT 2097152 NOT NULL,
    CONSTRAINT c_pk_show_service PRIMARY KEY (pk_show_service)
);

CREATE TABLE job (
    pk_job varchar(36) NOT NULL,
    pk_folder varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    str_name varchar(255) NOT NULL,
    str_visible_name varchar(255),
    str_shot varchar(64) NOT NULL,
    str_user varchar(32) NOT NULL,
    str_state varchar(16) NOT NULL,
    str_log_dir varchar(4000) DEFAULT '' NOT NULL,
    int_uid bigint,
    b_paused boolean DEFAULT false NOT NULL,
    b_autoeat boolean DEFAULT false NOT NULL,
    int_frame_count integer DEFAULT 0 NOT NULL,
    int_layer_count integer DEFAULT 0 NOT NULL,
    int_max_retries smallint DEFAULT 3 NOT NULL,
    b_auto_book boolean DEFAULT true NOT NULL,
    b_auto_unbook boolean DEFAULT true NOT NULL,
    b_comment boolean DEFAULT false NOT NULL,
    str_email varchar(256),
    pk_facility varchar(36) NOT NULL,
    pk_dept varchar(36) NOT NULL,
    ts_started timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_stopped timestamptz,
    int_min_cores integer DEFAULT 100 NOT NULL,
    int_max_cores integer DEFAULT 20000 NOT NULL,
    str_show varchar(512) DEFAULT 'none' NOT NULL,
    ts_updated timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    str_os varchar(12),
    int_min_gpus integer DEFAULT 0 NOT NULL,
    int_max_gpus integer DEFAULT 100000 NOT NULL,
    str_loki_url varchar(256),
    ts_eligible timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    CONSTRAINT c_job_uk UNIQUE (str_visible_name),
    CONSTRAINT c_job_pk PRIMARY KEY (pk_job)
);

CREATE TABLE job_stat (
    pk_job_stat varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_waiting_count bigint DEFAULT 0 NOT NULL,
    int_running_count bigint DEFAULT 0 NOT NULL,
    int_dead_count bigint DEFAULT 0 NOT NULL,
    int_depend_count bigint DEFAULT 0 NOT NULL,
    int_eaten_count bigint DEFAULT 0 NOT NULL,
    int_succeeded_count bigint DEFAULT 0 NOT NULL,
    int_checkpoint_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_job_stat_pk PRIMARY KEY (pk_job_stat)
);

CREATE TABLE job_resource (
    pk_job_resource varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_cores bigint DEFAULT 0 NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    int_max_vss bigint DEFAULT 0 NOT NULL,
    int_min_cores integer DEFAULT 100 NOT NULL,
    int_max_cores integer DEFAULT 10000 NOT NULL,
    float_tier numeric(16,2) DEFAULT 0 NOT NULL,
    int_priority integer DEFAULT 1 NOT NULL,
    int_local_cores integer DEFAULT 0 NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_min_gpus integer DEFAULT 0 NOT NULL,
    int_max_gpus integer DEFAULT 100 NOT NULL,
    int_local_gpus integer DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    int_max_pss bigint DEFAULT 0,
    CONSTRAINT c_job_resource_uk UNIQUE (pk_job),
    CONSTRAINT c_job_resource_pk PRIMARY KEY (pk_job_resource)
);

CREATE TABLE job_usage (
    pk_job_usage varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_core_time_success bigint DEFAULT 0 NOT NULL,
    int_core_time_fail bigint DEFAULT 0 NOT NULL,
    int_frame_success_count integer DEFAULT 0 NOT NULL,
    int_frame_fail_count integer DEFAULT 0 NOT NULL,
    int_clock_time_fail integer DEFAULT 0 NOT NULL,
    int_clock_time_high integer DEFAULT 0 NOT NULL,
    int_clock_time_success integer DEFAULT 0 NOT NULL,
    int_gpu_time_success bigint DEFAULT 0 NOT NULL,
    int_gpu_time_fail bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_job_usage_pk_job_uniq UNIQUE (pk_job),
    CONSTRAINT c_job_usage_pk PRIMARY KEY (pk_job_usage)
);

CREATE TABLE job_mem (
    pk_job_mem varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    int_max_vss bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    int_max_pss bigint DEFAULT 0,
    CONSTRAINT c_job_mem_pk PRIMARY KEY (pk_job_mem)
);

CREATE TABLE job_env (
    pk_job_env varchar(36) NOT NULL,
    pk_job varchar(36),
    str_key varchar(2048),
    str_value varchar(2048),
    CONSTRAINT c_job_env_pk PRIMARY KEY (pk_job_env)
);

CREATE TABLE job_local (
    pk_job_local varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    pk_host varchar(36) NOT NULL,
    str_source varchar(255) NOT NULL,
    ts_created timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    int_cores integer DEFAULT 0 NOT NULL,
    int_max_cores integer NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_max_gpus integer DEFAULT 0 NOT NULL,
    CONSTRAINT c_pk_job_local PRIMARY KEY (pk_job_local)
);

CREATE TABLE job_post (
    pk_job_post varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    pk_post_job varchar(36) NOT NULL,
    CONSTRAINT c_job_post_pk PRIMARY KEY (pk_job_post)
);

CREATE TABLE job_history (
    pk_job varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    str_name varchar(512) NOT NULL,
    str_shot varchar(64) NOT NULL,
    str_user varchar(36) NOT NULL,
    int_core_time_success bigint DEFAULT 0 NOT NULL,
    int_core_time_fail bigint DEFAULT 0 NOT NULL,
    int_frame_count bigint DEFAULT 0 NOT NULL,
    int_layer_count bigint DEFAULT 0 NOT NULL,
    int_waiting_count bigint DEFAULT 0 NOT NULL,
    int_dead_count bigint DEFAULT 0 NOT NULL,
    int_depend_count bigint DEFAULT 0 NOT NULL,
    int_eaten_count bigint DEFAULT 0 NOT NULL,
    int_succeeded_count bigint DEFAULT 0 NOT NULL,
    int_running_count bigint DEFAULT 0 NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    b_archived boolean DEFAULT false NOT NULL,
    pk_facility varchar(36) NOT NULL,
    pk_dept varchar(36) NOT NULL,
    int_ts_started integer NOT NULL,
    int_ts_stopped integer DEFAULT 0 NOT NULL,
    dt_last_modified date NOT NULL,
    int_gpu_time_success bigint DEFAULT 0 NOT NULL,
    int_gpu_time_fail bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_job_history_pk PRIMARY KEY (pk_job)
);

CREATE TABLE layer (
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    str_name varchar(256) NOT NULL,
    str_cmd varchar(4000) NOT NULL,
    str_range varchar(4000) NOT NULL,
    int_chunk_size bigint DEFAULT 1 NOT NULL,
    int_dispatch_order bigint DEFAULT 1 NOT NULL,
    int_cores_min bigint DEFAULT 100 NOT NULL,
    int_mem_min bigint DEFAULT 4194304 NOT NULL,
    str_tags varchar(4000) DEFAULT '' NOT NULL,
    str_type varchar(16) NOT NULL,
    b_threadable boolean DEFAULT true NOT NULL,
    str_services varchar(128) DEFAULT 'default' NOT NULL,
    b_optimize boolean DEFAULT true NOT NULL,
    int_cores_max integer DEFAULT 0 NOT NULL,
    int_gpu_mem_min bigint DEFAULT 0 NOT NULL,
    int_timeout integer DEFAULT 0 NOT NULL,
    int_timeout_llu integer DEFAULT 0 NOT NULL,
    int_gpus_min bigint DEFAULT 0 NOT NULL,
    int_gpus_max bigint DEFAULT 0 NOT NULL,
    ts_eligible timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_start_after timestamptz,
    str_start_after_reason varchar(255),
    CONSTRAINT c_layer_str_name_unq UNIQUE (str_name, pk_job),
    CONSTRAINT c_layer_pk PRIMARY KEY (pk_layer)
);

CREATE TABLE layer_stat (
    pk_layer_stat varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_total_count bigint DEFAULT 0 NOT NULL,
    int_waiting_count bigint DEFAULT 0 NOT NULL,
    int_running_count bigint DEFAULT 0 NOT NULL,
    int_dead_count bigint DEFAULT 0 NOT NULL,
    int_depend_count bigint DEFAULT 0 NOT NULL,
    int_eaten_count bigint DEFAULT 0 NOT NULL,
    int_succeeded_count bigint DEFAULT 0 NOT NULL,
    int_checkpoint_count bigint DEFAULT 0 NOT NULL,
    ts_started timestamptz,
    ts_stopped timestamptz,
    CONSTRAINT c_layerstat_pk PRIMARY KEY (pk_layer_stat)
);

CREATE TABLE layer_resource (
    pk_layer_resource varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_cores bigint DEFAULT 0 NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    int_max_vss bigint DEFAULT 0 NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    int_max_pss bigint DEFAULT 0,
    CONSTRAINT c_layerresource_uk UNIQUE (pk_layer),
    CONSTRAINT c_layerresource_pk PRIMARY KEY (pk_layer_resource)
);

CREATE TABLE layer_usage (
    pk_layer_usage varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    int_core_time_success bigint DEFAULT 0 NOT NULL,
    int_core_time_fail bigint DEFAULT 0 NOT NULL,
    int_frame_success_count integer DEFAULT 0 NOT NULL,
    int_frame_fail_count integer DEFAULT 0 NOT NULL,
    int_clock_time_fail integer DEFAULT 0 NOT NULL,
    int_clock_time_high integer DEFAULT 0 NOT NULL,
    int_clock_time_low integer DEFAULT 0 NOT NULL,
    int_clock_time_success integer DEFAULT 0 NOT NULL,
    int_gpu_time_success bigint DEFAULT 0 NOT NULL,
    int_gpu_time_fail bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_layer_usage_pk_layer_uk UNIQUE (pk_layer),
    CONSTRAINT c_layer_usage_pk PRIMARY KEY (pk_layer_usage)
);

CREATE TABLE layer_mem (
    pk_layer_mem varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    int_max_vss bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    int_max_pss bigint DEFAULT 0,
    CONSTRAINT c_layer_mem_pk PRIMARY KEY (pk_layer_mem)
);

CREATE TABLE layer_env (
    pk_layer_env varchar(36) NOT NULL,
    pk_layer varchar(36),
    pk_job varchar(36),
    str_key varchar(2048),
    str_value varchar(2048),
    CONSTRAINT c_layer_env_pk PRIMARY KEY (pk_layer_env)
);

CREATE TABLE layer_output (
    pk_layer_output varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    str_filespec varchar(2048) NOT NULL,
    ser_order integer DEFAULT nextval('layer_output_ser_order_seq') NOT NULL,
    CONSTRAINT c_pk_layer_output PRIMARY KEY (pk_layer_output)
);

CREATE TABLE layer_history (
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    str_name varchar(512) NOT NULL,
    str_type varchar(16) NOT NULL,
    int_cores_min bigint DEFAULT 100 NOT NULL,
    int_mem_min bigint DEFAULT 4194304 NOT NULL,
    int_core_time_success bigint DEFAULT 0 NOT NULL,
    int_core_time_fail bigint DEFAULT 0 NOT NULL,
    int_frame_count bigint DEFAULT 0 NOT NULL,
    int_layer_count bigint DEFAULT 0 NOT NULL,
    int_waiting_count bigint DEFAULT 0 NOT NULL,
    int_dead_count bigint DEFAULT 0 NOT NULL,
    int_depend_count bigint DEFAULT 0 NOT NULL,
    int_eaten_count bigint DEFAULT 0 NOT NULL,
    int_succeeded_count bigint DEFAULT 0 NOT NULL,
    int_running_count bigint DEFAULT 0 NOT NULL,
    int_max_rss bigint DEFAULT 0 NOT NULL,
    b_archived boolean DEFAULT false NOT NULL,
    dt_last_modified date NOT NULL,
    str_services varchar(128),
    int_gpus_min integer DEFAULT 0 NOT NULL,
    int_gpu_time_success bigint DEFAULT 0 NOT NULL,
    int_gpu_time_fail bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_min bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_layer_history_pk PRIMARY KEY (pk_layer)
);

CREATE TABLE frame (
    pk_frame varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    str_name varchar(256) NOT NULL,
    str_state varchar(24) NOT NULL,
    int_number bigint NOT NULL,
    int_depend_count bigint DEFAULT 0 NOT NULL,
    int_exit_status bigint DEFAULT -1 NOT NULL,
    int_retries bigint DEFAULT 0 NOT NULL,
    int_mem_reserved bigint DEFAULT 0 NOT NULL,
    int_mem_max_used bigint DEFAULT 0 NOT NULL,
    int_mem_used bigint DEFAULT 0 NOT NULL,
    int_dispatch_order bigint DEFAULT 0 NOT NULL,
    str_host varchar(256),
    int_cores integer DEFAULT 0 NOT NULL,
    int_layer_order integer NOT NULL,
    ts_started timestamptz,
    ts_stopped timestamptz,
    ts_last_run timestamptz,
    ts_updated timestamptz,
    int_version integer DEFAULT 0,
    str_checkpoint_state varchar(12) DEFAULT 'DISABLED' NOT NULL,
    int_checkpoint_count smallint DEFAULT 0 NOT NULL,
    int_gpu_mem_reserved bigint DEFAULT 0 NOT NULL,
    int_total_past_core_time integer DEFAULT 0 NOT NULL,
    ts_llu timestamptz,
    int_gpu_mem_used bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max_used bigint DEFAULT 0 NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_total_past_gpu_time integer DEFAULT 0 NOT NULL,
    int_pss_max_used bigint DEFAULT 0,
    int_pss_used bigint DEFAULT 0,
    ts_eligible timestamptz,
    CONSTRAINT c_frame_str_name_unq UNIQUE (str_name, pk_job),
    CONSTRAINT c_frame_pk PRIMARY KEY (pk_frame)
);

CREATE TABLE frame_history (
    pk_frame_history varchar(36) DEFAULT gen_random_uuid()::text NOT NULL,
    pk_frame varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    str_name varchar(256) NOT NULL,
    str_state varchar(24) NOT NULL,
    int_mem_reserved bigint DEFAULT 0 NOT NULL,
    int_mem_max_used bigint DEFAULT 0 NOT NULL,
    int_cores integer DEFAULT 100 NOT NULL,
    str_host varchar(64),
    int_exit_status smallint DEFAULT -1 NOT NULL,
    pk_alloc varchar(36),
    int_ts_started integer NOT NULL,
    int_ts_stopped integer DEFAULT 0 NOT NULL,
    int_checkpoint_count integer DEFAULT 0 NOT NULL,
    dt_last_modified date NOT NULL,
    int_gpus integer DEFAULT 0 NOT NULL,
    int_gpu_mem_reserved bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max_used bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_frame_history_pk PRIMARY KEY (pk_frame_history)
);

CREATE TABLE depend (
    pk_depend varchar(36) NOT NULL,
    pk_parent varchar(36),
    pk_job_depend_on varchar(36) NOT NULL,
    pk_job_depend_er varchar(36) NOT NULL,
    pk_frame_depend_on varchar(36),
    pk_frame_depend_er varchar(36),
    pk_layer_depend_on varchar(36),
    pk_layer_depend_er varchar(36),
    str_type varchar(36) NOT NULL,
    b_active boolean DEFAULT true NOT NULL,
    b_any boolean DEFAULT false NOT NULL,
    ts_created timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_satisfied timestamp,
    str_target varchar(20) DEFAULT 'Internal' NOT NULL,
    str_signature varchar(36) NOT NULL,
    b_composite boolean DEFAULT false NOT NULL,
    CONSTRAINT c_depend_pk PRIMARY KEY (pk_depend)
);

CREATE TABLE limit_record (
    pk_limit_record varchar(36) NOT NULL,
    str_name varchar(255) NOT NULL,
    int_max_value integer,
    b_host_limit boolean DEFAULT false NOT NULL
);

CREATE TABLE layer_limit (
    pk_layer_limit varchar(36) NOT NULL,
    pk_layer varchar(36) NOT NULL,
    pk_limit_record varchar(36) NOT NULL
);

CREATE TABLE host (
    pk_host varchar(36) NOT NULL,
    pk_alloc varchar(36) NOT NULL,
    str_name varchar(45) NOT NULL,
    str_lock_state varchar(36) NOT NULL,
    b_nimby boolean DEFAULT false NOT NULL,
    ts_created timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL,
    int_cores bigint DEFAULT 0 NOT NULL,
    int_procs bigint DEFAULT 0 NOT NULL,
    int_cores_idle bigint DEFAULT 0 NOT NULL,
    int_mem bigint DEFAULT 0 NOT NULL,
    int_mem_idle bigint DEFAULT 0 NOT NULL,
    b_unlock_boot boolean DEFAULT false NOT NULL,
    b_unlock_idle boolean DEFAULT false NOT NULL,
    b_reboot_idle boolean DEFAULT false NOT NULL,
    str_tags varchar(128),
    str_fqdn varchar(128),
    b_comment boolean DEFAULT false NOT NULL,
    int_thread_mode integer DEFAULT 0 NOT NULL,
    str_lock_source varchar(128),
    int_gpu_mem bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_idle bigint DEFAULT 0 NOT NULL,
    int_gpus bigint DEFAULT 0 NOT NULL,
    int_gpus_idle bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_host_uk UNIQUE (str_name),
    CONSTRAINT c_str_host_fqdn_uk UNIQUE (str_fqdn),
    CONSTRAINT c_host_pk PRIMARY KEY (pk_host)
);

CREATE TABLE host_stat (
    pk_host_stat varchar(36) NOT NULL,
    pk_host varchar(36) NOT NULL,
    int_mem_total bigint DEFAULT 0 NOT NULL,
    int_mem_free bigint DEFAULT 0 NOT NULL,
    int_swap_total bigint DEFAULT 0 NOT NULL,
    int_swap_free bigint DEFAULT 0 NOT NULL,
    int_mcp_total bigint DEFAULT 0 NOT NULL,
    int_mcp_free bigint DEFAULT 0 NOT NULL,
    int_load bigint DEFAULT 0 NOT NULL,
    ts_ping timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_booted timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    str_state varchar(32) DEFAULT 'UP' NOT NULL,
    str_os varchar(32) DEFAULT 'rhel40' NOT NULL,
    int_gpu_mem_total bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_free bigint DEFAULT 0 NOT NULL,
    CONSTRAINT c_host_stat_pk_host_uk UNIQUE (pk_host),
    CONSTRAINT c_hoststat_pk PRIMARY KEY (pk_host_stat)
);

CREATE TABLE host_tag (
    pk_host_tag varchar(36) NOT NULL,
    pk_host varchar(36) NOT NULL,
    str_tag varchar(45) NOT NULL,
    str_tag_type varchar(24) DEFAULT 'Hardware' NOT NULL,
    b_constant boolean DEFAULT false NOT NULL,
    CONSTRAINT c_host_tag_pk PRIMARY KEY (pk_host_tag)
);

CREATE TABLE host_local (
    pk_host_local varchar(36) NOT NULL,
    pk_job varchar(36) NOT NULL,
    pk_layer varchar(36),
    pk_frame varchar(36),
    pk_host varchar(36) NOT NULL,
    ts_created timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_updated timestamptz,
    int_mem_max bigint DEFAULT 0 NOT NULL,
    int_mem_idle bigint DEFAULT 0 NOT NULL,
    int_cores_max integer DEFAULT 100 NOT NULL,
    int_cores_idle integer DEFAULT 100 NOT NULL,
    int_threads integer DEFAULT 1 NOT NULL,
    float_tier numeric(16,2) DEFAULT 0 NOT NULL,
    b_active boolean DEFAULT true NOT NULL,
    str_type varchar(36) NOT NULL,
    int_gpu_mem_idle bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max bigint DEFAULT 0 NOT NULL,
    int_gpus_idle integer DEFAULT 0 NOT NULL,
    int_gpus_max integer DEFAULT 0 NOT NULL,
    CONSTRAINT c_pk_host_local PRIMARY KEY (pk_host_local)
);

CREATE TABLE proc (
    pk_proc varchar(36) NOT NULL,
    pk_host varchar(36) NOT NULL,
    pk_job varchar(36),
    pk_show varchar(36),
    pk_layer varchar(36),
    pk_frame varchar(36),
    int_cores_reserved bigint NOT NULL,
    int_mem_reserved bigint NOT NULL,
    int_mem_used bigint DEFAULT 0 NOT NULL,
    int_mem_max_used bigint DEFAULT 0 NOT NULL,
    b_unbooked boolean DEFAULT false NOT NULL,
    int_mem_pre_reserved bigint DEFAULT 0 NOT NULL,
    int_virt_used bigint DEFAULT 0 NOT NULL,
    int_virt_max_used bigint DEFAULT 0 NOT NULL,
    str_redirect varchar(265),
    b_local boolean DEFAULT false NOT NULL,
    ts_ping timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_booked timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_dispatched timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    int_gpu_mem_reserved bigint DEFAULT 0 NOT NULL,
    int_gpus_reserved integer DEFAULT 0 NOT NULL,
    int_gpu_mem_used bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_max_used bigint DEFAULT 0 NOT NULL,
    int_gpu_mem_pre_reserved bigint DEFAULT 0 NOT NULL,
    bytea_children bytea,
    int_swap_used bigint DEFAULT 0 NOT NULL,
    int_pss_max_used bigint DEFAULT 0,
    int_pss_used bigint DEFAULT 0,
    CONSTRAINT c_proc_uk UNIQUE (pk_frame),
    CONSTRAINT c_proc_pk PRIMARY KEY (pk_proc)
);

CREATE TABLE deed (
    pk_deed varchar(36) NOT NULL,
    pk_owner varchar(36) NOT NULL,
    pk_host varchar(36) NOT NULL,
    b_blackout boolean DEFAULT false NOT NULL,
    int_blackout_start integer,
    int_blackout_stop integer,
    CONSTRAINT c_pk_deed PRIMARY KEY (pk_deed)
);

CREATE TABLE owner (
    pk_owner varchar(36) NOT NULL,
    pk_show varchar(36) NOT NULL,
    str_username varchar(64) NOT NULL,
    ts_created timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    ts_updated timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL,
    CONSTRAINT c_pk_owner PRIMARY KEY (pk_owner)
);

CREATE TABLE comments (
    pk_comment varchar(36) NOT NULL,
    pk_job varchar(36),
    pk_host varchar(36),
    ts_created timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL,
    str_user varchar(36) NOT NULL,
    str_subject varchar(128) NOT NULL,
    str_message varchar(4000) NOT NULL,
    CONSTRAINT c_comment_pk PRIMARY KEY (pk_comment)
);

CREATE TABLE task_lock (
    pk_task_lock varchar(36) NOT NULL,
    str_name varchar(36) NOT NULL,
    int_lock bigint DEFAULT 0 NOT NULL,
    int_timeout bigint DEFAULT 30 NOT NULL,
    ts_lastrun timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL,
    CONSTRAINT c_task_lock_pk PRIMARY KEY (pk_task_lock)
);
