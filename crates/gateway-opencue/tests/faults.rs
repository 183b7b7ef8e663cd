//! All faults in one run: hosts that refuse, hang, lose power and come back, an instance that dies between a commit and
//! its launches, and a PostgreSQL that crashes. Afterwards the tables say what runs, and figures are what a recount gives.

use crate::postgres::Cluster;
use crate::rqd::{Machine, Mood};
use deadpool_postgres::{Manager, Pool};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;
use windlass_cuebot::generated::report::{
    BootReport, RenderHost, RqdReportRqdStartupRequest, RqdReportRqdStartupResponse,
};
use windlass_cuebot::{Cuebot, Settings};
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;

/// What the promise gives the farm after the last fault.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// Memory of a host that frames may have, in KiB.
const MEMORY_KIB: i64 = 8_000_000;
/// Memory that a host keeps for itself, in KiB.
const SYSTEM_KIB: i64 = 512 << 10;

/// 8 hosts of 4 cores, and 120 frames of one core in two jobs.
const FARM: &str = "
INSERT INTO facility(pk_facility, str_name, b_default) VALUES ('fac', 'f', true);
INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
INSERT INTO alloc(pk_alloc, str_name, str_tag, pk_facility, b_default)
    VALUES ('alloc', 'f.general', 'general', 'fac', true);
INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('show', 's', true);
INSERT INTO subscription(pk_subscription, pk_alloc, pk_show, int_size, int_burst)
    VALUES ('sub', 'alloc', 'show', 10000, 100000);
INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept) VALUES ('folder', 'show', 's', 'dept');
INSERT INTO point(pk_point, pk_dept, pk_show) VALUES ('point', 'dept', 'show');
INSERT INTO host(pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    SELECT 'host' || n, 'alloc', '127.0.1.' || n, 'OPEN', 400, 400, 8000000, 8000000 FROM generate_series(1, 8) n;
INSERT INTO host_stat(pk_host_stat, pk_host, int_mem_total, int_mem_free, str_state, str_os, ts_ping)
    SELECT pk_host, pk_host, int_mem, int_mem, 'UP', 'linux', now() + interval '1 hour' FROM host;
INSERT INTO host_tag(pk_host_tag, pk_host, str_tag, str_tag_type) SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state, str_os, int_uid, str_log_dir)
    SELECT 'job' || n, 'folder', 'show', 'fac', 'dept', 'j' || n, 'j' || n, 'x', 'u', 'PENDING', 'linux', 1000, '/logs'
    FROM generate_series(0, 1) n;
UPDATE job_resource SET int_max_cores = 100000;
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min, b_threadable)
    SELECT 'layer' || n, 'job' || n, 'l', 'render #IFRAME#', '1-60', 'Render', 'general', 100000, false
    FROM generate_series(0, 1) n;
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'frame' || n, 'layer' || n % 2, 'job' || n % 2, to_char(n / 2 + 1, 'FM0000') || '-l', 'WAITING', n / 2 + 1, n
    FROM generate_series(0, 119) n;
UPDATE layer_stat SET int_waiting_count = 60, int_total_count = 60;
UPDATE job_stat SET int_waiting_count = 60";

/// What differs from a recount of frames and procs.
const AUDIT: &str = "SELECT string_agg(what, ', ') FROM (
    SELECT 'frame ' || pk_frame AS what FROM frame f WHERE str_state NOT IN ('RUNNING', 'WAITING')
        OR (str_state = 'RUNNING') <> EXISTS (SELECT FROM proc p WHERE p.pk_frame = f.pk_frame)
    UNION ALL SELECT 'host ' || str_name FROM host h WHERE int_cores - int_cores_idle <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host)
    UNION ALL SELECT 'memory of ' || str_name FROM host h WHERE int_mem - int_mem_idle <>
        (SELECT coalesce(sum(int_mem_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host)
    UNION ALL SELECT 'subscription' FROM subscription
        WHERE int_cores <> (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)
    UNION ALL SELECT 'folder' FROM folder_resource
        WHERE int_cores <> (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)
    UNION ALL SELECT 'department' FROM point
        WHERE int_cores <> (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)
    UNION ALL SELECT pk_job FROM job_resource j WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_job = j.pk_job)
    UNION ALL SELECT pk_layer FROM layer_resource l WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_layer = l.pk_layer)
    UNION ALL SELECT 'counts of ' || pk_layer FROM layer_stat s WHERE (int_waiting_count, int_running_count) <>
        (SELECT count(*) FILTER (WHERE str_state = 'WAITING'), count(*) FILTER (WHERE str_state = 'RUNNING')
            FROM frame f WHERE f.pk_layer = s.pk_layer)
    UNION ALL SELECT 'counts of ' || pk_job FROM job_stat s WHERE (int_waiting_count, int_running_count) <>
        (SELECT count(*) FILTER (WHERE str_state = 'WAITING'), count(*) FILTER (WHERE str_state = 'RUNNING')
            FROM frame f WHERE f.pk_job = s.pk_job)) found";

/// A farm whose hosts have doubles of their own.
struct Site {
    cluster: Cluster,
    name: String,
    port: u16,
    machines: Vec<Machine>,
}

fn address(number: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, number)), port)
}

/// Hosts 1 to 8 on one port that is free on all of them.
fn machines() -> Vec<Machine> {
    loop {
        let mut machines = vec![Machine::start(address(1, 0), Mood::Takes).unwrap()];
        let port = machines[0].rqd.port;
        let others = (2..=8).map(|number| Machine::start(address(number, port), Mood::Takes));
        match others.collect::<std::io::Result<Vec<Machine>>>() {
            Ok(others) => {
                machines.extend(others);
                return machines;
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}

impl Site {
    fn start() -> Result<Site, String> {
        let cluster = Cluster::start(&["fsync=off"])?;
        let name = cluster.database_name();
        cluster.sql(&name, FARM);
        let machines = machines();
        Ok(Site { cluster, name, port: machines[0].rqd.port, machines })
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    fn pool(&self) -> (Pool, tokio_postgres::Config) {
        let config: tokio_postgres::Config = self.cluster.address(&self.name).parse().unwrap();
        let pool = Pool::builder(Manager::new(config.clone(), NoTls)).max_size(8).build().unwrap();
        (pool, config)
    }

    fn instance(&self, is_dry: bool) -> Instance {
        let (pool, config) = self.pool();
        let text = format!(
            "rqd: {{grpc_port: {}, dry_run_mode: {is_dry}}}\nwindlass: {{rqd_call_timeout: 500ms, look_interval: 100ms}}",
            self.port
        );
        Instance::new(pool, config, Config::parse(&text).unwrap().instance)
    }

    /// The double of a host by its number.
    fn machine(&mut self, number: usize) -> &mut Machine {
        &mut self.machines[number - 1]
    }

    /// Waits until each of these hosts runs as many frames as it has cores.
    async fn until_full(&self, hosts: &[usize]) {
        let began = Instant::now();
        loop {
            let running: Vec<usize> =
                hosts.iter().map(|number| self.machines[number - 1].running().len()).collect();
            if running.iter().all(|frames| *frames == 4) {
                return;
            }
            assert!(began.elapsed() < SETTLE_TIME, "hosts {hosts:?} run {running:?}");
            tokio::task::yield_now().await;
        }
    }

    /// What is wrong now: figures, frames that run elsewhere than the tables say, or twice.
    fn wrong(&self) -> Option<String> {
        let figures = self.sql(AUDIT);
        let tables = "SELECT pk_frame || ' on ' || str_host FROM frame WHERE str_state = 'RUNNING'";
        let tables: BTreeSet<String> = self.sql(tables).lines().map(str::to_owned).collect();
        let mut hosts = BTreeSet::new();
        for machine in &self.machines {
            let name = machine.host();
            hosts.extend(machine.running().into_iter().map(|frame| format!("{frame} on {name}")));
        }
        if !figures.is_empty() {
            return Some(figures);
        }
        let differing: Vec<&String> = tables.symmetric_difference(&hosts).collect();
        (!differing.is_empty()).then(|| format!("{differing:?}"))
    }
}

/// What RQD says when its host has started.
async fn boot(cuebot: &Arc<Cuebot>, host: &str) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(cuebot.clone().serve(listener));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let host = RenderHost {
        name: host.to_owned(),
        num_procs: 4,
        cores_per_proc: 100,
        total_mem: MEMORY_KIB + SYSTEM_KIB,
        free_mem: MEMORY_KIB,
        attributes: HashMap::from([("SP_OS".to_owned(), "linux".to_owned())]),
        ..RenderHost::default()
    };
    let report = Some(BootReport { host: Some(host), core_info: None });
    let ask = tonic::Request::new(RqdReportRqdStartupRequest { boot_report: report });
    let path = PathAndQuery::from_static("/report.RqdReportInterface/ReportRqdStartup");
    let codec = ProstCodec::<RqdReportRqdStartupRequest, RqdReportRqdStartupResponse>::default();
    grpc.unary(ask, path, codec).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_all_faults_the_tables_say_what_runs_and_figures_are_a_recount() {
    let mut site = match Site::start() {
        Ok(site) => site,
        Err(why) => return println!("SKIP what needs PostgreSQL of its own: {why}"),
    };
    // An instance dies between its commit and its launches: 32 frames are booked, and no host was told.
    let mut dead = site.instance(true);
    while dead.pass().await.unwrap().booked > 0 {}
    drop(dead);
    assert_eq!(site.sql("SELECT count(*) FROM proc"), "32");
    site.sql(
        "UPDATE proc SET ts_booked = now() - interval '1 minute', ts_ping = now() - interval '1 minute'",
    );
    site.machine(3).rqd.set(Mood::Refuses);
    site.machine(4).die();
    site.machine(5).rqd.set(Mood::Hangs);
    site.machine(6).rqd.set(Mood::TakesSilently);

    let mut instance = site.instance(false);
    let launcher = instance.launcher();
    let running = tokio::spawn(async move { instance.run().await });
    site.until_full(&[1, 2, 7, 8]).await;
    site.cluster.crash();
    site.cluster.start_again();
    // Power fails for two hosts. One never comes back, and is silent for longer than five minutes.
    site.machine(7).die();
    site.machine(8).die();
    site.sql("UPDATE host_stat SET ts_ping = now() - interval '6 minutes' WHERE pk_host = 'host7'");
    let cuebot = Arc::new(Cuebot::new(site.pool().0, Settings::default(), Arc::new(launcher)));
    assert_eq!(cuebot.clear_silent_hosts().await.unwrap(), 4);
    site.machine(8).revive();
    boot(&cuebot, "127.0.1.8").await;
    site.machine(4).revive();
    site.machine(5).rqd.set(Mood::Takes);
    let ended = Instant::now();

    site.until_full(&[1, 2, 4, 5, 8]).await;
    while let Some(wrong) = site.wrong() {
        assert!(ended.elapsed() < SETTLE_TIME, "{wrong}");
        tokio::task::yield_now().await;
    }
    running.abort();
    assert!(site.machines[6].running().is_empty(), "what is silent gets nothing");
    assert_eq!(site.sql("SELECT DISTINCT int_retries FROM frame"), "0", "no fault cost a retry");
    for machine in &site.machines {
        assert_eq!(machine.rqd.doubled(), Vec::<String>::new(), "{} ran a frame twice", machine.host());
    }
}
