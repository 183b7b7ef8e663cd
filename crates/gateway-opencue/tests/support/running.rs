//! A farm whose frames run and end: a scheduler books them, a double of RQD takes them, and its hosts report each end
//! once.

#![allow(dead_code)]

use crate::farm::Farm;
use crate::farm::host::{Host, host, run};
use crate::rqd::{Mood, Rqd};
use deadpool_postgres::{Manager, Pool};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::NoTls;
use windlass_cuebot::generated::report::{RenderHost, RunningFrameInfo};
use windlass_cuebot::{Cuebot, Settings};
use windlass_gateway_opencue::rqd::RunFrame;
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;

/// Only a farm that stands still waits so long for the next end or launch.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Rounds of launches of which one is followed by reports of status.
const REPORT_ROUNDS: u32 = 8;
/// Connections of the gateway, as many as it has by default.
const CONNECTIONS: usize = 20;

/// How long a frame runs.
pub type Lasting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Jobs of layers in which each frame waits for the frame of its number in the layer before. The first layer of a job
/// waits for that of the job before, frame by frame, and the last layer for the whole of it.
#[derive(Clone, Copy)]
pub struct Chain {
    pub jobs: u32,
    pub layers: u32,
    pub frames: u32,
}

impl Chain {
    pub fn all_frames(&self) -> usize {
        (self.jobs * self.layers * self.frames) as usize
    }

    fn sql(&self) -> String {
        let Chain { jobs, layers, frames } = *self;
        format!(
            "UPDATE subscription SET int_size = 100000000, int_burst = 100000000;
             INSERT INTO job (pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot,
                    str_user, str_state, int_uid)
             SELECT 'J' || j, 'FOLDER', 'SHOW', 'FAC', 'DEPT', 'j' || j, 'j' || j, 's', 'u', 'PENDING', 1000
               FROM generate_series(1, {jobs}) AS j;
             UPDATE job_resource SET int_max_cores = 100000000;
             INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min,
                    b_threadable)
             SELECT 'J' || j || 'L' || l, 'J' || j, 'l' || l, 'true', '1-{frames}', 'Render', 'general', 262144, false
               FROM generate_series(1, {jobs}) AS j, generate_series(1, {layers}) AS l;
             INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
             SELECT pk_layer || 'F' || n, pk_layer, pk_job, to_char(n, 'FM0000') || '-' || str_name, 'WAITING', n, n
               FROM layer, generate_series(1, {frames}) AS n;
             UPDATE layer_stat SET int_waiting_count = {frames}, int_total_count = {frames};
             UPDATE job_stat SET int_waiting_count = {frames} * {layers};
             INSERT INTO depend (pk_depend, pk_job_depend_er, pk_layer_depend_er, pk_frame_depend_er, pk_job_depend_on,
                    pk_layer_depend_on, pk_frame_depend_on, str_type, str_signature)
             SELECT 'l' || f.pk_frame, f.pk_job, f.pk_layer, f.pk_frame, f.pk_job, o.pk_layer, o.pk_frame,
                    'FRAME_ON_FRAME', 'l' || f.pk_frame
               FROM generate_series(2, {layers}) AS l
               JOIN frame f ON f.pk_layer = f.pk_job || 'L' || l
               JOIN frame o ON o.pk_layer = f.pk_job || 'L' || l - 1 AND o.int_number = f.int_number
              UNION ALL
             SELECT 'j' || f.pk_frame, f.pk_job, f.pk_layer, f.pk_frame, o.pk_job, o.pk_layer, o.pk_frame,
                    'FRAME_ON_FRAME', 'j' || f.pk_frame
               FROM generate_series(2, {jobs}) AS j
               JOIN frame f ON f.pk_layer = 'J' || j || 'L1'
               JOIN frame o ON o.pk_layer = 'J' || j - 1 || 'L1' AND o.int_number = f.int_number
              UNION ALL
             SELECT 'e' || j, 'J' || j, 'J' || j || 'L{layers}', NULL, 'J' || j - 1, 'J' || j - 1 || 'L{layers}', NULL,
                    'LAYER_ON_LAYER', 'e' || j FROM generate_series(2, {jobs}) AS j;
             UPDATE frame SET int_depend_count = own.times, str_state = 'DEPEND'
               FROM (SELECT f.pk_frame, count(*) AS times FROM frame f
                       JOIN depend d ON d.pk_layer_depend_er = f.pk_layer
                        AND (d.pk_frame_depend_er IS NULL OR d.pk_frame_depend_er = f.pk_frame) GROUP BY 1) AS own
              WHERE frame.pk_frame = own.pk_frame;
             ANALYZE"
        )
    }
}

fn described(name: &str, cores: i32) -> RenderHost {
    RenderHost { num_procs: cores, ..host(name) }
}

/// A farm at work.
pub struct Running {
    pub farm: Farm,
    pub rqd: Arc<Rqd>,
    pool: Pool,
    hosts: Host,
    cores: i32,
    scheduler: JoinHandle<()>,
}

impl Running {
    /// Hosts of this number of cores, and jobs that begin at once.
    pub async fn start(farm: Farm, (hosts, cores): (u32, i32), chain: Chain) -> Running {
        let rqd = Rqd::start(Mood::Takes).await;
        let pool =
            Pool::builder(Manager::new(farm.config.clone(), NoTls)).max_size(CONNECTIONS).build().unwrap();
        let text = format!("rqd: {{grpc_port: {}}}\nwindlass: {{shows: [testing]}}", rqd.port);
        let settings = Config::parse(&text).unwrap().instance;
        let mut instance = Instance::new(pool.clone(), farm.config.clone(), settings);
        let cuebot = Cuebot::new(pool.clone(), Settings::default(), Arc::new(instance.launcher()));
        let farm = Farm { cuebot: Arc::new(cuebot), ..farm };
        let told = Host::connect(&farm).await;
        for number in 0..hosts {
            let name = format!("127.0.{}.{}", 5 + number / 250, number % 250 + 1);
            told.status(described(&name, cores), Vec::new()).await.unwrap();
        }
        farm.run(&chain.sql()).await;
        let scheduler = tokio::spawn(async move { instance.run().await });
        Running { farm, rqd, pool, hosts: told, cores, scheduler }
    }

    /// Runs all frames to their ends. Each ends after `lasts`, and its host is never answered with an error. Returns
    /// how long the reports of the ends took.
    pub async fn finish(&self, chain: Chain, lasts: fn() -> Lasting) -> Vec<Duration> {
        let (mut seen, mut answers) = (BTreeSet::new(), Vec::new());
        let (mut ends, mut reports) = (JoinSet::new(), JoinSet::new());
        let mut round = 0_u32;
        while answers.len() < chain.all_frames() {
            let next = async {
                tokio::select! {
                    Some(answer) = ends.join_next() => answers.push(answer.unwrap()),
                    () = self.rqd.launched() => {}
                }
            };
            let waits = tokio::time::timeout(WAIT_MAX, next).await;
            assert!(waits.is_ok(), "the farm stands still: {}", self.left().await);
            let begun = self.rqd.end_running();
            if begun.is_empty() {
                continue;
            }
            let hosts = self.hosts_of_procs().await;
            let mut by_host: BTreeMap<String, Vec<RunningFrameInfo>> = BTreeMap::new();
            for (frame, RunFrame { resource_id, .. }) in begun {
                assert!(seen.insert(frame.clone()), "{frame} runs twice");
                let (name, told) = (hosts[&resource_id].clone(), self.hosts.clone());
                by_host.entry(name.clone()).or_default().push(run(&frame, &resource_id));
                ends.spawn(async move {
                    lasts().await;
                    let began = Instant::now();
                    told.try_ended(&name, (&frame, &resource_id), 0).await.unwrap();
                    began.elapsed()
                });
            }
            if round.is_multiple_of(REPORT_ROUNDS) {
                for (name, runs) in by_host {
                    let (told, described) = (self.hosts.clone(), described(&name, self.cores));
                    reports.spawn(async move { told.status(described, runs).await.unwrap() });
                }
            }
            round += 1;
        }
        reports.join_all().await;
        answers
    }

    /// Fails if a frame ran twice, an end was lost, a figure is wrong, or two transactions waited for each other.
    pub async fn check(self, chain: Chain) {
        let done = "SELECT count(*) FROM frame WHERE str_state = 'SUCCEEDED'";
        assert_eq!(self.farm.value(done).await, chain.all_frames().to_string());
        let counted = "SELECT sum(int_frame_success_count) FROM job_usage";
        assert_eq!(self.farm.value(counted).await, chain.all_frames().to_string(), "each end counts once");
        assert_eq!(self.farm.value("SELECT string_agg(DISTINCT str_state, ' ') FROM job").await, "FINISHED");
        assert_eq!(self.farm.value("SELECT count(*) FROM proc").await, "0");
        assert_eq!((self.rqd.doubled(), self.rqd.killed()), (Vec::new(), Vec::new()));
        self.farm.audit().await;
        self.scheduler.abort();
        self.pool.close();
        assert_eq!(self.farm.deadlocks().await, "0", "transactions that waited for each other");
    }

    async fn left(&self) -> String {
        let left = "SELECT string_agg(str_state || ' ' || frames, ', ')
            FROM (SELECT str_state, count(*) AS frames FROM frame GROUP BY 1) AS counted";
        self.farm.value(left).await
    }

    /// The names of hosts by the keys of their procs.
    async fn hosts_of_procs(&self) -> BTreeMap<String, String> {
        let sql = "SELECT p.pk_proc, h.str_name FROM proc p JOIN host h USING (pk_host)";
        let rows = self.farm.pool.get().await.unwrap().query(sql, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}
