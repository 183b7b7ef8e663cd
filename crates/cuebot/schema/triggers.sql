-- What OpenCue's database does by itself when a row changes. The effects are OpenCue's. Cuebot, the gateway and
-- every other writer rely on them, and do not count frames themselves.

CREATE FUNCTION epoch(timestamptz) RETURNS numeric LANGUAGE sql IMMUTABLE
    AS $$ SELECT trunc(extract(epoch FROM $1)) $$;

CREATE FUNCTION tier(used numeric, wanted numeric) RETURNS numeric LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN used = 0 AND wanted > 0 THEN wanted / 100 * -1 WHEN wanted = 0 THEN used / 100 + 1
                      ELSE used / wanted END $$;

CREATE FUNCTION soft_tier(used numeric, wanted numeric) RETURNS numeric LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN wanted > 0 AND used < wanted THEN used / wanted ELSE 0 END $$;

CREATE FUNCTION keeps_history() RETURNS boolean LANGUAGE sql STABLE
    AS $$ SELECT NOT EXISTS (SELECT FROM config WHERE str_key = 'DISABLE_HISTORY') $$;

-- A job, a layer and a folder get their rows of counters with them.
CREATE FUNCTION new_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_stat (pk_job_stat, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_resource (pk_job_resource, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_usage (pk_job_usage, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    INSERT INTO job_mem (pk_job_mem, pk_job) VALUES (NEW.pk_job, NEW.pk_job);
    IF keeps_history() THEN
        INSERT INTO job_history
            (pk_job, pk_show, pk_facility, pk_dept, str_name, str_shot, str_user, int_ts_started)
        VALUES (NEW.pk_job, NEW.pk_show, NEW.pk_facility, NEW.pk_dept, NEW.str_name, NEW.str_shot,
            NEW.str_user, epoch(now()));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert_job AFTER INSERT ON job FOR EACH ROW EXECUTE FUNCTION new_job();

CREATE FUNCTION new_layer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO layer_stat (pk_layer_stat, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_resource (pk_layer_resource, pk_layer, pk_job)
        VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_usage (pk_layer_usage, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    INSERT INTO layer_mem (pk_layer_mem, pk_layer, pk_job) VALUES (NEW.pk_layer, NEW.pk_layer, NEW.pk_job);
    IF keeps_history() THEN
        INSERT INTO layer_history (pk_layer, pk_job, str_name, str_type, int_cores_min, int_mem_min,
            int_gpus_min, int_gpu_mem_min, b_archived, str_services)
        VALUES (NEW.pk_layer, NEW.pk_job, NEW.str_name, NEW.str_type, NEW.int_cores_min, NEW.int_mem_min,
            NEW.int_gpus_min, NEW.int_gpu_mem_min, false, NEW.str_services);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert_layer AFTER INSERT ON layer FOR EACH ROW EXECUTE FUNCTION new_layer();

CREATE FUNCTION new_folder() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO folder_level (pk_folder_level, pk_folder, int_level) VALUES (NEW.pk_folder, NEW.pk_folder,
        coalesce((SELECT int_level + 1 FROM folder_level WHERE pk_folder = NEW.pk_parent_folder), 0));
    INSERT INTO folder_resource (pk_folder_resource, pk_folder) VALUES (NEW.pk_folder, NEW.pk_folder);
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert_folder AFTER INSERT ON folder FOR EACH ROW EXECUTE FUNCTION new_folder();

CREATE FUNCTION root_folder() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.b_default := true;
    RETURN NEW;
END $$;
CREATE TRIGGER before_insert_folder BEFORE INSERT ON folder FOR EACH ROW
    WHEN (NEW.pk_parent_folder IS NULL) EXECUTE FUNCTION root_folder();

-- A job that moves to another folder takes its figures along.
CREATE FUNCTION job_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE folder_resource f SET int_cores = f.int_cores + r.int_cores, int_gpus = f.int_gpus + r.int_gpus
        FROM job_resource r WHERE r.pk_job = NEW.pk_job AND f.pk_folder = NEW.pk_folder;
    UPDATE folder_resource f SET int_cores = f.int_cores - r.int_cores, int_gpus = f.int_gpus - r.int_gpus
        FROM job_resource r WHERE r.pk_job = NEW.pk_job AND f.pk_folder = OLD.pk_folder;
    RETURN NULL;
END $$;
CREATE TRIGGER after_job_moved AFTER UPDATE ON job FOR EACH ROW
    WHEN (OLD.pk_folder <> NEW.pk_folder) EXECUTE FUNCTION job_moved();

-- No writer books more than a host or a cap has.
CREATE FUNCTION guard_host() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.int_cores_idle < 0 THEN RAISE EXCEPTION 'unable to allocate additional core units'; END IF;
    IF NEW.int_mem_idle < 0 THEN RAISE EXCEPTION 'unable to allocate additional memory'; END IF;
    IF NEW.int_gpus_idle < 0 THEN RAISE EXCEPTION 'unable to allocate additional GPU units'; END IF;
    IF NEW.int_gpu_mem_idle < 0 THEN RAISE EXCEPTION 'unable to allocate additional GPU memory'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER verify_host_resources BEFORE UPDATE ON host FOR EACH ROW
    WHEN ((NEW.int_cores_idle, NEW.int_mem_idle, NEW.int_gpus_idle, NEW.int_gpu_mem_idle)
        IS DISTINCT FROM (OLD.int_cores_idle, OLD.int_mem_idle, OLD.int_gpus_idle, OLD.int_gpu_mem_idle))
    EXECUTE FUNCTION guard_host();

CREATE FUNCTION guard_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.int_cores > NEW.int_max_cores THEN RAISE EXCEPTION 'job has exceeded max cores'; END IF;
    IF NEW.int_gpus > NEW.int_max_gpus THEN RAISE EXCEPTION 'job has exceeded max GPU units'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER verify_job_resources BEFORE UPDATE ON job_resource FOR EACH ROW
    WHEN (NEW.int_max_cores = OLD.int_max_cores AND NEW.int_cores > OLD.int_cores
        OR NEW.int_max_gpus = OLD.int_max_gpus AND NEW.int_gpus > OLD.int_gpus)
    EXECUTE FUNCTION guard_job();

CREATE FUNCTION guard_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.int_cores > NEW.int_burst THEN RAISE EXCEPTION 'subscription has exceeded burst size'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER verify_subscription BEFORE UPDATE ON subscription FOR EACH ROW
    WHEN (NEW.int_burst = OLD.int_burst AND NEW.int_cores > OLD.int_cores)
    EXECUTE FUNCTION guard_subscription();

CREATE FUNCTION guard_proc() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'failed to allocate proc, tried to allocate 0 cores';
END $$;
CREATE TRIGGER before_insert_proc BEFORE INSERT ON proc FOR EACH ROW
    WHEN (NEW.int_cores_reserved <= 0) EXECUTE FUNCTION guard_proc();

-- How far each is from what it should have.
CREATE FUNCTION retier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'subscription' THEN NEW.float_tier := tier(NEW.int_cores, NEW.int_size);
        WHEN 'job_resource' THEN NEW.float_tier := tier(NEW.int_cores, NEW.int_min_cores);
        ELSE NEW.float_tier := soft_tier(NEW.int_cores, NEW.int_min_cores);
    END CASE;
    RETURN NEW;
END $$;
CREATE TRIGGER tier_subscription BEFORE UPDATE ON subscription FOR EACH ROW EXECUTE FUNCTION retier();
CREATE TRIGGER tier_job BEFORE UPDATE ON job_resource FOR EACH ROW EXECUTE FUNCTION retier();
CREATE TRIGGER tier_folder BEFORE UPDATE ON folder_resource FOR EACH ROW EXECUTE FUNCTION retier();
CREATE TRIGGER point_tier BEFORE UPDATE ON point FOR EACH ROW EXECUTE FUNCTION retier();

-- A proc that grows takes memory of its host; one that moves to another layer takes its cores along.
CREATE FUNCTION proc_memory() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE host SET int_mem_idle = int_mem_idle - (NEW.int_mem_reserved - OLD.int_mem_reserved)
        WHERE pk_host = NEW.pk_host;
    RETURN NULL;
END $$;
CREATE TRIGGER upgrade_proc_memory_usage AFTER UPDATE ON proc FOR EACH ROW
    WHEN (NEW.int_mem_reserved <> OLD.int_mem_reserved) EXECUTE FUNCTION proc_memory();

CREATE FUNCTION proc_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM layer_resource WHERE pk_layer IN (OLD.pk_layer, NEW.pk_layer) ORDER BY pk_layer DESC FOR UPDATE;
    UPDATE layer_resource SET int_cores = int_cores - OLD.int_cores_reserved,
        int_gpus = int_gpus - OLD.int_gpus_reserved WHERE pk_layer = OLD.pk_layer;
    UPDATE layer_resource SET int_cores = int_cores + NEW.int_cores_reserved,
        int_gpus = int_gpus + NEW.int_gpus_reserved WHERE pk_layer = NEW.pk_layer;
    RETURN NULL;
END $$;
CREATE TRIGGER update_proc_update_layer AFTER UPDATE ON proc FOR EACH ROW
    WHEN (NEW.pk_layer <> OLD.pk_layer) EXECUTE FUNCTION proc_moves();

-- A frame's state follows what it depends on.
CREATE FUNCTION frame_blocked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.str_state := 'DEPEND';
    NEW.ts_updated := now();
    NEW.int_version := NEW.int_version + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER update_frame_wait_to_dep BEFORE UPDATE ON frame FOR EACH ROW
    WHEN (NEW.int_depend_count > 0 AND NEW.str_state IN ('DEAD', 'SUCCEEDED', 'WAITING', 'CHECKPOINT'))
    EXECUTE FUNCTION frame_blocked();

CREATE FUNCTION frame_unblocked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.str_state := 'WAITING';
    NEW.ts_updated := now();
    NEW.ts_eligible := now();
    NEW.int_version := NEW.int_version + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER update_frame_dep_to_wait BEFORE UPDATE ON frame FOR EACH ROW
    WHEN (OLD.int_depend_count > 0 AND NEW.int_depend_count < 1 AND OLD.str_state = 'DEPEND')
    EXECUTE FUNCTION frame_unblocked();

CREATE FUNCTION frame_eaten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.str_state := 'SUCCEEDED';
    RETURN NEW;
END $$;
CREATE TRIGGER update_frame_eaten BEFORE UPDATE ON frame FOR EACH ROW
    WHEN (NEW.str_state = 'EATEN' AND OLD.str_state = 'SUCCEEDED') EXECUTE FUNCTION frame_eaten();

CREATE FUNCTION frame_checkpointed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.str_state := 'CHECKPOINT';
    RETURN NEW;
END $$;
CREATE TRIGGER update_frame_checkpoint_state BEFORE UPDATE ON frame FOR EACH ROW
    WHEN (NEW.str_state = 'WAITING' AND OLD.str_state = 'RUNNING'
        AND NEW.str_checkpoint_state IN ('ENABLED', 'COPYING')) EXECUTE FUNCTION frame_checkpointed();

CREATE FUNCTION frame_eligible() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.ts_eligible := coalesce(CASE WHEN TG_OP = 'INSERT' THEN NEW.ts_eligible END, now());
    RETURN NEW;
END $$;
CREATE TRIGGER set_frame_ts_eligible_on_insert BEFORE INSERT ON frame FOR EACH ROW
    WHEN (NEW.str_state = 'WAITING') EXECUTE FUNCTION frame_eligible();
CREATE TRIGGER set_frame_ts_eligible_setup_to_wait BEFORE UPDATE ON frame FOR EACH ROW
    WHEN (OLD.str_state = 'SETUP' AND NEW.str_state = 'WAITING') EXECUTE FUNCTION frame_eligible();

-- Each change of a frame's state is counted for its layer and its job, and kept as history.
CREATE FUNCTION count_frame() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE layer_stat SET %1$I = %1$I - 1, %2$I = %2$I + 1 WHERE pk_layer = $1',
        'int_' || lower(OLD.str_state) || '_count', 'int_' || lower(NEW.str_state) || '_count')
        USING NEW.pk_layer;
    EXECUTE format('UPDATE job_stat SET %1$I = %1$I - 1, %2$I = %2$I + 1 WHERE pk_job = $1',
        'int_' || lower(OLD.str_state) || '_count', 'int_' || lower(NEW.str_state) || '_count')
        USING NEW.pk_job;
    IF NEW.str_state = 'RUNNING' THEN
        UPDATE layer_stat SET ts_started = coalesce(ts_started, NEW.ts_started, now())
            WHERE pk_layer = NEW.pk_layer;
    END IF;
    IF OLD.str_state = 'RUNNING' THEN
        UPDATE layer_stat SET ts_stopped = coalesce(NEW.ts_stopped, now()) WHERE pk_layer = NEW.pk_layer;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER update_frame_status_counts AFTER UPDATE ON frame FOR EACH ROW
    WHEN (OLD.str_state <> 'SETUP' AND OLD.str_state <> NEW.str_state) EXECUTE FUNCTION count_frame();

CREATE FUNCTION keep_frame() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT keeps_history() THEN RETURN NULL; END IF;
    IF OLD.str_state = 'RUNNING' AND NEW.int_exit_status = 299 THEN
        -- It never ran.
        DELETE FROM frame_history WHERE int_ts_stopped = 0 AND pk_frame = NEW.pk_frame;
    ELSIF OLD.str_state = 'RUNNING' THEN
        UPDATE frame_history SET int_mem_max_used = NEW.int_mem_max_used,
            int_gpu_mem_max_used = NEW.int_gpu_mem_max_used, int_ts_stopped = epoch(now()),
            int_exit_status = NEW.int_exit_status,
            int_checkpoint_count = (NEW.str_state = 'CHECKPOINT')::int
            WHERE int_ts_stopped = 0 AND pk_frame = NEW.pk_frame;
    END IF;
    IF NEW.str_state = 'RUNNING' THEN
        INSERT INTO frame_history (pk_frame, pk_layer, pk_job, str_name, str_state, int_cores,
            int_mem_reserved, int_gpus, int_gpu_mem_reserved, str_host, int_ts_started, pk_alloc)
        VALUES (NEW.pk_frame, NEW.pk_layer, NEW.pk_job, NEW.str_name, 'RUNNING', NEW.int_cores,
            NEW.int_mem_reserved, NEW.int_gpus, NEW.int_gpu_mem_reserved, NEW.str_host, epoch(now()),
            (SELECT pk_alloc FROM host WHERE str_name = NEW.str_host));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER frame_history_open AFTER UPDATE ON frame FOR EACH ROW
    WHEN (NEW.str_state <> OLD.str_state) EXECUTE FUNCTION keep_frame();

-- The history of a job and of its layers is closed when it ends.
CREATE FUNCTION job_finished() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF keeps_history() THEN
        UPDATE job_history h SET pk_dept = NEW.pk_dept, int_core_time_success = u.int_core_time_success,
            int_core_time_fail = u.int_core_time_fail, int_gpu_time_success = u.int_gpu_time_success,
            int_gpu_time_fail = u.int_gpu_time_fail, int_frame_count = NEW.int_frame_count,
            int_layer_count = NEW.int_layer_count, int_waiting_count = s.int_waiting_count,
            int_dead_count = s.int_dead_count, int_depend_count = s.int_depend_count,
            int_eaten_count = s.int_eaten_count, int_succeeded_count = s.int_succeeded_count,
            int_running_count = s.int_running_count, int_max_rss = m.int_max_rss,
            int_gpu_mem_max = m.int_gpu_mem_max, int_ts_stopped = epoch(now())
            FROM job_usage u, job_stat s, job_mem m
            WHERE h.pk_job = NEW.pk_job AND u.pk_job = NEW.pk_job AND s.pk_job = NEW.pk_job
                AND m.pk_job = NEW.pk_job;
        UPDATE layer_history h SET int_core_time_success = u.int_core_time_success,
            int_core_time_fail = u.int_core_time_fail, int_gpu_time_success = u.int_gpu_time_success,
            int_gpu_time_fail = u.int_gpu_time_fail, int_frame_count = s.int_total_count,
            int_waiting_count = s.int_waiting_count, int_dead_count = s.int_dead_count,
            int_depend_count = s.int_depend_count, int_eaten_count = s.int_eaten_count,
            int_succeeded_count = s.int_succeeded_count, int_running_count = s.int_running_count,
            int_max_rss = m.int_max_rss, int_gpu_mem_max = m.int_gpu_mem_max
            FROM layer_usage u, layer_stat s, layer_mem m
            WHERE h.pk_job = NEW.pk_job AND u.pk_layer = h.pk_layer AND s.pk_layer = h.pk_layer
                AND m.pk_layer = h.pk_layer;
    END IF;
    DELETE FROM job_local WHERE pk_job = NEW.pk_job;
    RETURN NULL;
END $$;
CREATE TRIGGER after_job_finished AFTER UPDATE ON job FOR EACH ROW
    WHEN (OLD.str_state = 'PENDING' AND NEW.str_state = 'FINISHED') EXECUTE FUNCTION job_finished();

-- Each row of history says on which day it was changed last.
CREATE FUNCTION history_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.dt_last_modified := current_date;
    RETURN NEW;
END $$;
CREATE TRIGGER tbiu_job_history BEFORE INSERT OR UPDATE ON job_history FOR EACH ROW
    EXECUTE FUNCTION history_changed();
CREATE TRIGGER tbiu_layer_history BEFORE INSERT OR UPDATE ON layer_history FOR EACH ROW
    EXECUTE FUNCTION history_changed();
CREATE TRIGGER tbiu_frame_history BEFORE INSERT OR UPDATE ON frame_history FOR EACH ROW
    EXECUTE FUNCTION history_changed();
