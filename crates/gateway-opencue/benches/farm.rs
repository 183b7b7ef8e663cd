//! The scheduler on farms of a size: frames a second, statements and cpu of PostgreSQL for each frame, and the time from
//! a waiting frame to its launch. PostgreSQL has `fsync=on`, and shares the machine's cores. Names of scenarios may be
//! given; none is all.

#[path = "../../cuebot/tests/support/postgres.rs"]
mod postgres;
#[path = "../tests/support/rqd.rs"]
mod rqd;

use deadpool_postgres::{Manager, Pool};
use postgres::Cluster;
use rqd::{Mood, Rqd};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;
use windlass_gateway_opencue::schema;

/// Clock ticks of a second, in `/proc`.
const TICKS_PER_S: f64 = 100.0;

/// A farm to be made.
#[derive(Clone, Copy)]
struct Size {
    /// How many hosts of how many cores.
    hosts: &'static [(u32, u32)],
    jobs: u32,
    layers: u32,
    frames: u32,
}

const USUAL: Size = Size { hosts: &[(1_000, 32)], jobs: 100, layers: 10, frames: 20 };
/// 1,553 hosts of 57,000 cores, with as many frames of one core: from desks of 8 cores to servers of 128, more than half
/// of the cores on those of 64.
const FILL: Size = Size {
    hosts: &[(161, 8), (422, 16), (450, 32), (500, 64), (20, 128)],
    jobs: 100,
    layers: 10,
    frames: 57,
};

impl Size {
    fn hosts(&self) -> u32 {
        self.hosts.iter().map(|(count, _)| count).sum()
    }

    fn cores(&self) -> u32 {
        self.hosts.iter().map(|(count, cores)| count * cores).sum()
    }

    /// The numbers of the first and the last host of each kind, and what each has, as rows of SQL.
    fn kinds(&self) -> String {
        let mut last = 0;
        let mut rows = Vec::new();
        for (count, cores) in self.hosts {
            rows.push(format!("({}, {}, {})", last + 1, last + count, cores * 100));
            last += count;
        }
        rows.join(", ")
    }
}

fn farm_sql(size: Size) -> String {
    let kinds = size.kinds();
    let Size { jobs, layers, frames, .. } = size;
    format!(
        "INSERT INTO facility(pk_facility, str_name) VALUES ('fac', 'f');
         INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
         INSERT INTO alloc(pk_alloc, str_name, str_tag, pk_facility) VALUES ('alloc', 'f.general', 'general', 'fac');
         INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('show', 's', true);
         INSERT INTO subscription(pk_subscription, pk_alloc, pk_show, int_size, int_burst)
             VALUES ('sub', 'alloc', 'show', 2000000000, 2000000000);
         INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept) VALUES ('folder', 'show', 's', 'dept');
         INSERT INTO point(pk_point, pk_dept, pk_show) VALUES ('point', 'dept', 'show');
         INSERT INTO host(pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
             SELECT 'host' || n, 'alloc', '127.0.' || n / 250 || '.' || n % 250 + 1, 'OPEN', cores, cores,
                 134217728, 134217728
             FROM (VALUES {kinds}) kind (first, last, cores), generate_series(first, last) n;
         INSERT INTO host_stat(pk_host_stat, pk_host, int_mem_total, int_mem_free, str_state, str_os, ts_ping)
             SELECT pk_host, pk_host, int_mem, int_mem, 'UP', 'linux', now() FROM host;
         INSERT INTO host_tag(pk_host_tag, pk_host, str_tag, str_tag_type)
             SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
         INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot,
             str_user, str_state, str_os, int_uid, str_log_dir)
             SELECT 'job' || n, 'folder', 'show', 'fac', 'dept', 'j' || n, 'j' || n, 'x', 'u', 'PENDING', 'linux', 1000,
                 '/logs' FROM generate_series(1, {jobs}) n;
         UPDATE job_resource SET int_max_cores = 2000000000;
         INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min,
             b_threadable)
             SELECT 'layer' || j || '-' || n, 'job' || j, 'l' || n, 'true #IFRAME#', '1-{frames}', 'Render', 'general',
                 262144, false FROM generate_series(1, {jobs}) j, generate_series(1, {layers}) n;
         INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
             SELECT 'f' || j || '-' || l || '-' || n, 'layer' || j || '-' || l, 'job' || j,
                 to_char(n, 'FM00000') || '-l' || l, 'WAITING', n, n
             FROM generate_series(1, {jobs}) j, generate_series(1, {layers}) l, generate_series(1, {frames}) n;
         UPDATE layer_stat SET int_waiting_count = {frames}, int_total_count = {frames};
         UPDATE job_stat SET int_waiting_count = {frames} * {layers};
         CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
         ANALYZE"
    )
}

/// A farm in a database of its own.
struct Farm<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> Farm<'a> {
    fn new(cluster: &'a Cluster, size: Size) -> Farm<'a> {
        let name = cluster.database_name();
        cluster.sql(&name, &farm_sql(size));
        cluster.sql(&name, "CHECKPOINT");
        Farm { cluster, name }
    }

    fn number(&self, sql: &str) -> f64 {
        self.cluster.sql(&self.name, sql).parse().unwrap()
    }

    fn instance(&self, text: &str) -> Instance {
        let config: tokio_postgres::Config = self.cluster.address(&self.name).parse().unwrap();
        let pool = Pool::builder(Manager::new(config.clone(), NoTls)).max_size(8).build().unwrap();
        Instance::new(pool, config, Config::parse(text).unwrap().instance)
    }

    /// Fails where tables and procs differ.
    fn audit(&self) {
        let wrong = "SELECT (SELECT count(*) FROM frame f WHERE (str_state = 'RUNNING')
                <> EXISTS (SELECT FROM proc p WHERE p.pk_frame = f.pk_frame))
            + (SELECT count(*) FROM host h WHERE int_cores - int_cores_idle <> (SELECT
                coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host))
            + (SELECT count(*) FROM layer_resource r WHERE int_cores <> (SELECT
                coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_layer = r.pk_layer))
            + (SELECT count(*) FROM subscription WHERE int_cores <> (SELECT sum(int_cores_reserved) FROM proc))";
        assert_eq!(self.number(wrong), 0.0, "tables and procs differ");
    }
}

/// Seconds of cpu that all processes of a cluster have used.
fn cpu_s(dir: &Path) -> f64 {
    let data = dir.join("data");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ours =
        entries.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data));
    let stats = ours.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let ticks = stats.map(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // utime, stime, cutime, cstime: an ended backend's time is its parent's.
        fields[11..15].iter().map(|ticks| ticks.parse::<f64>().unwrap_or(0.0)).sum::<f64>()
    });
    ticks.sum::<f64>() / TICKS_PER_S
}

/// Passes until nothing is booked by any instance. Prints and returns the frames a second until the last one was booked,
/// or launched if `launches`: the passes after it find nothing, and each instance makes its own.
async fn drain(what: &str, farm: &Farm<'_>, instances: Vec<Instance>, launches: bool) -> f64 {
    farm.cluster.sql(&farm.name, "SELECT pg_stat_statements_reset()");
    let (began, cpu_before) = (Instant::now(), cpu_s(farm.cluster.dir()));
    let mut running = Vec::new();
    for mut instance in instances {
        running.push(tokio::spawn(async move {
            let (mut booked, mut passes, mut empty, mut took) = (0, 0, 0, Duration::ZERO);
            // A pass without a permit sees no layers although frames wait: more looks tell.
            while empty < 3 {
                let passed = instance.pass().await.unwrap();
                (booked, passes) = (booked + passed.booked, passes + 1);
                if passed.booked > 0 {
                    took = began.elapsed();
                }
                if passed.layers > 0 && passed.placed == 0 {
                    break;
                }
                empty = if passed.layers == 0 { empty + 1 } else { 0 };
            }
            instance.launcher().settle().await;
            (booked, passes, if launches { began.elapsed() } else { took })
        }));
    }
    let (mut booked, mut passes, mut took) = (0, 0, Duration::ZERO);
    for instance in running {
        let (some, of, its) = instance.await.unwrap();
        (booked, passes, took) = (booked + some, passes + of, took.max(its));
    }
    let cpu = cpu_s(farm.cluster.dir()) - cpu_before;
    let calls = farm.number(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
         WHERE d.datname = current_database()",
    );
    let (frames, took_s) = (booked.max(1) as f64, took.as_secs_f64());
    println!(
        "{what}: {booked} frames in {took_s:.2} s, {:.0} a second, {passes} passes, {:.4} statements and {:.3} ms of \
         PostgreSQL's cpu a frame",
        frames / took_s,
        calls / frames,
        cpu * 1e3 / frames
    );
    farm.audit();
    frames / took_s
}

/// One, two and four instances on the same show, in turn. Before the time is taken, the connections of each book some
/// frames: PostgreSQL compiles the triggers for each connection, and a farm does that once.
async fn several_instances(cluster: &Cluster, config: &str) {
    const INSTANCES_MAX: usize = 4;
    const WARM_PASSES: usize = 2 * INSTANCES_MAX;
    const JOBS_OF_PASS: usize = 2;
    for _ in 0..3 {
        let mut one = None;
        for count in [1, 2, INSTANCES_MAX] {
            let farm = Farm::new(cluster, USUAL);
            let mut instances: Vec<Instance> = (0..count).map(|_| farm.instance(config)).collect();
            cluster.sql(&farm.name, "UPDATE job SET b_paused = true");
            for pass in 0..WARM_PASSES {
                let (first, last) = (pass * JOBS_OF_PASS + 1, (pass + 1) * JOBS_OF_PASS);
                let sql = format!(
                    "UPDATE job SET b_paused = false
                     WHERE pk_job IN (SELECT 'job' || n FROM generate_series({first}, {last}) n)"
                );
                cluster.sql(&farm.name, &sql);
                assert!(instances[pass % count].pass().await.unwrap().booked > 0);
            }
            cluster.sql(&farm.name, "UPDATE job SET b_paused = false; CHECKPOINT");
            let rate = drain(&format!("{count} instances on one show"), &farm, instances, false).await;
            println!("    {:.2} of one instance", rate / *one.get_or_insert(rate));
        }
    }
}

/// Passes until the farm is full. Prints when 99 percent of its cores were booked, and when all that fit were.
async fn fill(farm: &Farm<'_>, mut instance: Instance) {
    let (began, wanted) = (Instant::now(), (f64::from(FILL.cores()) * 0.99).ceil() as usize);
    let (mut booked, mut passes, mut nearly_full_s) = (0, 0, None);
    loop {
        let passed = instance.pass().await.unwrap();
        (booked, passes) = (booked + passed.booked, passes + 1);
        if booked >= wanted {
            nearly_full_s.get_or_insert(began.elapsed().as_secs_f64());
        }
        if passed.placed == 0 {
            break;
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    let nearly_full = nearly_full_s.map_or("never".to_owned(), |at| format!("after {at:.2} s"));
    println!(
        "{} hosts of {} cores are filled: 99 percent {nearly_full}, {booked} frames in {took_s:.2} s, {passes} passes",
        FILL.hosts(),
        FILL.cores()
    );
    println!("    {} cores are idle", farm.number("SELECT sum(int_cores_idle) / 100 FROM host"));
    farm.audit();
}

/// From a frame that begins to wait on an idle farm to its launch.
async fn latency(what: &str, cluster: &Cluster, installs_wake: bool) {
    const FRAMES: u32 = 40;
    let size = Size { hosts: &[(100, 32)], jobs: 1, layers: 1, frames: FRAMES };
    let farm = Farm::new(cluster, size);
    cluster.sql(&farm.name, "UPDATE frame SET str_state = 'DEPEND', int_depend_count = 1");
    if installs_wake {
        cluster.sql(&farm.name, schema::WAKE);
    }
    let rqd = Rqd::start(Mood::Takes).await;
    let mut instance = farm.instance(&format!("rqd: {{grpc_port: {}}}", rqd.port));
    let running = tokio::spawn(async move { instance.run().await });
    let (client, connection) = tokio_postgres::connect(&cluster.address(&farm.name), NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut waits_ms = Vec::new();
    for frame in 1..=FRAMES {
        tokio::time::sleep(Duration::from_millis(150 + u64::from(frame * 37 % 100) * 10)).await;
        let began = Instant::now();
        let id = format!("f1-1-{frame}");
        let sql =
            format!("UPDATE frame SET int_depend_count = 0, str_state = 'WAITING' WHERE pk_frame = '{id}'");
        client.batch_execute(&sql).await.unwrap();
        while !rqd.running().contains_key(&id) {
            assert!(began.elapsed() < Duration::from_secs(30), "{id} was not launched");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waits_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    running.abort();
    waits_ms.sort_by(f64::total_cmp);
    let at = |part: f64| waits_ms[((waits_ms.len() - 1) as f64 * part) as usize];
    println!("{what}: p50 {:.0} ms, p90 {:.0} ms, longest {:.0} ms", at(0.5), at(0.9), at(1.0));
}

fn main() {
    let settings = [
        "fsync=on",
        "shared_buffers=256MB",
        "max_wal_size=4GB",
        "shared_preload_libraries=pg_stat_statements",
        "pg_stat_statements.track=top",
    ];
    let cluster = match Cluster::start(&settings) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP needs PostgreSQL with pg_stat_statements: {why}"),
    };
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| only.is_empty() || only.iter().any(|given| given == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        const DRY: &str = "rqd: {dry_run_mode: true}";
        for round in 1..=3 {
            if wants("dry") {
                let farm = Farm::new(&cluster, USUAL);
                drain(&format!("dry, {round}"), &farm, vec![farm.instance(DRY)], false).await;
            }
        }
        if wants("rqd") {
            let (farm, rqd) = (Farm::new(&cluster, USUAL), Rqd::start(Mood::Takes).await);
            let instance = farm.instance(&format!("rqd: {{grpc_port: {}}}", rqd.port));
            drain("with RQD's double", &farm, vec![instance], true).await;
            assert_eq!((rqd.running().len(), rqd.doubled().len()), (20_000, 0));
        }
        if wants("layer") {
            let size = Size { jobs: 1, layers: 1, frames: 5_000, ..USUAL };
            let farm = Farm::new(&cluster, size);
            drain("one layer of 5,000 frames", &farm, vec![farm.instance(DRY)], false).await;
        }
        if wants("fill") {
            let farm = Farm::new(&cluster, FILL);
            fill(&farm, farm.instance(DRY)).await;
        }
        if wants("instances") {
            several_instances(&cluster, DRY).await;
        }
        if wants("latency") {
            latency("a frame begins to wait, notified", &cluster, true).await;
            latency("a frame begins to wait, looked for", &cluster, false).await;
        }
    });
}
