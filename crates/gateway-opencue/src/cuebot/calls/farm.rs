//! Shows, hosts, allocations and services: lists, and what operators switch.

use super::{ROWS_MAX, id};
use crate::cuebot::server::Cuebot;
use crate::cuebot::trouble::CallError;
use crate::generated::{facility, host, service, show};
use std::sync::Arc;
use tokio_postgres::Row;

const SHOWS: &str = "
SELECT w.pk_show, w.str_name, w.int_default_min_cores, w.int_default_max_cores, coalesce(w.str_comment_email, '') AS email,
       w.b_booking_enabled, w.b_dispatch_enabled, w.b_active, w.int_default_min_gpus, w.int_default_max_gpus,
       w.b_scheduler_managed, coalesce(c.running, 0) AS running, coalesce(c.dead, 0) AS dead,
       coalesce(c.pending, 0) AS pending, coalesce(c.jobs, 0) AS jobs, coalesce(p.cores, 0) AS cores,
       coalesce(p.gpus, 0) AS gpus
  FROM show w
  LEFT JOIN (SELECT pk_show, count(*)::int AS jobs, sum(int_running_count)::int AS running,
                    sum(int_dead_count)::int AS dead, sum(int_waiting_count + int_depend_count)::int AS pending
               FROM job JOIN job_stat USING (pk_job) WHERE str_state = 'PENDING' GROUP BY 1) c USING (pk_show)
  LEFT JOIN (SELECT pk_show, sum(int_cores)::int AS cores, sum(int_gpus)::int AS gpus FROM subscription GROUP BY 1) p
    USING (pk_show)";
const HOSTS: &str = "
SELECT h.pk_host, h.str_name, a.str_name AS alloc, h.b_nimby, h.b_comment, h.int_cores, h.int_cores_idle, h.int_mem,
       h.int_mem_idle, h.int_gpu_mem, h.int_gpu_mem_idle, h.int_gpus, h.int_gpus_idle, h.int_thread_mode,
       h.str_lock_state, s.str_state, s.str_os, s.int_swap_total, s.int_swap_free, s.int_mem_total, s.int_mem_free,
       s.int_mcp_total, s.int_mcp_free, s.int_gpu_mem_total, s.int_gpu_mem_free, s.int_load::int AS load,
       extract(epoch FROM s.ts_booted)::int AS booted, extract(epoch FROM s.ts_ping)::int AS pinged,
       ARRAY(SELECT str_tag::text FROM host_tag t WHERE t.pk_host = h.pk_host ORDER BY str_tag) AS tags
  FROM host h JOIN host_stat s USING (pk_host) JOIN alloc a USING (pk_alloc)";
const ALLOCS: &str = "
SELECT a.pk_alloc, a.str_name, coalesce(a.str_tag, '') AS tag, f.str_name AS facility, a.b_billable,
       count(h.pk_host)::int AS hosts, coalesce(sum(h.int_cores), 0)::bigint AS cores,
       coalesce(sum(h.int_cores_idle), 0)::bigint AS idle,
       coalesce(sum(h.int_cores_idle) FILTER (WHERE h.str_lock_state = 'OPEN' AND s.str_state = 'UP'), 0)::bigint AS free,
       coalesce(sum(h.int_cores) FILTER (WHERE h.str_lock_state <> 'OPEN'), 0)::bigint AS locked,
       count(*) FILTER (WHERE h.str_lock_state <> 'OPEN')::int AS locked_hosts,
       count(*) FILTER (WHERE s.str_state = 'DOWN')::int AS down_hosts
  FROM alloc a JOIN facility f USING (pk_facility) LEFT JOIN host h USING (pk_alloc) LEFT JOIN host_stat s USING (pk_host)
 WHERE ($1::text IS NULL OR a.str_name = $1) GROUP BY a.pk_alloc, f.str_name ORDER BY a.str_name";

fn cores(hundredths: i64) -> f32 {
    hundredths as f32 / 100.0
}

fn show_of(row: &Row) -> show::Show {
    let whole = |name: &str| i64::from(row.get::<_, i32>(name));
    show::Show {
        id: row.get("pk_show"),
        name: row.get("str_name"),
        default_min_cores: cores(whole("int_default_min_cores")),
        default_max_cores: cores(whole("int_default_max_cores")),
        comment_email: row.get("email"),
        booking_enabled: row.get("b_booking_enabled"),
        dispatch_enabled: row.get("b_dispatch_enabled"),
        active: row.get("b_active"),
        show_stats: Some(show::ShowStats {
            running_frames: row.get("running"),
            dead_frames: row.get("dead"),
            pending_frames: row.get("pending"),
            pending_jobs: row.get("jobs"),
            reserved_cores: cores(whole("cores")),
            reserved_gpus: row.get::<_, i32>("gpus") as f32,
            ..Default::default()
        }),
        default_min_gpus: row.get::<_, i32>("int_default_min_gpus") as f32,
        default_max_gpus: row.get::<_, i32>("int_default_max_gpus") as f32,
        scheduler_managed: row.get("b_scheduler_managed"),
    }
}

async fn shows(
    cuebot: &Cuebot,
    is_active: Option<bool>,
    name: Option<&str>,
) -> Result<Vec<show::Show>, CallError> {
    let statement = format!(
        "{SHOWS} WHERE ($1::bool IS NULL OR w.b_active = $1) AND ($2::text IS NULL OR w.str_name = $2)
         ORDER BY w.str_name LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &[&is_active, &name]).await?;
    Ok(rows.iter().map(show_of).collect())
}

/// Lists shows.
pub(crate) async fn all_shows(
    cuebot: Arc<Cuebot>,
    _: show::ShowGetShowsRequest,
) -> Result<show::ShowGetShowsResponse, CallError> {
    let shows = shows(&cuebot, None, None).await?;
    Ok(show::ShowGetShowsResponse { shows: Some(show::ShowSeq { shows }) })
}

/// Lists shows that are worked on.
pub(crate) async fn active_shows(
    cuebot: Arc<Cuebot>,
    _: show::ShowGetActiveShowsRequest,
) -> Result<show::ShowGetActiveShowsResponse, CallError> {
    let shows = shows(&cuebot, Some(true), None).await?;
    Ok(show::ShowGetActiveShowsResponse { shows: Some(show::ShowSeq { shows }) })
}

/// A show by its name.
pub(crate) async fn find_show(
    cuebot: Arc<Cuebot>,
    ask: show::ShowFindShowRequest,
) -> Result<show::ShowFindShowResponse, CallError> {
    let found = shows(&cuebot, None, Some(&ask.name)).await?.into_iter().next();
    let missing = CallError::Missing { what: "show", name: ask.name };
    Ok(show::ShowFindShowResponse { show: Some(found.ok_or(missing)?) })
}

/// Sets a column of one row. Nothing that a client sends is part of the statement.
async fn set(
    cuebot: &Cuebot,
    statement: &'static str,
    what: &'static str,
    key: Option<&String>,
    value: &(dyn tokio_postgres::types::ToSql + Sync),
) -> Result<(), CallError> {
    let key = id(what, key)?;
    let changed = cuebot.pool.get().await?.execute(statement, &[&key, value]).await?;
    if changed == 0 { Err(CallError::Missing { what, name: key.to_owned() }) } else { Ok(()) }
}

/// Gives a show to the scheduler, or to Cuebot.
pub(crate) async fn set_managed(
    cuebot: Arc<Cuebot>,
    ask: show::ShowSetSchedulerManagedRequest,
) -> Result<show::ShowSetSchedulerManagedResponse, CallError> {
    let statement = "UPDATE show SET b_scheduler_managed = $2 WHERE pk_show = $1";
    set(&cuebot, statement, "show", ask.show.as_ref().map(|show| &show.id), &ask.enabled).await?;
    Ok(show::ShowSetSchedulerManagedResponse {})
}

/// Says whether a show is worked on.
pub(crate) async fn set_active(
    cuebot: Arc<Cuebot>,
    ask: show::ShowSetActiveRequest,
) -> Result<show::ShowSetActiveResponse, CallError> {
    let statement = "UPDATE show SET b_active = $2 WHERE pk_show = $1";
    set(&cuebot, statement, "show", ask.show.as_ref().map(|show| &show.id), &ask.value).await?;
    Ok(show::ShowSetActiveResponse {})
}

/// Says whether frames of a show are booked.
pub(crate) async fn enable_booking(
    cuebot: Arc<Cuebot>,
    ask: show::ShowEnableBookingRequest,
) -> Result<show::ShowEnableBookingResponse, CallError> {
    let statement = "UPDATE show SET b_booking_enabled = $2 WHERE pk_show = $1";
    set(&cuebot, statement, "show", ask.show.as_ref().map(|show| &show.id), &ask.enabled).await?;
    Ok(show::ShowEnableBookingResponse {})
}

fn host_of(row: &Row) -> host::Host {
    let state = host::HardwareState::from_str_name(row.get("str_state")).unwrap_or(host::HardwareState::Down);
    let lock = host::LockState::from_str_name(row.get("str_lock_state")).unwrap_or(host::LockState::Locked);
    host::Host {
        id: row.get("pk_host"),
        name: row.get("str_name"),
        alloc_name: row.get("alloc"),
        nimby_enabled: row.get("b_nimby"),
        has_comment: row.get("b_comment"),
        cores: cores(row.get("int_cores")),
        idle_cores: cores(row.get("int_cores_idle")),
        memory: row.get("int_mem"),
        idle_memory: row.get("int_mem_idle"),
        gpu_memory: row.get("int_gpu_mem"),
        idle_gpu_memory: row.get("int_gpu_mem_idle"),
        total_swap: row.get("int_swap_total"),
        total_memory: row.get("int_mem_total"),
        total_gpu_memory: row.get("int_gpu_mem_total"),
        total_mcp: row.get("int_mcp_total"),
        free_swap: row.get("int_swap_free"),
        free_memory: row.get("int_mem_free"),
        free_mcp: row.get("int_mcp_free"),
        free_gpu_memory: row.get("int_gpu_mem_free"),
        load: row.get("load"),
        boot_time: row.get("booted"),
        ping_time: row.get("pinged"),
        os: row.get("str_os"),
        tags: row.get("tags"),
        state: state.into(),
        lock_state: lock.into(),
        thread_mode: row.get("int_thread_mode"),
        gpus: row.get::<_, i64>("int_gpus") as f32,
        idle_gpus: row.get::<_, i64>("int_gpus_idle") as f32,
    }
}

async fn hosts(cuebot: &Cuebot, r: &host::HostSearchCriteria) -> Result<Vec<host::Host>, CallError> {
    let states = r.states.as_ref().map(|seq| seq.state.iter()).into_iter().flatten();
    let states = states.filter_map(|state| host::HardwareState::try_from(*state).ok());
    let states: Vec<&str> = states.map(|state| state.as_str_name()).collect();
    let locks = r.lock_states.as_ref().map(|seq| seq.state.iter()).into_iter().flatten();
    let locks = locks.filter_map(|state| host::LockState::try_from(*state).ok());
    let locks: Vec<&str> = locks.map(|state| state.as_str_name()).collect();
    let statement = format!(
        "{HOSTS}
         WHERE (cardinality($1::text[]) = 0 OR h.str_name = ANY($1::text[]))
           AND (cardinality($2::text[]) = 0 OR h.str_name ~* ANY($2::text[]))
           AND (cardinality($3::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS part WHERE strpos(lower(h.str_name), lower(part)) > 0))
           AND (cardinality($4::text[]) = 0 OR h.pk_host = ANY($4::text[]))
           AND (cardinality($5::text[]) = 0 OR a.str_name = ANY($5::text[]))
           AND (cardinality($6::text[]) = 0 OR s.str_state = ANY($6::text[]))
           AND (cardinality($7::text[]) = 0 OR h.str_lock_state = ANY($7::text[]))
         ORDER BY h.str_name LIMIT {ROWS_MAX}"
    );
    let client = cuebot.pool.get().await?;
    let rows = client
        .query(&statement, &[&r.hosts, &r.regex, &r.substr, &r.ids, &r.allocs, &states, &locks])
        .await?;
    Ok(rows.iter().map(host_of).collect())
}

/// Lists hosts.
pub(crate) async fn all_hosts(
    cuebot: Arc<Cuebot>,
    ask: host::HostGetHostsRequest,
) -> Result<host::HostGetHostsResponse, CallError> {
    let hosts = hosts(&cuebot, &ask.r.unwrap_or_default()).await?;
    Ok(host::HostGetHostsResponse { hosts: Some(host::HostSeq { hosts }) })
}

async fn one_host(
    cuebot: &Cuebot,
    r: host::HostSearchCriteria,
    name: String,
) -> Result<host::Host, CallError> {
    let found = hosts(cuebot, &r).await?.into_iter().next();
    found.ok_or(CallError::Missing { what: "host", name })
}

/// A host by its name.
pub(crate) async fn find_host(
    cuebot: Arc<Cuebot>,
    ask: host::HostFindHostRequest,
) -> Result<host::HostFindHostResponse, CallError> {
    let r = host::HostSearchCriteria { hosts: vec![ask.name.clone()], ..Default::default() };
    Ok(host::HostFindHostResponse { host: Some(one_host(&cuebot, r, ask.name).await?) })
}

/// A host by its id.
pub(crate) async fn get_host(
    cuebot: Arc<Cuebot>,
    ask: host::HostGetHostRequest,
) -> Result<host::HostGetHostResponse, CallError> {
    let r = host::HostSearchCriteria { ids: vec![ask.id.clone()], ..Default::default() };
    Ok(host::HostGetHostResponse { host: Some(one_host(&cuebot, r, ask.id).await?) })
}

const LOCK: &str = "UPDATE host SET str_lock_state = $2, str_lock_source = 'API' WHERE pk_host = $1";

/// A host gets no new frames.
pub(crate) async fn lock(
    cuebot: Arc<Cuebot>,
    ask: host::HostLockRequest,
) -> Result<host::HostLockResponse, CallError> {
    set(&cuebot, LOCK, "host", ask.host.as_ref().map(|host| &host.id), &"LOCKED").await?;
    Ok(host::HostLockResponse {})
}

/// A host gets frames again.
pub(crate) async fn unlock(
    cuebot: Arc<Cuebot>,
    ask: host::HostUnlockRequest,
) -> Result<host::HostUnlockResponse, CallError> {
    set(&cuebot, LOCK, "host", ask.host.as_ref().map(|host| &host.id), &"OPEN").await?;
    Ok(host::HostUnlockResponse {})
}

fn alloc_of(row: &Row) -> facility::Allocation {
    let (all, idle): (i64, i64) = (row.get("cores"), row.get("idle"));
    facility::Allocation {
        id: row.get("pk_alloc"),
        name: row.get("str_name"),
        tag: row.get("tag"),
        facility: row.get("facility"),
        billable: row.get("b_billable"),
        stats: Some(facility::AllocationStats {
            cores: cores(all),
            available_cores: cores(row.get("free")),
            idle_cores: cores(idle),
            running_cores: cores(all - idle),
            locked_cores: cores(row.get("locked")),
            hosts: row.get("hosts"),
            locked_hosts: row.get("locked_hosts"),
            down_hosts: row.get("down_hosts"),
            ..Default::default()
        }),
    }
}

/// Lists allocations.
pub(crate) async fn all_allocs(
    cuebot: Arc<Cuebot>,
    _: facility::AllocGetAllRequest,
) -> Result<facility::AllocGetAllResponse, CallError> {
    let rows = cuebot.pool.get().await?.query(ALLOCS, &[&None::<&str>]).await?;
    let allocations = rows.iter().map(alloc_of).collect();
    Ok(facility::AllocGetAllResponse { allocations: Some(facility::AllocationSeq { allocations }) })
}

/// An allocation by its name.
pub(crate) async fn find_alloc(
    cuebot: Arc<Cuebot>,
    ask: facility::AllocFindRequest,
) -> Result<facility::AllocFindResponse, CallError> {
    let row = cuebot.pool.get().await?.query_opt(ALLOCS, &[&Some(&ask.name)]).await?;
    let missing = CallError::Missing { what: "allocation", name: ask.name };
    Ok(facility::AllocFindResponse { allocation: Some(row.as_ref().map(alloc_of).ok_or(missing)?) })
}

/// Lists the services that layers name.
pub(crate) async fn services(
    cuebot: Arc<Cuebot>,
    _: service::ServiceGetDefaultServicesRequest,
) -> Result<service::ServiceGetDefaultServicesResponse, CallError> {
    let statement = format!("SELECT * FROM service ORDER BY str_name LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[]).await?;
    let of = |row: &Row| service::Service {
        id: row.get("pk_service"),
        name: row.get("str_name"),
        threadable: row.get("b_threadable"),
        min_cores: row.get("int_cores_min"),
        max_cores: row.get("int_cores_max"),
        min_memory: i64::from(row.get::<_, i32>("int_mem_min")),
        min_gpu_memory: row.get("int_gpu_mem_min"),
        tags: row.get::<_, String>("str_tags").split('|').map(|tag| tag.trim().to_owned()).collect(),
        timeout: row.get("int_timeout"),
        timeout_llu: row.get("int_timeout_llu"),
        min_gpus: row.get("int_gpus_min"),
        max_gpus: row.get("int_gpus_max"),
        min_memory_increase: row.get("int_min_memory_increase"),
    };
    let services = rows.iter().map(of).collect();
    Ok(service::ServiceGetDefaultServicesResponse { services: Some(service::ServiceSeq { services }) })
}
