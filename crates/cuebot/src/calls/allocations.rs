//! Facilities, and their allocations: sets of hosts.

use super::fields::{Answer, ROWS_MAX, all_cores, id};
use super::hosts;
use crate::cuebot::Cuebot;
use crate::generated::facility::*;
use crate::generated::host::{HostSearchCriteria, HostSeq};
use crate::names;
use crate::report::write_tags;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of an allocation's name, its facility's included, and of its tag: their columns.
const WIDTHS: (usize, usize) = (36, 24);

pub(super) fn routes(routes: Routes) -> Routes {
    setters(changes(answers(routes)))
        .route("/facility.AllocationInterface/Create", unary(create))
        .route("/facility.AllocationInterface/SetName", unary(set_name))
        .route("/facility.AllocationInterface/SetTag", unary(set_tag))
        .route("/facility.AllocationInterface/SetDefault", unary(set_default))
        .route("/facility.FacilityInterface/Create", unary(create_facility))
}

const ALLOCS: &str = "
SELECT a.pk_alloc, a.str_name, coalesce(a.str_tag, '') AS tag, f.str_name AS facility, a.b_billable,
       count(h.pk_host)::int AS hosts, coalesce(sum(h.int_cores), 0)::bigint AS cores,
       coalesce(sum(h.int_cores_idle), 0)::bigint AS idle,
       coalesce(sum(h.int_cores_idle) FILTER (WHERE h.str_lock_state = 'OPEN' AND s.str_state = 'UP'), 0)::bigint AS free,
       coalesce(sum(h.int_cores) FILTER (WHERE h.str_lock_state <> 'OPEN'), 0)::bigint AS locked,
       coalesce(sum(h.int_gpus), 0)::bigint AS gpus, coalesce(sum(h.int_gpus_idle), 0)::bigint AS idle_gpus,
       coalesce(sum(h.int_gpus_idle) FILTER (WHERE h.str_lock_state = 'OPEN' AND s.str_state = 'UP'), 0)::bigint
           AS free_gpus,
       coalesce(sum(h.int_gpus) FILTER (WHERE h.str_lock_state <> 'OPEN'), 0)::bigint AS locked_gpus,
       count(*) FILTER (WHERE h.str_lock_state <> 'OPEN')::int AS locked_hosts,
       count(*) FILTER (WHERE s.str_state = 'DOWN')::int AS down_hosts
  FROM alloc a JOIN facility f USING (pk_facility) LEFT JOIN host h USING (pk_alloc) LEFT JOIN host_stat s USING (pk_host)";

fn alloc(row: &Row) -> Allocation {
    let (all, idle): (i64, i64) = (row.get("cores"), row.get("idle"));
    let (gpus, idle_gpus): (i64, i64) = (row.get("gpus"), row.get("idle_gpus"));
    Allocation {
        id: row.get("pk_alloc"),
        name: row.get("str_name"),
        tag: row.get("tag"),
        facility: row.get("facility"),
        billable: row.get("b_billable"),
        stats: Some(AllocationStats {
            cores: all_cores(all),
            available_cores: all_cores(row.get("free")),
            idle_cores: all_cores(idle),
            running_cores: all_cores(all - idle),
            locked_cores: all_cores(row.get("locked")),
            hosts: row.get("hosts"),
            locked_hosts: row.get("locked_hosts"),
            down_hosts: row.get("down_hosts"),
            gpus: gpus as f32,
            idle_gpus: idle_gpus as f32,
            running_gpus: (gpus - idle_gpus) as f32,
            available_gpus: row.get::<_, i64>("free_gpus") as f32,
            locked_gpus: row.get::<_, i64>("locked_gpus") as f32,
        }),
    }
}

async fn list(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Vec<Allocation>, CallError> {
    let statement = format!(
        "{ALLOCS} WHERE a.b_enabled IS NOT FALSE AND {which} GROUP BY a.pk_alloc, f.str_name ORDER BY a.str_name
         LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, &[&key]).await?;
    Ok(rows.iter().map(alloc).collect())
}

async fn one(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Allocation, CallError> {
    let found = list(cuebot, which, key).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "allocation", name: key.to_owned() })
}

/// The hosts of a search among those of an allocation.
async fn hosts_in(
    cuebot: &Cuebot,
    alloc: Option<&Allocation>,
    r: HostSearchCriteria,
) -> Result<HostSeq, CallError> {
    let key = id("allocation", alloc.map(|alloc| &alloc.id))?;
    let found = one(cuebot, "a.pk_alloc = $1", key).await?;
    let r = HostSearchCriteria { allocs: vec![found.name], ..r };
    Ok(HostSeq { hosts: hosts::search(cuebot, &r).await? })
}

answers! { |cuebot, ask|
    "/facility.AllocationInterface/GetAll": AllocGetAllRequest => AllocGetAllResponse {
        allocations: Some(AllocationSeq { allocations: list(&cuebot, "$1 = ''", "").await? })
    };
    "/facility.AllocationInterface/Get": AllocGetRequest => AllocGetResponse {
        allocation: Some(one(&cuebot, "a.pk_alloc = $1", &ask.id).await?)
    };
    "/facility.AllocationInterface/Find": AllocFindRequest => AllocFindResponse {
        allocation: Some(one(&cuebot, "a.str_name = $1", &ask.name).await?)
    };
    // The allocation of new hosts.
    "/facility.AllocationInterface/GetDefault": AllocGetDefaultRequest => AllocGetDefaultResponse {
        allocation: Some(one(&cuebot, "a.b_default AND $1 = 'default'", "default").await?)
    };
    "/facility.AllocationInterface/GetHosts": AllocGetHostsRequest => AllocGetHostsResponse {
        hosts: Some(hosts_in(&cuebot, ask.allocation.as_ref(), HostSearchCriteria::default()).await?)
    };
    "/facility.AllocationInterface/FindHosts": AllocFindHostsRequest => AllocFindHostsResponse {
        hosts: Some(hosts_in(&cuebot, ask.allocation.as_ref(), ask.r.unwrap_or_default()).await?)
    };
    // A facility by its name or its id.
    "/facility.FacilityInterface/Get": FacilityGetRequest => FacilityGetResponse {
        facility: Some(facility_of(&cuebot, &ask.name).await?)
    };
    "/facility.FacilityInterface/GetAllocations": FacilityGetAllocationsRequest => FacilityGetAllocationsResponse {
        allocations: Some(AllocationSeq {
            allocations: list(&cuebot, "a.pk_facility = $1", key!(ask.facility)?).await?
        })
    };
}

changes! { |cuebot, ask|
    "/facility.AllocationInterface/ReparentHosts": AllocReparentHostsRequest => {
        let alloc = key!(ask.allocation)?.to_owned();
        let hosts = ask.hosts.map(|seq| seq.hosts).unwrap_or_default();
        hosts::give(&cuebot, hosts.into_iter().map(|host| host.id).collect(), alloc).await
    };
}

/// Adds an allocation to a facility. Its name begins with the facility's.
async fn create(cuebot: Arc<Cuebot>, ask: AllocCreateRequest) -> Answer<AllocCreateResponse> {
    let facility = ask.facility.unwrap_or_default();
    let key = id("facility", Some(&facility.id))?;
    let tag = names::plain("tag", &ask.tag, 1, WIDTHS.1)?;
    let prefix = format!("{}.", facility.name);
    let own = ask.name.strip_prefix(&prefix).unwrap_or(&ask.name);
    let name = names::plain("allocation name", &format!("{prefix}{own}"), 1, WIDTHS.0)?;
    let statement = "INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility)
        SELECT gen_random_uuid()::text, $2::text, $3::text, pk_facility FROM facility WHERE pk_facility = $1";
    let client = cuebot.pool.get().await?;
    let made = client
        .execute(statement, &[&key, &name, &tag])
        .await
        .map_err(|error| CallError::taken(error, "allocation", &name))?;
    drop(client);
    CallError::unless_found(made, "facility", key)?;
    let allocation = one(&cuebot, "a.str_name = $1", &name).await?;
    Ok(AllocCreateResponse { allocation: Some(allocation) })
}

/// Renames an allocation. Its facility's name stays before its own.
async fn set_name(cuebot: Arc<Cuebot>, ask: AllocSetNameRequest) -> Answer<()> {
    let key = key!(ask.allocation)?;
    let known = one(&cuebot, "a.pk_alloc = $1", key).await?;
    let prefix = format!("{}.", known.facility);
    let own = ask.name.strip_prefix(&prefix).unwrap_or(&ask.name);
    let name = names::plain("allocation name", &format!("{prefix}{own}"), 1, WIDTHS.0)?;
    let statement = "UPDATE alloc SET str_name = $2 WHERE pk_alloc = $1";
    let renamed = cuebot.pool.get().await?.execute(statement, &[&key, &name]).await;
    renamed.map_err(|error| CallError::taken(error, "allocation", &name))?;
    Ok(())
}

/// Changes the tag of an allocation's hosts, in their rows, too.
async fn set_tag(cuebot: Arc<Cuebot>, ask: AllocSetTagRequest) -> Answer<()> {
    let key = key!(ask.allocation)?;
    let tag = names::plain("tag", &ask.tag, 1, WIDTHS.1)?;
    cuebot
        .transact((key, tag), |tx, (key, tag)| {
            Box::pin(async move {
                let hosts = "SELECT 1 FROM host WHERE pk_alloc = $1 ORDER BY pk_host FOR UPDATE";
                tx.query(hosts, &[key]).await?;
                let set = "UPDATE alloc SET str_tag = $2 WHERE pk_alloc = $1";
                CallError::unless_found(tx.execute(set, &[key, tag]).await?, "allocation", key)?;
                let of_hosts = "UPDATE host_tag SET str_tag = $2 WHERE upper(str_tag_type) = 'ALLOC'
                    AND pk_host IN (SELECT pk_host FROM host WHERE pk_alloc = $1)";
                tx.execute(of_hosts, &[key, tag]).await?;
                write_tags(tx, "pk_alloc", key).await
            })
        })
        .await
}

setters!("facility.AllocationInterface", allocation {
    "SetBillable": AllocSetBillableRequest, |ask| ask.value,
        "UPDATE alloc SET b_billable = $2 WHERE pk_alloc = $1";
});

/// Makes an allocation the one of new hosts.
async fn set_default(cuebot: Arc<Cuebot>, ask: AllocSetDefaultRequest) -> Answer<()> {
    let key = key!(ask.allocation)?;
    one(&cuebot, "a.pk_alloc = $1", key).await?;
    let statement = "UPDATE alloc SET b_default = (pk_alloc = $1) WHERE b_default OR pk_alloc = $1";
    cuebot.pool.get().await?.execute(statement, &[&key]).await?;
    Ok(())
}

async fn facility_of(cuebot: &Cuebot, name: &str) -> Result<Facility, CallError> {
    let statement =
        "SELECT pk_facility, str_name FROM facility WHERE str_name = $1 OR pk_facility = $1 LIMIT 1";
    let row = cuebot.pool.get().await?.query_opt(statement, &[&name]).await?;
    let row = row.ok_or_else(|| CallError::Missing { what: "facility", name: name.to_owned() })?;
    Ok(Facility { id: row.get(0), name: row.get(1) })
}

async fn create_facility(cuebot: Arc<Cuebot>, ask: FacilityCreateRequest) -> Answer<FacilityCreateResponse> {
    let name = names::plain("facility name", &ask.name, 1, names::width::FACILITY)?;
    let statement = "INSERT INTO facility (pk_facility, str_name) SELECT gen_random_uuid()::text, $1::text
        WHERE NOT EXISTS (SELECT 1 FROM facility WHERE str_name = $1::text)";
    if cuebot.pool.get().await?.execute(statement, &[&name]).await? == 0 {
        return Err(CallError::Exists { what: "facility", name });
    }
    Ok(FacilityCreateResponse { facility: Some(facility_of(&cuebot, &name).await?) })
}
