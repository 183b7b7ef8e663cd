CREATE OR REPLACE FUNCTION windlass_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('windlass_opencue', '');
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER windlass_wake_waiting AFTER UPDATE OF int_waiting_count ON layer_stat
    FOR EACH ROW WHEN (NEW.int_waiting_count > OLD.int_waiting_count) EXECUTE FUNCTION windlass_wake();
CREATE OR REPLACE TRIGGER windlass_wake_job AFTER UPDATE OF b_paused, str_state ON job
    FOR EACH ROW WHEN (NEW.str_state = 'PENDING' AND NOT NEW.b_paused
        AND (OLD.b_paused OR OLD.str_state <> 'PENDING')) EXECUTE FUNCTION windlass_wake();
CREATE OR REPLACE TRIGGER windlass_wake_host AFTER UPDATE OF int_cores_idle, str_lock_state ON host
    FOR EACH ROW WHEN (NEW.int_cores_idle > OLD.int_cores_idle OR NEW.str_lock_state <> OLD.str_lock_state)
    EXECUTE FUNCTION windlass_wake();
