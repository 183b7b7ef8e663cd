//! Services: defaults for layers whose specs have none.

use super::fields::{self, Answer, ROWS_MAX, fitting, id};
use crate::cuebot::Cuebot;
use crate::generated::service::*;
use crate::names;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Characters of a service's name, and of its tags together: their columns.
const WIDTHS: (usize, usize) = (36, 128);

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/service.ServiceInterface/GetDefaultServices", unary(list))
        .route("/service.ServiceInterface/GetService", unary(get))
        .route("/service.ServiceInterface/CreateService", unary(create))
        .route("/service.ServiceInterface/Update", unary(update))
        .route("/service.ServiceInterface/Delete", unary(delete))
}

fn service(row: &Row) -> Service {
    Service {
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
    }
}

async fn list(
    cuebot: Arc<Cuebot>,
    _: ServiceGetDefaultServicesRequest,
) -> Answer<ServiceGetDefaultServicesResponse> {
    let statement = format!("SELECT * FROM service ORDER BY str_name LIMIT {ROWS_MAX}");
    let rows = cuebot.pool.get().await?.query(&statement, &[]).await?;
    let services = rows.iter().map(service).collect();
    Ok(ServiceGetDefaultServicesResponse { services: Some(ServiceSeq { services }) })
}

/// A service by its name, or by its id.
async fn get(cuebot: Arc<Cuebot>, ask: ServiceGetServiceRequest) -> Answer<ServiceGetServiceResponse> {
    let statement = "SELECT * FROM service WHERE str_name = $1 OR pk_service = $1 LIMIT 1";
    let row = cuebot.pool.get().await?.query_opt(statement, &[&ask.name]).await?;
    let row = row.ok_or(CallError::Missing { what: "service", name: ask.name })?;
    Ok(ServiceGetServiceResponse { service: Some(service(&row)) })
}

/// A service as its columns have it: tags in one text, and memory in KiB as a whole number.
fn check(service: &Service) -> Result<(String, i32), CallError> {
    names::plain("service name", &service.name, 1, WIDTHS.0)?;
    fields::tags(&service.tags)?;
    let tags = fitting("list of tags", &service.tags.join(" | "), WIDTHS.1)?;
    match i32::try_from(service.min_memory) {
        Ok(memory_kib) if memory_kib > 0 => Ok((tags, memory_kib)),
        _ => Err(CallError::Value(format!("{} KiB is not a valid memory of a service", service.min_memory))),
    }
}

const CREATE: &str = "
INSERT INTO service (pk_service, str_name, b_threadable, int_cores_min, int_cores_max, int_mem_min, int_gpu_mem_min,
       str_tags, int_timeout, int_timeout_llu, int_gpus_min, int_gpus_max, int_min_memory_increase)
VALUES (gen_random_uuid()::text, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
const UPDATE: &str = "
UPDATE service SET str_name = $1, b_threadable = $2, int_cores_min = $3, int_cores_max = $4, int_mem_min = $5,
       int_gpu_mem_min = $6, str_tags = $7, int_timeout = $8, int_timeout_llu = $9, int_gpus_min = $10,
       int_gpus_max = $11, int_min_memory_increase = $12 WHERE pk_service = $13";

/// The values of a service, in the order of [`CREATE`] and [`UPDATE`].
fn values<'a>(s: &'a Service, checked: &'a (String, i32)) -> [&'a (dyn ToSql + Sync); 12] {
    let (tags, memory_kib) = checked;
    [
        &s.name,
        &s.threadable,
        &s.min_cores,
        &s.max_cores,
        memory_kib,
        &s.min_gpu_memory,
        tags,
        &s.timeout,
        &s.timeout_llu,
        &s.min_gpus,
        &s.max_gpus,
        &s.min_memory_increase,
    ]
}

async fn create(
    cuebot: Arc<Cuebot>,
    ask: ServiceCreateServiceRequest,
) -> Answer<ServiceCreateServiceResponse> {
    let s = ask.data.unwrap_or_default();
    let checked = check(&s)?;
    let made = cuebot.pool.get().await?.execute(CREATE, &values(&s, &checked)).await?;
    if made == 0 {
        return Err(CallError::Exists { what: "service", name: s.name });
    }
    let found = get(cuebot, ServiceGetServiceRequest { name: s.name }).await?;
    Ok(ServiceCreateServiceResponse { service: found.service })
}

async fn update(cuebot: Arc<Cuebot>, ask: ServiceUpdateRequest) -> Answer<()> {
    let s = ask.service.unwrap_or_default();
    let key = id("service", Some(&s.id))?;
    let checked = check(&s)?;
    let mut given = values(&s, &checked).to_vec();
    given.push(&key);
    let changed = cuebot.pool.get().await?.execute(UPDATE, &given).await;
    let changed = changed.map_err(|error| CallError::taken(error, "service", &s.name))?;
    CallError::unless_found(changed, "service", key)
}

/// Deletes a service. Layers keep the values that they took from it.
async fn delete(cuebot: Arc<Cuebot>, ask: ServiceDeleteRequest) -> Answer<()> {
    let key = key!(ask.service)?;
    let statement = "DELETE FROM service WHERE pk_service = $1 AND str_name <> 'default'";
    if cuebot.pool.get().await?.execute(statement, &[&key]).await? == 0 {
        return Err(CallError::Missing { what: "service but 'default' of the id", name: key.to_owned() });
    }
    Ok(())
}
