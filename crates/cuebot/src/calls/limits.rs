//! Limits: how many frames, or hosts, use something at a time.

use super::{ROWS_MAX, name};
use crate::cuebot::Cuebot;
use crate::generated::limit::{self, Limit, LimitType};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Characters of a limit's name: its column.
const NAME_CHARS_MAX: usize = 255;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/limit.LimitInterface/GetAll", unary(all))
        .route("/limit.LimitInterface/Get", unary(get))
        .route("/limit.LimitInterface/Find", unary(find))
        .route("/limit.LimitInterface/Create", unary(create))
        .route("/limit.LimitInterface/Delete", unary(delete))
        .route("/limit.LimitInterface/Rename", unary(rename))
        .route("/limit.LimitInterface/SetMaxValue", unary(set_max))
        .route("/limit.LimitInterface/SetType", unary(set_type))
}

fn limit(row: &Row) -> Limit {
    let is_of_hosts: bool = row.get("b_host_limit");
    let (frames, hosts): (i32, i32) = (row.get("frames"), row.get("hosts"));
    let used = if is_of_hosts { hosts } else { frames };
    Limit {
        id: row.get("pk_limit_record"),
        name: row.get("str_name"),
        // Below 0 is without a cap.
        max_value: row.get::<_, Option<i32>>("int_max_value").unwrap_or(-1),
        current_running: used,
        current_usage: used,
        host_count: hosts,
        r#type: if is_of_hosts { LimitType::Host } else { LimitType::Frame }.into(),
        spec_layer_count: row.get("layers"),
        ..Default::default()
    }
}

/// Limits that `which` picks, with their use. `which` is part of the statement.
pub(super) async fn list(
    cuebot: &Cuebot,
    which: &'static str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Limit>, CallError> {
    let statement = format!(
        "SELECT l.pk_limit_record, l.str_name, l.int_max_value, l.b_host_limit, count(DISTINCT x.pk_layer)::int AS layers,
                count(p.pk_proc)::int AS frames, count(DISTINCT p.pk_host)::int AS hosts
           FROM limit_record l LEFT JOIN layer_limit x USING (pk_limit_record) LEFT JOIN proc p ON p.pk_layer = x.pk_layer
          WHERE {which} GROUP BY 1, 2, 3, 4 ORDER BY l.str_name LIMIT {ROWS_MAX}"
    );
    let rows = cuebot.pool.get().await?.query(&statement, values).await?;
    Ok(rows.iter().map(limit).collect())
}

pub(crate) async fn all(
    cuebot: Arc<Cuebot>,
    _: limit::LimitGetAllRequest,
) -> Result<limit::LimitGetAllResponse, CallError> {
    Ok(limit::LimitGetAllResponse { limits: list(&cuebot, "true", &[]).await? })
}

async fn one(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Limit, CallError> {
    let found = list(cuebot, which, &[&key]).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "limit", name: key.to_owned() })
}

const NAMED: &str = "l.str_name = $1";

pub(crate) async fn get(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitGetRequest,
) -> Result<limit::LimitGetResponse, CallError> {
    Ok(limit::LimitGetResponse { limit: Some(one(&cuebot, "l.pk_limit_record = $1", &ask.id).await?) })
}

pub(crate) async fn find(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitFindRequest,
) -> Result<limit::LimitFindResponse, CallError> {
    Ok(limit::LimitFindResponse { limit: Some(one(&cuebot, NAMED, &ask.name).await?) })
}

pub(crate) async fn create(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitCreateRequest,
) -> Result<limit::LimitCreateResponse, CallError> {
    name("limit name", &ask.name, NAME_CHARS_MAX)?;
    let is_of_hosts = ask.r#type == i32::from(LimitType::Host);
    let max = ask.max_value.max(0);
    let statement = "INSERT INTO limit_record (pk_limit_record, str_name, int_max_value, b_host_limit)
        SELECT gen_random_uuid()::text, $1::text, $2::int, $3::boolean
         WHERE NOT EXISTS (SELECT 1 FROM limit_record WHERE str_name = $1::text)";
    let made = cuebot.pool.get().await?.execute(statement, &[&ask.name, &max, &is_of_hosts]).await?;
    if made == 0 {
        return Err(CallError::Exists { what: "limit", name: ask.name });
    }
    Ok(limit::LimitCreateResponse { limit: Some(one(&cuebot, NAMED, &ask.name).await?) })
}

/// Runs a statement that changes the limit of a name.
async fn change(
    cuebot: &Cuebot,
    statement: &'static str,
    limit: &str,
    value: &(dyn ToSql + Sync),
) -> Result<(), CallError> {
    let changed = cuebot.pool.get().await?.execute(statement, &[&limit, value]).await?;
    CallError::unless_found(changed, "limit", limit)
}

/// Sets the number of frames, or of hosts, that a limit allows.
pub(crate) async fn set_max(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitSetMaxValueRequest,
) -> Result<limit::LimitSetMaxValueResponse, CallError> {
    let statement = "UPDATE limit_record SET int_max_value = $2 WHERE str_name = $1";
    change(&cuebot, statement, &ask.name, &ask.max_value.max(0)).await?;
    Ok(limit::LimitSetMaxValueResponse {})
}

/// Sets whether a limit counts frames, or hosts that run some.
pub(crate) async fn set_type(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitSetTypeRequest,
) -> Result<limit::LimitSetTypeResponse, CallError> {
    let is_of_hosts = ask.r#type == i32::from(LimitType::Host);
    let statement = "UPDATE limit_record SET b_host_limit = $2 WHERE str_name = $1";
    change(&cuebot, statement, &ask.name, &is_of_hosts).await?;
    Ok(limit::LimitSetTypeResponse {})
}

pub(crate) async fn rename(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitRenameRequest,
) -> Result<limit::LimitRenameResponse, CallError> {
    name("limit name", &ask.new_name, NAME_CHARS_MAX)?;
    let is_taken = !list(&cuebot, NAMED, &[&ask.new_name]).await?.is_empty();
    if is_taken {
        return Err(CallError::Exists { what: "limit", name: ask.new_name });
    }
    let statement = "UPDATE limit_record SET str_name = $2 WHERE str_name = $1";
    change(&cuebot, statement, &ask.old_name, &ask.new_name).await?;
    Ok(limit::LimitRenameResponse {})
}

/// Deletes a limit. Its layers run without it.
pub(crate) async fn delete(
    cuebot: Arc<Cuebot>,
    ask: limit::LimitDeleteRequest,
) -> Result<limit::LimitDeleteResponse, CallError> {
    let given = Arc::new(ask.name);
    let limit = given.clone();
    let gone = cuebot
        .transact(move |tx| {
            let limit = limit.clone();
            Box::pin(async move {
                let held = "DELETE FROM layer_limit WHERE pk_limit_record IN (
                    SELECT pk_limit_record FROM limit_record WHERE str_name = $1)";
                tx.execute(held, &[&limit.as_str()]).await?;
                let own = "DELETE FROM limit_record WHERE str_name = $1";
                Ok(tx.execute(own, &[&limit.as_str()]).await?)
            })
        })
        .await?;
    CallError::unless_found(gone, "limit", &given)?;
    Ok(limit::LimitDeleteResponse {})
}
