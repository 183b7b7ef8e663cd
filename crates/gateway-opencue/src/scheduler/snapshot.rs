//! The state of the tables at one time, for the shows that this gateway schedules: hosts, subscriptions, layers that
//! wait, and limits. Cores are hundredths of a core, memory is in KiB, times are microseconds of Unix time. A field with
//! the name of a table holds the key of one of its rows.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use crate::workers::WORKER_TAG;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Client, Error, Row};
use windlass_api::matches_name;
use windlass_cuebot::Amounts;
use windlass_cuebot::names::words;

/// Layers of one pass at most: those of the highest priority. Others follow when these have no frame left.
pub const LAYERS_MAX: i64 = 20_000;
/// Hosts of one pass at most.
pub const HOSTS_MAX: i64 = 100_000;
/// Procs that are read at most, where work waits for a reserved host.
pub const PROCS_MAX: i64 = 200_000;

/// The shows, hosts and tags of this gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// Names of shows. `None` means those that OpenCue's own table marks as managed by a scheduler.
    pub shows: Option<Vec<String>>,
    /// Keys of the shows that a pass may plan; `None` is all.
    pub permitted: Option<Vec<String>>,
    /// Patterns of the users whose frames go to Windlass workers; `None` is all.
    pub worker_users: Option<Vec<String>>,
    /// The facility, by name or tag; `None` is all.
    pub facility: Option<String>,
    /// Tags of hosts that are ignored.
    pub ignore_tags: Vec<String>,
    /// Show and tag of allocations: others are left alone. Empty is all, or none where manual tags are given.
    pub alloc_tags: Vec<(String, String)>,
    /// Tags that frames are booked by, besides those of the allocations above. Empty is all.
    pub manual_tags: Vec<String>,
    /// Seconds after which a host that has not reported is left out.
    pub host_stale_s: f64,
}

impl Scope {
    /// The condition by which a row `w` of `show` is this gateway's, where `$1` is [`Scope::shows`]. A schema without
    /// the column of managed shows needs names of shows.
    pub fn owned(&self) -> &'static str {
        match &self.shows {
            Some(_) => "w.str_name = ANY($1::text[])",
            None => "($1::text[] IS NULL AND w.b_scheduler_managed)",
        }
    }

    /// Whether frames of a show may be booked by a tag of their layer.
    pub fn books_by(&self, show: &str, tag: &str) -> bool {
        self.manual_tags.is_empty() || self.manual_tags.iter().any(|own| own == tag) || self.lists(show, tag)
    }

    fn lists(&self, show: &str, tag: &str) -> bool {
        self.alloc_tags.iter().any(|(own_show, own_tag)| own_show == show && own_tag == tag)
    }

    /// Whether a show may be booked on hosts of an allocation with this tag. Hosts with a manual tag are of any.
    pub fn opens_allocation(&self, show: &str, tag: Option<&str>) -> bool {
        let is_any = self.alloc_tags.is_empty() || !self.manual_tags.is_empty();
        is_any || tag.is_some_and(|tag| self.lists(show, tag))
    }

    /// Whether frames of a user may run on Windlass workers.
    pub fn is_worker_user(&self, user: &str) -> bool {
        self.worker_users.as_ref().is_none_or(|users| users.iter().any(|pattern| matches_name(pattern, user)))
    }
}

/// A host that is up and open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    pub id: String,
    /// The name by which the host is reached.
    pub name: String,
    pub alloc: String,
    pub facility: String,
    /// OpenCue's mode of threads: 0 is automatic, 1 all, 2 variable.
    pub thread_mode: i32,
    /// All that frames may have of it.
    pub size: Amounts,
    /// What is not booked. Of memory, what by the host's report is not in use either.
    pub idle: Amounts,
    /// Operating systems whose frames it runs.
    pub oses: BTreeSet<String>,
    /// Its tags, but for those that are ignored.
    pub tags: BTreeSet<String>,
    pub is_worker: bool,
}

/// A subscription: what a show may use of an allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscription {
    pub show: String,
    pub show_name: String,
    pub alloc: String,
    /// The share of the show, in hundredths of a core.
    pub size: i64,
    /// The cores that the show may hold at most.
    pub burst: i64,
    pub cores: i64,
}

/// Cores and gpus in use, with their maxima. A maximum below 1 means that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Hundredths of cores in use.
    pub cores: i64,
    /// The greatest number of them.
    pub cores_max: i64,
    /// Number of gpus in use.
    pub gpus: i64,
    /// The greatest number of them.
    pub gpus_max: i64,
}

/// A layer with frames that wait, and the priority, the time of submission, the cores and the gpus of its job. The order
/// is its place among the layers of the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    pub id: String,
    pub job: String,
    pub show: String,
    pub folder: String,
    pub facility: String,
    pub waiting: u32,
    /// Cores of a frame: above 0 a minimum, 0 a whole host, below 0 a whole host without that number.
    pub cores_min: i64,
    /// Cores that a frame gets at most; 0 is unlimited.
    pub cores_max: i64,
    pub mem_min_kib: i64,
    pub gpus_min: i64,
    pub gpu_mem_min_kib: i64,
    /// True if frames can use more cores than they request.
    pub is_threadable: bool,
    /// Tags of which a host must have one.
    pub tags: BTreeSet<String>,
    /// Names of its services, sorted.
    pub services: Vec<String>,
    /// The operating systems that its job runs on; empty is any.
    pub oses: BTreeSet<String>,
    pub priority: i32,
    pub submitted_us: i64,
    pub order: i64,
    /// Mean seconds of its frames that succeeded.
    pub mean_s: Option<f64>,
    /// Seconds after which its frames are ended; `None` is never.
    pub timeout_s: Option<u64>,
    pub job_used: Used,
    /// Cores that its job should have before others get more.
    pub job_cores_min: i64,
    pub folder_used: Used,
    /// True if no frame of its job's user may run on a Windlass worker.
    pub needs_rqd: bool,
}

/// A limit on the number of frames, or on the number of hosts that run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitUse {
    pub name: String,
    pub max: i64,
    /// True if hosts are counted, and not frames.
    pub is_of_hosts: bool,
    /// Number of frames under it that run, by host.
    pub frames: BTreeMap<String, i64>,
}

/// A proc of a frame that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Proc {
    pub host: String,
    pub layer: String,
    pub cores: i64,
    pub mem_kib: i64,
    pub began_us: i64,
    /// Mean seconds of the layer's frames.
    pub mean_s: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub now_us: i64,
    pub hosts: Vec<Host>,
    pub subscriptions: Vec<Subscription>,
    pub layers: Vec<Layer>,
    /// Limits of these layers, by key.
    pub limits: BTreeMap<String, LimitUse>,
    pub layer_limits: BTreeMap<String, BTreeSet<String>>,
    /// Procs. Empty where they were not asked for.
    pub procs: Vec<Proc>,
}

/// Hosts. Memory that was booked since the host's last report is subtracted from what it said is free: those frames
/// have begun to fill it, or will.
const HOSTS: &str = "WITH since AS (SELECT p.pk_host, sum(p.int_mem_reserved)::bigint AS mem
        FROM proc p JOIN host_stat s USING (pk_host) WHERE p.ts_booked > s.ts_ping GROUP BY 1)
    SELECT h.pk_host, h.str_name, h.pk_alloc, a.pk_facility, h.int_thread_mode, h.int_cores, h.int_cores_idle, h.int_mem,
        LEAST(h.int_mem_idle, s.int_mem_free - coalesce(since.mem, 0)), h.int_gpus, h.int_gpus_idle,
        h.int_gpu_mem, LEAST(h.int_gpu_mem_idle, s.int_gpu_mem_free), s.str_os,
        ARRAY(SELECT t.str_tag::text FROM host_tag t WHERE t.pk_host = h.pk_host)
    FROM host h JOIN host_stat s USING (pk_host) JOIN alloc a USING (pk_alloc) JOIN facility y USING (pk_facility)
        LEFT JOIN since USING (pk_host)
    WHERE h.str_lock_state = 'OPEN' AND s.str_state = 'UP' AND s.ts_ping > now() - make_interval(secs => $1)
        AND ($2::text IS NULL OR y.str_name = $2) ORDER BY h.pk_host LIMIT $3";
const SUBSCRIPTIONS: &str =
    "SELECT w.pk_show, w.str_name, s.pk_alloc, s.int_size, s.int_burst, s.int_cores::bigint,
        a.str_tag, (extract(epoch FROM now()) * 1e6)::bigint
    FROM show w JOIN subscription s USING (pk_show) JOIN alloc a USING (pk_alloc)
    WHERE w.b_active AND NOT w.b_paused AND w.b_booking_enabled AND ";
const LAYERS: &str = "SELECT l.pk_layer, l.pk_job, j.pk_show, j.pk_folder, j.pk_facility, s.int_waiting_count,
        l.int_cores_min, l.int_cores_max::bigint, l.int_mem_min, l.int_gpus_min, l.int_gpu_mem_min, l.b_threadable,
        l.str_tags, l.str_services, j.str_os, r.int_priority, (extract(epoch FROM j.ts_started) * 1e6)::bigint,
        l.int_dispatch_order, u.int_clock_time_success::float8 / nullif(u.int_frame_success_count, 0),
        l.int_timeout, r.int_cores, r.int_max_cores::bigint, r.int_gpus::bigint, r.int_max_gpus::bigint,
        r.int_min_cores::bigint, f.int_cores::bigint, f.int_max_cores::bigint, f.int_gpus::bigint,
        f.int_max_gpus::bigint, j.str_user::text
    FROM job j JOIN layer l USING (pk_job) JOIN layer_stat s USING (pk_layer)
        JOIN job_resource r ON r.pk_job = j.pk_job JOIN folder_resource f ON f.pk_folder = j.pk_folder
        LEFT JOIN layer_usage u ON u.pk_layer = l.pk_layer
    WHERE j.str_state = 'PENDING' AND NOT j.b_paused AND s.int_waiting_count > 0 AND j.pk_show = ANY($1::text[])
        AND (l.ts_start_after IS NULL OR l.ts_start_after <= now())
    ORDER BY r.int_priority DESC, j.ts_started, l.int_dispatch_order LIMIT $2";
const LIMITS: &str =
    "SELECT ll.pk_layer, r.pk_limit_record, r.int_max_value::bigint, r.b_host_limit, r.str_name
    FROM layer_limit ll JOIN limit_record r USING (pk_limit_record)
    WHERE ll.pk_layer = ANY($1::text[]) AND r.int_max_value IS NOT NULL";
const LIMITED: &str =
    "SELECT ll.pk_limit_record, h.str_name, count(*) FROM layer_limit ll JOIN proc p USING (pk_layer)
    JOIN host h USING (pk_host) WHERE ll.pk_limit_record = ANY($1::text[]) GROUP BY 1, 2";
const PROCS: &str = "SELECT p.pk_host, p.pk_layer, p.int_cores_reserved, p.int_mem_reserved,
        (extract(epoch FROM p.ts_dispatched) * 1e6)::bigint,
        u.int_clock_time_success::float8 / nullif(u.int_frame_success_count, 0)
    FROM proc p LEFT JOIN layer_usage u USING (pk_layer) WHERE p.pk_layer IS NOT NULL LIMIT $1";

/// Reads everything that a pass plans with. Procs are read only with `with_procs`, because there are many, and they
/// only tell when a reserved host will be free.
pub async fn read(client: &Client, scope: &Scope, with_procs: bool) -> Result<Snapshot, Error> {
    let mut all = Snapshot::default();
    for row in client.query(HOSTS, &[&scope.host_stale_s, &scope.facility, &HOSTS_MAX]).await? {
        all.hosts.push(host(&row, scope));
    }
    let sql = format!("{SUBSCRIPTIONS}{} AND ($2::text[] IS NULL OR w.pk_show = ANY($2))", scope.owned());
    for row in client.query(&sql, &[&scope.shows, &scope.permitted]).await? {
        all.now_us = row.get(7);
        all.subscriptions.extend(subscription(&row, scope));
    }
    let shows: BTreeSet<&str> = all.subscriptions.iter().map(|s| s.show.as_str()).collect();
    let shows: Vec<&str> = shows.into_iter().collect();
    if shows.is_empty() {
        return Ok(all);
    }
    let layers = client.query(LAYERS, &[&shows, &LAYERS_MAX]).await?;
    all.layers = layers.iter().map(|row| layer(row, scope)).collect();
    if !scope.manual_tags.is_empty() {
        keep_own_tags(&mut all, scope);
    }
    read_limits(client, &mut all).await?;
    if with_procs {
        all.procs = client.query(PROCS, &[&PROCS_MAX]).await?.iter().map(proc).collect();
    }
    Ok(all)
}

/// Leaves the tags by which this gateway books, and the layers that have one of them.
fn keep_own_tags(all: &mut Snapshot, scope: &Scope) {
    let shows: BTreeMap<&str, &str> =
        all.subscriptions.iter().map(|s| (s.show.as_str(), s.show_name.as_str())).collect();
    all.layers.retain_mut(|layer| {
        let show = shows.get(layer.show.as_str()).copied().unwrap_or_default();
        layer.tags.retain(|tag| scope.books_by(show, tag));
        !layer.tags.is_empty()
    });
}

async fn read_limits(client: &Client, all: &mut Snapshot) -> Result<(), Error> {
    let layers: Vec<&str> = all.layers.iter().map(|layer| layer.id.as_str()).collect();
    for row in client.query(LIMITS, &[&layers]).await? {
        let (layer, id): (String, String) = (row.get(0), row.get(1));
        let limit =
            LimitUse { name: row.get(4), max: row.get(2), is_of_hosts: row.get(3), frames: BTreeMap::new() };
        all.limits.entry(id.clone()).or_insert(limit);
        all.layer_limits.entry(layer).or_default().insert(id);
    }
    if all.limits.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = all.limits.keys().cloned().collect();
    for row in client.query(LIMITED, &[&ids]).await? {
        if let Some(limit) = all.limits.get_mut(&row.get::<_, String>(0)) {
            limit.frames.insert(row.get(1), row.get(2));
        }
    }
    Ok(())
}

fn host(row: &Row, scope: &Scope) -> Host {
    let mut tags: BTreeSet<String> = row.get::<_, Vec<String>>(14).into_iter().collect();
    let is_worker = tags.contains(WORKER_TAG);
    tags.retain(|tag| !scope.ignore_tags.contains(tag));
    Host {
        id: row.get(0),
        name: row.get(1),
        alloc: row.get(2),
        facility: row.get(3),
        thread_mode: row.get(4),
        size: Amounts { cores: row.get(5), mem_kib: row.get(7), gpus: row.get(9), gpu_mem_kib: row.get(11) },
        idle: Amounts { cores: row.get(6), mem_kib: row.get(8), gpus: row.get(10), gpu_mem_kib: row.get(12) },
        oses: words(row.get(13), &[',', ' ']).collect(),
        tags,
        is_worker,
    }
}

fn subscription(row: &Row, scope: &Scope) -> Option<Subscription> {
    let (show_name, tag): (String, Option<String>) = (row.get(1), row.get(6));
    scope.opens_allocation(&show_name, tag.as_deref()).then(|| Subscription {
        show: row.get(0),
        show_name,
        alloc: row.get(2),
        size: row.get(3),
        burst: row.get(4),
        cores: row.get(5),
    })
}

fn layer(row: &Row, scope: &Scope) -> Layer {
    let used = |first: usize| Used {
        cores: row.get(first),
        cores_max: row.get(first + 1),
        gpus: row.get(first + 2),
        gpus_max: row.get(first + 3),
    };
    let timeout_min: i32 = row.get(19);
    // Sorted, and each once.
    let services: BTreeSet<String> = words(row.get(13), &[',']).collect();
    Layer {
        id: row.get(0),
        job: row.get(1),
        show: row.get(2),
        folder: row.get(3),
        facility: row.get(4),
        waiting: u32::try_from(row.get::<_, i64>(5)).unwrap_or(u32::MAX),
        cores_min: row.get(6),
        cores_max: row.get(7),
        mem_min_kib: row.get(8),
        gpus_min: row.get(9),
        gpu_mem_min_kib: row.get(10),
        is_threadable: row.get(11),
        tags: words(row.get(12), &['|']).collect(),
        services: services.into_iter().collect(),
        oses: words(row.get::<_, Option<&str>>(14).unwrap_or_default(), &[',', ' ']).collect(),
        priority: row.get(15),
        submitted_us: row.get(16),
        order: row.get(17),
        mean_s: row.get(18),
        timeout_s: u64::try_from(timeout_min).ok().filter(|min| *min > 0).map(|min| min * 60),
        job_used: used(20),
        job_cores_min: row.get(24),
        folder_used: used(25),
        needs_rqd: !scope.is_worker_user(row.get(29)),
    }
}

fn proc(row: &Row) -> Proc {
    Proc {
        host: row.get(0),
        layer: row.get(1),
        cores: row.get(2),
        mem_kib: row.get(3),
        began_us: row.get(4),
        mean_s: row.get(5),
    }
}
