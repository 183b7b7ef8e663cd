//! The scheduler on a farm of its own: PostgreSQL is real, and a double of RQD answers for all hosts.

use crate::postgres;
use crate::rqd::{Mood, Rqd};
use deadpool_postgres::{Manager, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_gateway_opencue::scheduler::{Instance, Passed};

/// 20 hosts of 4 cores, and 120 frames of one core in two jobs; and a show that is Cuebot's, with the same.
const FARM: &str = "
INSERT INTO facility(pk_facility, str_name) VALUES ('fac', 'f');
INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
INSERT INTO alloc(pk_alloc, str_name, str_tag, pk_facility) VALUES ('alloc', 'f.general', 'general', 'fac');
INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('show', 's', true), ('other', 'o', false);
INSERT INTO subscription(pk_subscription, pk_alloc, pk_show, int_size, int_burst)
    VALUES ('sub', 'alloc', 'show', 10000, 100000), ('osub', 'alloc', 'other', 10000, 100000);
INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept)
    VALUES ('folder', 'show', 's', 'dept'), ('ofolder', 'other', 'o', 'dept');
INSERT INTO point(pk_point, pk_dept, pk_show) VALUES ('point', 'dept', 'show'), ('opoint', 'dept', 'other');
INSERT INTO host(pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    SELECT 'host' || n, 'alloc', '127.0.1.' || n, 'OPEN', 400, 400, 8000000, 8000000 FROM generate_series(1, 20) n;
INSERT INTO host_stat(pk_host_stat, pk_host, int_mem_total, int_mem_free, str_state, str_os)
    SELECT pk_host, pk_host, int_mem, int_mem, 'UP', 'rocky9,linux' FROM host;
INSERT INTO host_tag(pk_host_tag, pk_host, str_tag, str_tag_type) SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state, str_os, int_uid, str_log_dir)
    SELECT 'job' || n, 'folder', 'show', 'fac', 'dept', 'j' || n, 'j' || n, 'x', 'u', 'PENDING', 'linux', 1000, '/logs'
    FROM generate_series(0, 1) n;
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state) VALUES ('ojob', 'ofolder', 'other', 'fac', 'dept', 'oj', 'oj', 'x', 'u', 'PENDING');
UPDATE job_resource SET int_max_cores = 100000;
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min, b_threadable)
    SELECT 'layer' || n, 'job' || n, 'l', 'render #IFRAME# #LAYER#', '1-60', 'Render', 'gpu | general', 100000, false
    FROM generate_series(0, 1) n;
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags)
    VALUES ('olayer', 'ojob', 'l', 'true', '1-10', 'Render', 'general');
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'frame' || n, 'layer' || n % 2, 'job' || n % 2, to_char(n / 2 + 1, 'FM0000') || '-l', 'WAITING', n / 2 + 1, n
    FROM generate_series(0, 119) n;
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'oframe' || n, 'olayer', 'ojob', to_char(n, 'FM0000') || '-l', 'WAITING', n, n FROM generate_series(1, 10) n;
UPDATE layer_stat SET int_waiting_count = (SELECT count(*) FROM frame f WHERE f.pk_layer = layer_stat.pk_layer);
UPDATE job_stat SET int_waiting_count = (SELECT count(*) FROM frame f WHERE f.pk_job = job_stat.pk_job)";

/// What the tables count, and what a recount of the procs gives.
const AUDIT: &str = "SELECT string_agg(what, ', ') FROM (
    SELECT 'frames' AS what FROM frame f WHERE (str_state = 'RUNNING')
        <> EXISTS (SELECT FROM proc p WHERE p.pk_frame = f.pk_frame)
    UNION ALL SELECT 'host ' || str_name FROM host h WHERE int_cores_idle < 0 OR int_cores - int_cores_idle <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host)
    UNION ALL SELECT 'memory of ' || str_name FROM host h WHERE int_mem - int_mem_idle <>
        (SELECT coalesce(sum(int_mem_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host)
    UNION ALL SELECT pk_job FROM job_resource j WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_job = j.pk_job)
    UNION ALL SELECT pk_layer FROM layer_resource l WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_layer = l.pk_layer)
    UNION ALL SELECT 'subscription ' || pk_subscription FROM subscription s WHERE int_cores > int_burst
        OR int_cores <> (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_show = s.pk_show)
    UNION ALL SELECT 'folder ' || pk_folder FROM folder_resource r WHERE int_cores <> (SELECT
        coalesce(sum(int_cores_reserved), 0) FROM proc p JOIN job USING (pk_job) WHERE job.pk_folder = r.pk_folder)
    UNION ALL SELECT 'waiting of ' || pk_layer FROM layer_stat s WHERE (int_waiting_count, int_running_count) <>
        (SELECT count(*) FILTER (WHERE str_state = 'WAITING'), count(*) FILTER (WHERE str_state = 'RUNNING')
            FROM frame f WHERE f.pk_layer = s.pk_layer)
    UNION ALL SELECT 'a show of others' FROM proc JOIN show USING (pk_show) WHERE NOT b_scheduler_managed
    UNION ALL SELECT 'figures of others' FROM subscription JOIN show USING (pk_show)
        WHERE NOT b_scheduler_managed AND int_cores <> 0) found";

/// The other show is Windlass's, too, and has 120 frames of one core. Neither show may have all of the 80 cores.
const BOTH_SHOWS: &str = "
UPDATE show SET b_scheduler_managed = true;
UPDATE subscription SET int_burst = 6000;
UPDATE job SET str_os = 'linux', int_uid = 1000, str_log_dir = '/logs' WHERE pk_job = 'ojob';
UPDATE layer SET int_mem_min = 100000, b_threadable = false WHERE pk_layer = 'olayer';
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'oframe' || n, 'olayer', 'ojob', to_char(n, 'FM0000') || '-l', 'WAITING', n, n FROM generate_series(11, 120) n;
UPDATE layer_stat SET int_waiting_count = 120 WHERE pk_layer = 'olayer';
UPDATE job_stat SET int_waiting_count = 120 WHERE pk_job = 'ojob'";

/// A farm with a double of RQD.
struct Farm {
    name: String,
    rqd: Arc<Rqd>,
}

impl Farm {
    async fn start(changes: &str, mood: Mood) -> Option<Farm> {
        let cluster = postgres::cluster()?;
        let name = cluster.database_name();
        cluster.sql(&name, FARM);
        cluster.sql(&name, changes);
        Some(Farm { name, rqd: Rqd::start(mood).await })
    }

    fn sql(&self, sql: &str) -> String {
        postgres::cluster().unwrap().sql(&self.name, sql)
    }

    fn audit(&self) {
        assert_eq!(self.sql(AUDIT), "", "these differ from a recount");
    }

    /// An instance with a config file of the double's port and these lines.
    fn instance(&self, lines: &str) -> Instance {
        self.instance_of(&format!("rqd: {{grpc_port: {}}}\n{lines}", self.rqd.port))
    }

    /// One that books and does not launch.
    fn dry_instance(&self) -> Instance {
        self.instance_of("rqd: {dry_run_mode: true}")
    }

    fn instance_of(&self, text: &str) -> Instance {
        let config: tokio_postgres::Config =
            postgres::cluster().unwrap().address(&self.name).parse().unwrap();
        let pool = Pool::builder(Manager::new(config.clone(), NoTls)).max_size(8).build().unwrap();
        Instance::new(pool, config, Config::parse(text).unwrap().instance)
    }

    /// Passes until one books nothing, and waits for the launches.
    async fn fill(&self, instance: &mut Instance) -> usize {
        let mut booked = 0;
        loop {
            let passed = instance.pass().await.unwrap();
            booked += passed.booked;
            if passed.booked == 0 {
                instance.launcher().settle().await;
                return booked;
            }
        }
    }

    /// Passes until this number of frames runs.
    async fn until_passed(&self, instance: &mut Instance, frames: usize) {
        let began = Instant::now();
        while self.rqd.running().len() < frames {
            assert!(began.elapsed() < Duration::from_secs(60), "{} run", self.rqd.running().len());
            instance.pass().await.unwrap();
            instance.launcher().settle().await;
        }
    }

    /// Polls until a query answers so.
    async fn until(&self, sql: &str, expected: &str) {
        let began = Instant::now();
        loop {
            let answer = self.sql(sql);
            if answer == expected {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{sql}: {answer}, and not {expected}");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_booked_and_launched_until_the_farm_is_full() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    assert_eq!(farm.fill(&mut instance).await, 80);
    farm.audit();
    let running = farm.rqd.running();
    assert_eq!(running.len(), 80);
    assert_eq!(farm.sql("SELECT count(*) FROM frame WHERE str_state = 'WAITING' AND pk_job <> 'ojob'"), "40");
    let frame = &running["frame0"];
    assert_eq!((frame.command.as_str(), frame.num_cores, frame.uid), ("render 1 l", 100, Some(1000)));
    assert_eq!((frame.show.as_str(), frame.job_name.as_str(), frame.log_dir.as_str()), ("s", "j0", "/logs"));
    assert_eq!((frame.soft_memory_limit, frame.hard_memory_limit), (160_000, 200_000));
    assert_eq!(frame.environment["CUE_IFRAME"], "1");
    assert_eq!(farm.sql("SELECT pk_proc FROM proc WHERE pk_frame = 'frame0'"), frame.resource_id);
    let text = instance.metrics().text();
    assert!(text.contains("scheduler_frames_dispatched_total{show_name=\"s\"} 80"), "{text}");
    assert!(text.contains("scheduler_frames_launched_total 80"), "{text}");
}

/// The value of a count in OpenMetrics text.
fn count_of(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counts_of_the_stock_scheduler_have_values() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    // The first pass fills the farm, and the second one finds no room for the rest of the second job.
    assert_eq!(farm.fill(&mut instance).await, 80);
    let text = instance.metrics().text();
    for (name, value) in [
        ("scheduler_jobs_queried_total", 3.0),
        ("scheduler_jobs_processed_total{show_name=\"s\"}", 3.0),
        ("scheduler_frames_dispatched_total{show_name=\"s\"}", 80.0),
        ("scheduler_time_to_book_seconds_count", 80.0),
        ("scheduler_job_query_duration_seconds_count", 2.0),
        ("scheduler_candidates_per_layer_count", 2.0),
        ("scheduler_candidates_per_layer_sum", 20.0),
        ("scheduler_host_cache_size", 20.0),
        ("scheduler_host_cache_hits_total", 80.0),
        ("scheduler_checkout_outcome_total{outcome=\"booked\"}", 80.0),
        ("scheduler_checkout_outcome_total{outcome=\"no_progress\"}", 0.0),
        ("scheduler_pass_terminated_reason_total{reason=\"booked\"}", 1.0),
        ("scheduler_pass_terminated_reason_total{reason=\"saturated\"}", 1.0),
        ("scheduler_frames_dispatched_per_pass_sum", 80.0),
    ] {
        assert_eq!(count_of(&text, name), value, "{name}: {text}");
    }
    let misses = count_of(&text, "scheduler_host_cache_misses_total");
    assert!(misses > 0.0, "{text}");
    assert_eq!(count_of(&text, "scheduler_no_candidate_iterations_total"), misses);
    assert_eq!(count_of(&text, "scheduler_checkout_outcome_total{outcome=\"no_match\"}"), misses);
    assert!(count_of(&text, "scheduler_hosts_judged_total") >= 80.0, "{text}");
    assert!(count_of(&text, "scheduler_recompute_cycle_duration_seconds_count") >= 1.0, "{text}");
    assert!((0.0..=1.0).contains(&count_of(&text, "scheduler_instance_load")), "{text}");
    let (waited_s, read_s) = (
        count_of(&text, "scheduler_time_to_book_seconds_sum"),
        count_of(&text, "scheduler_job_query_duration_seconds_sum"),
    );
    assert!(waited_s > 0.0 && waited_s < 80.0 * 300.0 && read_s > 0.0, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_name_the_cap_and_the_wait_of_a_frame() {
    let changes = "UPDATE job_resource SET int_max_cores = 900;
        UPDATE frame SET ts_eligible = now() - interval '50 s', ts_updated = now() - interval '20 s'";
    let Some(farm) = Farm::start(changes, Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    assert_eq!(farm.fill(&mut instance).await, 18);
    let text = instance.metrics().text();
    assert!(count_of(&text, "scheduler_accounting_limit_exceeded_total{table=\"job\"}") > 0.0, "{text}");
    assert!(count_of(&text, "scheduler_job_cap_precheck_skip_total") > 0.0, "{text}");
    assert_eq!(count_of(&text, "scheduler_time_to_book_seconds_bucket{le=\"10.0\"}"), 0.0, "{text}");
    assert_eq!(count_of(&text, "scheduler_time_to_book_seconds_bucket{le=\"300.0\"}"), 18.0, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_reached_and_not_exceeded() {
    let cases = [
        ("UPDATE subscription SET int_burst = 1750", 17),
        ("UPDATE folder_resource SET int_max_cores = 2300", 23),
        ("UPDATE job_resource SET int_max_cores = 900", 18),
        ("UPDATE job_resource SET int_max_cores = -1", 80),
        (
            "INSERT INTO limit_record VALUES ('lic', 'nuke', 7, false);
          INSERT INTO layer_limit SELECT pk_layer, pk_layer, 'lic' FROM layer",
            7,
        ),
        (
            "INSERT INTO limit_record VALUES ('lic', 'nuke', 3, true);
          INSERT INTO layer_limit SELECT pk_layer, pk_layer, 'lic' FROM layer",
            12,
        ),
        ("UPDATE layer SET str_tags = 'gpu'", 0),
        ("UPDATE job SET str_os = 'irix' WHERE pk_job = 'job0'", 60),
        ("UPDATE layer SET ts_start_after = now() + interval '1 hour' WHERE pk_layer = 'layer1'", 60),
        ("UPDATE host SET str_lock_state = 'LOCKED' WHERE pk_host <> 'host3'", 4),
        ("UPDATE host_stat SET ts_ping = now() - interval '10 minutes' WHERE pk_host <> 'host3'", 4),
        ("UPDATE host SET int_thread_mode = 1 WHERE pk_host <> 'host3'", 4),
        ("UPDATE layer SET int_cores_min = 0, b_threadable = true", 20),
        ("UPDATE layer SET int_cores_min = -100, b_threadable = true", 20),
        ("UPDATE layer SET int_cores_min = 50", 120),
        ("UPDATE layer SET int_mem_min = 4000000", 40),
        ("UPDATE host_stat SET int_mem_free = 100000", 20),
    ];
    for (changes, expected) in cases {
        let Some(farm) = Farm::start(changes, Mood::Takes).await else { return };
        let mut instance = farm.instance("");
        assert_eq!(farm.fill(&mut instance).await, expected, "{changes}");
        farm.audit();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_keeps_frames_from_starting() {
    let cases = [
        ("", "60 of its frames fit now"),
        ("UPDATE job SET b_paused = true", "the job is paused"),
        ("UPDATE show SET b_scheduler_managed = false", "'cueadmin -scheduler-managed s on' changes that"),
        ("UPDATE show SET b_booking_enabled = false", "the show s is paused, or its booking is switched off"),
        ("DELETE FROM subscription WHERE pk_show = 'show'", "the show s has no subscription with a burst"),
        ("UPDATE layer SET ts_start_after = now() + interval '1 hour'", "the layer starts after 2"),
        ("UPDATE layer SET str_tags = 'gpu'", "20 hosts: has none of the layer's tags: gpu (127.0.1."),
        ("UPDATE job SET str_os = 'irix'", "20 hosts: has another operating system than irix (127.0.1."),
        ("UPDATE layer SET int_cores_min = 500", "20 hosts: too small, "),
        ("UPDATE host SET int_cores_idle = 50", "20 hosts: busy, "),
        ("UPDATE host SET int_thread_mode = 1", "20 hosts: takes only threadable frames"),
        ("UPDATE host SET str_lock_state = 'LOCKED'", "no open host has reported lately"),
        (
            "UPDATE subscription SET int_burst = 50",
            "20 hosts: the show is at its burst in the host's allocation",
        ),
        ("UPDATE job_resource SET int_max_cores = 50", "the job has all cores or gpus that it may have"),
        (
            "UPDATE folder_resource SET int_max_cores = 50",
            "the job's folder has all cores or gpus that it may have",
        ),
        (
            "UPDATE frame SET str_state = 'DEPEND', int_depend_count = 1 WHERE pk_job = 'job0'",
            "60 of its frames wait for",
        ),
        (
            "INSERT INTO limit_record VALUES ('lic', 'nuke', 0, false);
          INSERT INTO layer_limit SELECT pk_layer, pk_layer, 'lic' FROM layer",
            "the limit nuke has none left",
        ),
    ];
    for (changes, expected) in cases {
        let Some(farm) = Farm::start(changes, Mood::Takes).await else { return };
        let layers = farm.instance("").why("j0", None).await.unwrap();
        assert_eq!(layers.len(), 1, "{changes}");
        let reasons = layers[0].reasons.join("\n");
        assert!(reasons.contains(expected), "{changes}: {reasons}");
    }
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    farm.fill(&mut instance).await;
    let layers = instance.why("j1", Some("0001-l")).await.unwrap();
    assert!(layers[0].reasons[0].starts_with("frame 0001-l runs on 127.0.1."), "{layers:?}");
    assert_eq!(layers[0].frames, "40 waiting, 20 running");
    assert!(layers[0].reasons[1].starts_with("20 hosts: busy, cpu"), "{layers:?}");
    assert_eq!(instance.why("j0", Some("nothing")).await.unwrap(), []);
    assert_eq!(instance.why("nothing", None).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_books_by_the_tags_that_it_is_given_and_by_no_others() {
    // Three hosts are urgent, too, and so are frames of the second job.
    let changes = "INSERT INTO host_tag(pk_host_tag, pk_host, str_tag, str_tag_type)
            SELECT pk_host || 'u', pk_host, 'urgent', 'MANUAL' FROM host WHERE pk_host IN ('host1', 'host2', 'host3');
        UPDATE layer SET str_tags = 'urgent' WHERE pk_layer = 'layer1'";
    for (lines, frames, of_urgent) in [
        ("scheduler: {manual_tags: [urgent]}", 12, 12),
        ("scheduler: {alloc_tags: [{show: s, tag: general}], manual_tags: [urgent]}", 72, 12),
        ("scheduler: {alloc_tags: [{show: s, tag: general}], manual_tags: [desktop]}", 60, 0),
        ("scheduler: {alloc_tags: [{show: o, tag: general}], manual_tags: [urgent]}", 12, 12),
        ("scheduler: {alloc_tags: [{show: o, tag: general}]}", 0, 0),
        ("scheduler: {manual_tags: [urgent], ignore_tags: [urgent]}", 0, 0),
    ] {
        let Some(farm) = Farm::start(changes, Mood::Takes).await else { return };
        let mut instance = farm.instance(lines);
        assert_eq!(farm.fill(&mut instance).await, frames, "{lines}");
        let urgent = farm.sql("SELECT count(*) FROM proc WHERE pk_layer = 'layer1'");
        assert_eq!(urgent, of_urgent.to_string(), "{lines}");
        farm.audit();
        if of_urgent == frames && frames > 0 {
            let reasons = reasons(&instance).await;
            assert!(reasons.contains("books by none of the layer's tags"), "{lines}: {reasons}");
        }
    }
}

/// What the first job waits for.
async fn reasons(instance: &Instance) -> String {
    instance.why("j0", None).await.unwrap()[0].reasons.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_a_show_that_no_listed_allocation_is_of() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    for listed in ["{show: o, tag: general}", "{show: s, tag: priority}"] {
        let told = reasons(&farm.instance(&format!("scheduler: {{alloc_tags: [{listed}]}}"))).await;
        assert!(
            told.contains("books the show s on none of its allocations: 'alloc_tags'"),
            "{listed}: {told}"
        );
    }
    let told = reasons(&farm.instance("scheduler: {alloc_tags: [{show: s, tag: general}]}")).await;
    assert!(told.contains("60 of its frames fit now"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_books_nothing() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    let previews = instance.preview().await.unwrap();
    assert_eq!(previews.iter().map(|preview| preview.frames).sum::<usize>(), 80);
    let by_layer: BTreeMap<&str, i64> =
        previews.iter().map(|preview| (preview.layer.as_str(), preview.cores)).collect();
    assert!(by_layer.keys().all(|layer| ["j0/l", "j1/l"].contains(layer)), "{by_layer:?}");
    assert_eq!(farm.sql("SELECT count(*) FROM proc"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_hosts_refuse_are_killed_and_wait_again() {
    let Some(farm) = Farm::start("", Mood::Refuses).await else { return };
    let mut instance = farm.instance("");
    assert_eq!(farm.fill(&mut instance).await, 80);
    farm.audit();
    assert_eq!(farm.sql("SELECT count(*) FROM proc"), "0", "all bookings were taken back");
    assert_eq!(farm.rqd.killed().len(), 80, "each was killed before");
    assert_eq!(instance.pass().await.unwrap().booked, 0, "what was refused is left out for a while");
    farm.rqd.set(Mood::Takes);
    let mut other = farm.instance("");
    assert_eq!(farm.fill(&mut other).await, 80, "an instance without that experience goes on");
    assert_eq!(
        farm.sql("SELECT DISTINCT int_retries FROM frame WHERE str_state = 'RUNNING'"),
        "0",
        "no retry is spent"
    );
    farm.audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_host_takes_or_that_cannot_be_booked_holds_up_no_other() {
    // The first job in the line runs as root, which RQD refuses.
    let changes = "UPDATE job SET int_uid = 0 WHERE pk_job = 'job0'";
    let Some(farm) = Farm::start(changes, Mood::RefusesRoot).await else { return };
    let mut instance = farm.instance("");
    farm.fill(&mut instance).await;
    farm.until_passed(&mut instance, 60).await;
    assert!(farm.rqd.running().values().all(|frame| frame.job_id == "job1"));
    farm.audit();
    // A trigger of the farm's own refuses the first job's procs.
    let changes = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.pk_job = 'job0' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER no BEFORE INSERT ON proc FOR EACH ROW EXECUTE FUNCTION no()";
    let Some(farm) = Farm::start(changes, Mood::Takes).await else { return };
    let mut instance = farm.instance("");
    farm.until_passed(&mut instance, 60).await;
    assert!(farm.rqd.running().values().all(|frame| frame.job_id == "job1"));
    farm.audit();
    // A frame that PostgreSQL refuses does not fail the pass if it is the only one of its batch.
    let alone = format!(
        "{changes}; UPDATE frame SET str_state = 'EATEN'
            WHERE pk_frame <> (SELECT min(pk_frame) FROM frame WHERE pk_job = 'job0')"
    );
    let Some(farm) = Farm::start(&alone, Mood::Takes).await else { return };
    let passed = farm.instance("").pass().await.unwrap();
    assert_eq!((passed.placed, passed.booked), (1, 0));
    farm.audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_a_layer_that_a_running_instance_leaves_out() {
    let changes = "UPDATE job SET int_uid = 0 WHERE pk_job = 'job0'";
    let Some(farm) = Farm::start(changes, Mood::RefusesRoot).await else { return };
    let mut instance = farm.instance("");
    let running = tokio::spawn(async move { instance.run().await });
    // Another process asks, which has met no refusal itself.
    let asking = farm.instance("");
    let began = Instant::now();
    loop {
        let layers = asking.why("j0", None).await.unwrap();
        let reasons = layers[0].reasons.join("\n");
        if reasons.contains("it is left out for ") {
            assert!(reasons.contains("hosts refused its frames, the last one with: "), "{reasons}");
            assert!(reasons.contains("this user cannot run frames"), "{reasons}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{reasons}");
        tokio::task::yield_now().await;
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_without_an_answer_is_killed_before_its_frame_waits_again() {
    let Some(farm) = Farm::start("", Mood::TakesSilently).await else { return };
    let mut instance = farm.instance("windlass: {rqd_call_timeout: 500ms}");
    assert_eq!(farm.fill(&mut instance).await, 80);
    assert_eq!(farm.rqd.running().len(), 0, "what they had begun was killed");
    assert_eq!(farm.sql("SELECT count(*) FROM proc"), "0");
    assert_eq!(farm.rqd.doubled(), Vec::<String>::new());
    farm.audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_booked_that_died_before_the_launch_waits_again() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    // It dies between commit and launch: its bookings are there, and no host was told.
    let mut dead = farm.dry_instance();
    assert_eq!(farm.fill(&mut dead).await, 80);
    drop(dead);
    assert_eq!(farm.rqd.running().len(), 0);
    // Some of them had been launched.
    let launched = farm.sql("SELECT pk_frame || ' ' || pk_proc FROM proc ORDER BY 1 LIMIT 5");
    for run in launched.lines() {
        let (frame, proc_id) = run.split_once(' ').unwrap();
        farm.rqd.begin(frame, proc_id);
    }
    // Of another one an earlier run goes on, which is not what was booked.
    let earlier = farm.sql("SELECT pk_frame FROM proc ORDER BY 1 DESC LIMIT 1");
    farm.rqd.begin(&earlier, "earlier");
    farm.sql(
        "UPDATE proc SET ts_booked = now() - interval '1 minute', ts_ping = now() - interval '1 minute'",
    );
    let mut instance = farm.instance("");
    let metrics = instance.metrics();
    let running = tokio::spawn(async move { instance.run().await });
    farm.until("SELECT count(*) FROM proc WHERE ts_booked > now() - interval '50 s'", "75").await;
    let began = Instant::now();
    while farm.rqd.running().len() < 80 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} run", farm.rqd.running().len());
        tokio::task::yield_now().await;
    }
    running.abort();
    farm.audit();
    assert_eq!(farm.rqd.doubled(), Vec::<String>::new(), "none that ran was launched again");
    assert!(metrics.text().contains("scheduler_bookings_recovered_total 75"), "{}", metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_instances_share_a_show_without_a_frame_twice() {
    for count in [2, 4] {
        let Some(farm) = Farm::start("UPDATE subscription SET int_burst = 6000", Mood::Takes).await else {
            return;
        };
        let farm = Arc::new(farm);
        let instances = (0..count).map(|_| {
            let farm = farm.clone();
            tokio::spawn(async move {
                let mut instance = farm.instance("");
                let mut booked = 0;
                while farm.sql("SELECT count(*) FROM proc") != "60" {
                    let Passed { booked: some, .. } = instance.pass().await.unwrap();
                    booked += some;
                }
                instance.launcher().settle().await;
                booked
            })
        });
        let instances: Vec<_> = instances.collect();
        let mut booked = 0;
        for instance in instances {
            booked += instance.await.unwrap();
        }
        assert_eq!((booked, farm.rqd.running().len()), (60, 60));
        assert_eq!(farm.rqd.doubled(), Vec::<String>::new());
        farm.audit();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_with_different_shows_fill_the_same_hosts() {
    let Some(farm) = Farm::start(BOTH_SHOWS, Mood::Takes).await else { return };
    let farm = Arc::new(farm);
    let instances = ["s", "o"].map(|show| {
        let farm = farm.clone();
        tokio::spawn(async move {
            let mut instance = farm.instance(&format!("windlass: {{shows: [{show}]}}"));
            let (mut booked, began) = (0, Instant::now());
            while farm.sql("SELECT count(*) FROM proc") != "80" {
                assert!(began.elapsed() < Duration::from_secs(60), "{show} booked {booked}");
                booked += instance.pass().await.unwrap().booked;
            }
            instance.launcher().settle().await;
            booked
        })
    });
    let mut booked = Vec::new();
    for instance in instances {
        booked.push(instance.await.unwrap());
    }
    assert_eq!((booked.iter().sum::<usize>(), farm.rqd.running().len()), (80, 80), "{booked:?}");
    assert!(booked.iter().all(|frames| *frames >= 20), "{booked:?}");
    assert_eq!(farm.rqd.doubled(), Vec::<String>::new());
    farm.audit();
}

/// A connection that plans the show, as far as instances see.
async fn plans_the_show(farm: &Farm) -> tokio_postgres::Client {
    let config: tokio_postgres::Config = postgres::cluster().unwrap().address(&farm.name).parse().unwrap();
    let (other, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    // The second half of the key is the show's.
    other.batch_execute("SELECT pg_advisory_lock(x'73686f77'::int, hashtext('show'))").await.unwrap();
    other
}

/// Locks of this farm's instances.
const LOCKS: &str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()";

/// Waits until an instance is the next one to plan the show.
async fn until_one_is_next(farm: &Farm) {
    farm.until(&format!("{LOCKS} AND l.classid = x'6e657874'::int"), "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_waits_for_a_show_that_another_plans() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let other = plans_the_show(&farm).await;
    let mut impatient = farm.instance("windlass: {look_interval: 50ms}");
    let passed = impatient.pass().await.unwrap();
    assert_eq!(passed, Passed { layers: 1, placed: 0, booked: 0 }, "the other one may have work");
    assert!(impatient.metrics().text().contains("scheduler_hosts 0"), "it reads no host for nothing");
    let mut instance = farm.instance("windlass: {look_interval: 60s}");
    let waiting = tokio::spawn(async move { instance.pass().await.unwrap() });
    until_one_is_next(&farm).await;
    // A snapshot would keep rows from being pruned that the other one changes again and again.
    let snapshots = "SELECT count(*) FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()";
    farm.until(snapshots, "0").await;
    drop(other);
    assert_eq!(waiting.await.unwrap().booked, 80, "it goes on when the other one is gone");
    farm.until(LOCKS, "0").await;
    assert_eq!(impatient.pass().await.unwrap().booked, 0);
    farm.audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_waits_comes_before_one_that_has_just_planned() {
    let Some(farm) = Farm::start("", Mood::Takes).await else { return };
    let other = plans_the_show(&farm).await;
    let mut instance = farm.instance("windlass: {look_interval: 60s}");
    let waiting = tokio::spawn(async move { instance.pass().await.unwrap() });
    until_one_is_next(&farm).await;
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    // It finds the show free if it is quicker, and leaves it to the one that is next.
    let mut eager = farm.instance("windlass: {look_interval: 60s}");
    assert_eq!(eager.pass().await.unwrap().booked, 0);
    assert_eq!(waiting.await.unwrap().booked, 80);
    farm.audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_woken_and_looks_by_itself() {
    let Some(farm) = Farm::start("UPDATE job SET b_paused = true", Mood::Takes).await else { return };
    farm.sql(windlass_gateway_opencue::schema::WAKE);
    let mut instance = farm.instance("windlass: {look_interval: 60s}");
    let running = tokio::spawn(async move { instance.run().await });
    farm.until(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%unlock%' AND pid <> pg_backend_pid()",
        "1",
    )
    .await;
    farm.sql("UPDATE job SET b_paused = false WHERE pk_job = 'job0'");
    farm.until("SELECT count(*) FROM proc", "60").await;
    running.abort();
    let mut looking = farm.instance("windlass: {look_interval: 100ms}");
    let running = tokio::spawn(async move { looking.run().await });
    farm.sql("DROP TRIGGER windlass_wake_job ON job; UPDATE job SET b_paused = false WHERE pk_job = 'job1'");
    farm.until("SELECT count(*) FROM proc", "80").await;
    running.abort();
}

/// What Cuebot does when frames of a managed show end: the scheduler's figures are left to the scheduler.
const CUEBOT_ENDS: &str = "WITH gone AS (
        DELETE FROM proc WHERE pk_proc IN (SELECT pk_proc FROM proc WHERE pk_show = 'show' ORDER BY pk_proc LIMIT 10)
        RETURNING *),
    host AS (UPDATE host h SET int_cores_idle = int_cores_idle + g.cores, int_mem_idle = int_mem_idle + g.mem
        FROM (SELECT pk_host, sum(int_cores_reserved) AS cores, sum(int_mem_reserved) AS mem FROM gone GROUP BY 1) g
        WHERE g.pk_host = h.pk_host)
    UPDATE frame SET str_state = 'SUCCEEDED', int_exit_status = 0, int_version = int_version + 1
        FROM gone WHERE frame.pk_frame = gone.pk_frame;
    NOTIFY acct_release, '{}'";

#[tokio::test(flavor = "multi_thread")]
async fn figures_that_cuebot_leaves_are_recounted_and_others_are_not() {
    let Some(farm) = Farm::start("UPDATE subscription SET int_burst = 1000", Mood::Takes).await else {
        return;
    };
    // Nothing says that these are wrong: they are Cuebot's own.
    farm.sql("UPDATE layer_resource SET int_cores = 7 WHERE pk_layer = 'olayer'; UPDATE folder_resource SET int_cores = 5
        WHERE pk_folder = 'ofolder'; UPDATE point SET int_cores = 3 WHERE pk_show = 'other'");
    let mut instance = farm.instance("");
    let running = tokio::spawn(async move { instance.run().await });
    for ended in 1..=5 {
        farm.until("SELECT count(*) FROM proc", "10").await;
        farm.sql(CUEBOT_ENDS);
        farm.until("SELECT count(*) FROM frame WHERE str_state = 'SUCCEEDED'", &(ended * 10).to_string())
            .await;
    }
    let others = "SELECT l.int_cores || ' ' || f.int_cores || ' ' || p.int_cores FROM layer_resource l, folder_resource f,
        point p WHERE l.pk_layer = 'olayer' AND f.pk_folder = 'ofolder' AND p.pk_show = 'other'";
    assert_eq!(farm.sql(others), "7 5 3");
    farm.sql(
        "UPDATE layer_resource SET int_cores = 0 WHERE pk_layer = 'olayer';
         UPDATE folder_resource SET int_cores = 0 WHERE pk_folder = 'ofolder'",
    );
    farm.until("SELECT count(*) FROM proc", "10").await;
    farm.until(AUDIT, "").await;
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_restarted_is_found_again() {
    let Ok(cluster) = postgres::Cluster::start(&["fsync=off"]) else {
        println!("SKIP what needs PostgreSQL of its own: it cannot be started");
        return;
    };
    let name = cluster.database_name();
    cluster.sql(&name, FARM);
    cluster.sql(&name, "UPDATE job SET b_paused = true WHERE pk_job = 'job1'");
    let rqd = Rqd::start(Mood::Takes).await;
    let config: tokio_postgres::Config = cluster.address(&name).parse().unwrap();
    let pool = Pool::builder(Manager::new(config.clone(), NoTls)).max_size(8).build().unwrap();
    let text = format!("rqd: {{grpc_port: {}}}", rqd.port);
    let mut instance = Instance::new(pool, config, Config::parse(&text).unwrap().instance);
    let running = tokio::spawn(async move { instance.run().await });
    let began = Instant::now();
    while rqd.running().len() < 60 {
        assert!(began.elapsed() < Duration::from_secs(30));
        tokio::task::yield_now().await;
    }
    cluster.crash();
    cluster.start_again();
    cluster.sql(&name, "UPDATE job SET b_paused = false");
    while rqd.running().len() < 80 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} run", rqd.running().len());
        tokio::task::yield_now().await;
    }
    running.abort();
    assert_eq!(cluster.sql(&name, AUDIT), "");
    assert_eq!(rqd.doubled(), Vec::<String>::new());
}
