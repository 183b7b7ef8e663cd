//! The schema counts by itself, the compact one as OpenCue's own.

use crate::postgres;

const SEED: &str = "
INSERT INTO facility(pk_facility, str_name) VALUES ('fac', 'f');
INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('show', 's', true);
INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept) VALUES ('folder', 'show', 's', 'dept');
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state) VALUES ('job', 'folder', 'show', 'fac', 'dept', 'j', 'j', 'x', 'u', 'PENDING');
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
    VALUES ('layer', 'job', 'l', 'true', '1', 'Render');
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order, int_depend_count)
    VALUES ('frame', 'layer', 'job', '0001-l', 'DEPEND', 1, 1, 1);
UPDATE layer_stat SET int_depend_count = 1, int_total_count = 1 WHERE pk_layer = 'layer';
UPDATE job_stat SET int_depend_count = 1 WHERE pk_job = 'job'";

#[test]
fn a_frame_is_counted_through_its_states_and_kept_as_history() {
    let Some(cluster) = postgres::cluster() else { return };
    let name = cluster.database_name();
    cluster.sql(&name, SEED);
    let counts = |state: &str| {
        cluster.sql(
            &name,
            &format!("SELECT l.int_{state}_count, j.int_{state}_count FROM layer_stat l, job_stat j"),
        )
    };
    cluster.sql(&name, "UPDATE frame SET int_depend_count = 0");
    assert_eq!(counts("waiting"), "1|1", "what it depended on is done");
    cluster.sql(&name, "UPDATE frame SET str_state = 'RUNNING', str_host = 'h'");
    assert_eq!((counts("waiting"), counts("running")), ("0|0".to_owned(), "1|1".to_owned()));
    assert_eq!(cluster.sql(&name, "SELECT ts_started IS NOT NULL FROM layer_stat"), "t");
    cluster.sql(&name, "UPDATE frame SET str_state = 'WAITING', int_exit_status = 299");
    assert_eq!(cluster.sql(&name, "SELECT count(*) FROM frame_history"), "0", "it never ran");
    cluster.sql(&name, "UPDATE frame SET str_state = 'RUNNING', str_host = 'h'");
    cluster.sql(&name, "UPDATE frame SET str_state = 'SUCCEEDED', int_exit_status = 0");
    assert_eq!(cluster.sql(&name, "SELECT int_exit_status, int_ts_stopped > 0 FROM frame_history"), "0|t");
    cluster.sql(&name, "UPDATE job SET str_state = 'FINISHED'");
    assert_eq!(cluster.sql(&name, "SELECT int_ts_stopped > 0 FROM job_history"), "t");
}
