//! A small farm in OpenCue's tables, in a database of its own of the tests' PostgreSQL.

#![allow(dead_code)]

pub mod host;

use crate::postgres::{self, Cluster};
use deadpool_postgres::{Manager, Pool};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use windlass_cuebot::{Cuebot, FrameRun, HostCalls, Settings, Victim};

/// Only a hung test waits so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A farm: a show, an allocation, a group, a service.
pub struct Farm {
    pub pool: Pool,
    pub config: tokio_postgres::Config,
    pub cuebot: Arc<Cuebot>,
}

/// Hosts that no call reaches. These of them are Windlass workers.
pub struct Unreached {
    pub workers: &'static [&'static str],
}

impl HostCalls for Unreached {
    fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    fn is_worker(&self, host: &str) -> bool {
        self.workers.contains(&host)
    }

    fn end(&self, _victims: Vec<Victim>, _why: String) {}

    fn end_strays(&self, _host: String, _strays: Vec<FrameRun>) {}

    fn ask_about(&self, _host: String, _runs: Vec<FrameRun>) {}

    fn ask_all(&self, _hosts: BTreeMap<String, Vec<FrameRun>>) {}
}

/// A new farm. `None`, with a line that says so, where PostgreSQL is missing.
pub async fn farm() -> Option<Farm> {
    Some(farm_in(postgres::cluster()?).await)
}

/// A new farm in a database of this cluster.
pub async fn farm_in(cluster: &Cluster) -> Farm {
    let config: tokio_postgres::Config = cluster.database().parse().unwrap();
    let pool = Pool::builder(Manager::new(config.clone(), NoTls)).max_size(8).build().unwrap();
    let settings = Settings { log_root: "/logs".to_owned(), retries_max: 3 };
    let cuebot = Arc::new(Cuebot::new(pool.clone(), settings, Arc::new(Unreached { workers: &[] })));
    let farm = Farm { pool, config, cuebot };
    farm.run(SEED).await;
    farm
}

/// Ids are as opaque here as OpenCue's.
const SEED: &str = "
INSERT INTO facility (pk_facility, str_name, b_default) VALUES ('FAC', 'local', true);
INSERT INTO dept (pk_dept, str_name, b_default) VALUES ('DEPT', 'unknown', true);
INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility, b_default)
VALUES ('ALLOC', 'local.general', 'general', 'FAC', true);
INSERT INTO show (pk_show, str_name) VALUES ('SHOW', 'testing');
INSERT INTO show_stats (pk_show) VALUES ('SHOW');
INSERT INTO subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)
VALUES ('SUB', 'ALLOC', 'SHOW', 10000, 10000);
INSERT INTO folder (pk_folder, pk_show, str_name, pk_dept, b_default)
VALUES ('FOLDER', 'SHOW', 'testing', 'DEPT', true);
INSERT INTO point (pk_point, pk_dept, pk_show) VALUES ('POINT', 'DEPT', 'SHOW');
INSERT INTO service (pk_service, str_name, b_threadable, int_cores_min, int_mem_min, str_tags)
VALUES ('SERVICE', 'default', false, 100, 262144, 'general');
";

/// What differs from what a recount of the procs gives.
const WRONG: &str = "SELECT string_agg(what, ', ') FROM (
     SELECT 'host ' || str_name AS what FROM host WHERE int_cores - int_cores_idle IS DISTINCT FROM
       (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc WHERE proc.pk_host = host.pk_host)
     UNION ALL SELECT 'memory of ' || str_name FROM host WHERE int_mem - int_mem_idle IS DISTINCT FROM
       (SELECT coalesce(sum(int_mem_reserved), 0) FROM proc WHERE proc.pk_host = host.pk_host)
     UNION ALL SELECT 'subscription' FROM subscription s WHERE pk_show = 'SHOW'
       AND int_cores IS DISTINCT FROM (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc
         JOIN host USING (pk_host) WHERE proc.pk_show = s.pk_show AND host.pk_alloc = s.pk_alloc)
     UNION ALL SELECT 'job' FROM job_resource r WHERE int_cores IS DISTINCT FROM
       (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc WHERE proc.pk_job = r.pk_job)
     UNION ALL SELECT 'layer' FROM layer_resource r WHERE int_cores IS DISTINCT FROM
       (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc WHERE proc.pk_layer = r.pk_layer)
     UNION ALL SELECT 'folder ' || str_name FROM folder JOIN folder_resource r USING (pk_folder)
       WHERE pk_show = 'SHOW' AND int_cores IS DISTINCT FROM (SELECT coalesce(sum(int_cores_reserved), 0)
         FROM proc JOIN job USING (pk_job) WHERE job.pk_folder = folder.pk_folder)
     UNION ALL SELECT 'department' FROM point WHERE pk_show = 'SHOW' AND int_cores IS DISTINCT FROM
       (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc WHERE proc.pk_show = point.pk_show)
     UNION ALL SELECT 'counts' FROM job_stat s WHERE
       (int_waiting_count, int_running_count, int_dead_count, int_depend_count, int_succeeded_count)
       <> (SELECT count(*) FILTER (WHERE str_state = 'WAITING'),
         count(*) FILTER (WHERE str_state = 'RUNNING'), count(*) FILTER (WHERE str_state = 'DEAD'),
         count(*) FILTER (WHERE str_state = 'DEPEND'),
         count(*) FILTER (WHERE str_state = 'SUCCEEDED') FROM frame WHERE frame.pk_job = s.pk_job)
 ) AS found";

impl Farm {
    pub async fn run(&self, sql: &str) {
        self.pool
            .get()
            .await
            .unwrap()
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The only value of a query, as text.
    pub async fn value(&self, sql: &str) -> String {
        let row = self.pool.get().await.unwrap().query_one(&format!("SELECT ({sql})::text"), &[]).await;
        let row = row.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }

    /// Books a waiting frame on a host, as a scheduler does: frame, proc, host and all figures.
    pub async fn book(&self, frame: &str, host: &str, proc: &str) {
        self.run(&format!(
            "BEGIN;
             UPDATE frame SET str_state = 'RUNNING', str_host = '{host}', int_cores = 100,
                    int_mem_reserved = (SELECT int_mem_min FROM layer WHERE layer.pk_layer = frame.pk_layer),
                    ts_started = current_timestamp, ts_stopped = NULL, ts_updated = current_timestamp,
                    int_version = int_version + 1, int_retries = int_retries
                        + CASE WHEN int_exit_status IN (-1, 286, 256, 299, 301, 302, 399) THEN 0 ELSE 1 END
              WHERE pk_frame = '{frame}' AND str_state = 'WAITING';
             INSERT INTO proc (pk_proc, pk_host, pk_job, pk_show, pk_layer, pk_frame, int_cores_reserved,
                    int_mem_reserved)
             SELECT '{proc}', pk_host, frame.pk_job, 'SHOW', pk_layer, pk_frame, 100, int_mem_reserved
               FROM frame, host WHERE pk_frame = '{frame}' AND host.str_name = '{host}' AND str_state = 'RUNNING';
             UPDATE host SET int_cores_idle = int_cores_idle - 100, int_mem_idle = int_mem_idle
                    - (SELECT int_mem_reserved FROM proc WHERE pk_proc = '{proc}') WHERE str_name = '{host}';
             UPDATE subscription SET int_cores = int_cores + 100;
             UPDATE layer_resource SET int_cores = int_cores + 100
              WHERE pk_layer = (SELECT pk_layer FROM frame WHERE pk_frame = '{frame}');
             UPDATE job_resource SET int_cores = int_cores + 100
              WHERE pk_job = (SELECT pk_job FROM frame WHERE pk_frame = '{frame}');
             UPDATE folder_resource SET int_cores = int_cores + 100;
             UPDATE point SET int_cores = int_cores + 100;
             COMMIT"
        ))
        .await;
    }

    /// Fails where a figure differs from what a recount of the procs gives.
    pub async fn audit(&self) {
        assert_eq!(self.wrong().await, "", "these figures differ from a recount");
    }

    /// The figures that differ from what a recount of the procs gives.
    pub async fn wrong(&self) -> String {
        self.value(WRONG).await
    }
}

/// A client of the farm's server.
#[derive(Clone)]
pub struct Client(Grpc<Channel>);

impl Client {
    /// Serves the farm, and connects.
    pub async fn connect(farm: &Farm) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(farm.cuebot.clone().serve(listener));
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Client(Grpc::new(channel))
    }

    /// Calls a path such as `package.Interface/Call`.
    pub async fn call<Q, A>(&self, path: &str, ask: Q) -> Result<A, Status>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.0.clone();
        grpc.ready().await.unwrap();
        let path = PathAndQuery::try_from(format!("/{path}")).unwrap();
        Ok(grpc.unary(Request::new(ask), path, ProstCodec::<Q, A>::default()).await?.into_inner())
    }

    /// Calls, and expects an answer.
    pub async fn ok<Q, A>(&self, path: &str, ask: Q) -> A
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, ask).await.unwrap_or_else(|status| panic!("{path}: {status:?}"))
    }
}

impl Farm {
    /// A job of frames in state WAITING: layers as names with the number of their frames. Ids are the names: job `J`,
    /// layer `a`, frame `a-1`.
    pub async fn job(&self, layers: &[(&str, u32)], retries_max: u32) {
        self.run(&format!(
            "INSERT INTO job (pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot,
                    str_user, str_state, int_uid, int_max_retries)
             VALUES ('J', 'FOLDER', 'SHOW', 'FAC', 'DEPT', 'testing-s-u_j', 'testing-s-u_j', 's', 'u', 'PENDING',
                    1000, {retries_max})"
        ))
        .await;
        for (layer, frames) in layers {
            self.run(&format!(
                "INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, int_mem_min)
                 VALUES ('{layer}', 'J', '{layer}', 'true', '1-{frames}', 'Render', 262144);
                 INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
                 SELECT '{layer}-' || n, '{layer}', 'J', to_char(n, 'FM0000') || '-{layer}', 'WAITING', n, n
                   FROM generate_series(1, {frames}) AS n;
                 UPDATE layer_stat SET int_waiting_count = {frames}, int_total_count = {frames}
                  WHERE pk_layer = '{layer}';
                 UPDATE job_stat SET int_waiting_count = int_waiting_count + {frames} WHERE pk_job = 'J'"
            ))
            .await;
        }
    }

    /// Circles of transactions that PostgreSQL has found. All of the farm end.
    pub async fn deadlocks(&self) -> String {
        self.counted("SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()").await
    }

    /// Rows of a table that statements have read. All of the farm end.
    pub async fn rows_read(&self, table: &str) -> u64 {
        let read = "SELECT (seq_tup_read + idx_tup_fetch)::text FROM pg_stat_user_tables WHERE relname";
        self.counted(&format!("{read} = '{table}'")).await.parse().unwrap()
    }

    /// A figure that PostgreSQL counts. Connections add theirs when they end, so all of the farm end.
    async fn counted(&self, figure: &str) -> String {
        self.pool.close();
        let (client, connection) = self.config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let began = Instant::now();
        while client.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            assert!(began.elapsed() < WAIT_MAX, "connections are left");
            tokio::task::yield_now().await;
        }
        client.query_one(figure, &[]).await.unwrap().get(0)
    }

    /// A host of 4 cores that nothing listens at, with the tag of its allocation.
    pub async fn host(&self, name: &str) {
        self.run(&format!(
            "INSERT INTO host (pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem,
                    int_mem_idle) VALUES ('{name}', 'ALLOC', '{name}', 'OPEN', 400, 400, 8388608, 8388608);
             INSERT INTO host_stat (pk_host_stat, pk_host) VALUES ('{name}', '{name}');
             INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type)
             VALUES ('{name}', '{name}', 'general', 'ALLOC')"
        ))
        .await;
    }

    /// The state of a frame.
    pub async fn state(&self, frame: &str) -> String {
        self.value(&format!("SELECT str_state FROM frame WHERE pk_frame = '{frame}'")).await
    }
}
