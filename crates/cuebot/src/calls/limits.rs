//! Limits: how many frames, or hosts, use something at a time.

use super::fields::{Answer, ROWS_MAX, name};
use crate::cuebot::Cuebot;
use crate::generated::limit::*;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Characters of a limit's name: its column.
const NAME_CHARS_MAX: usize = 255;

pub(super) fn routes(routes: Routes) -> Routes {
    changes(answers(routes))
        .route("/limit.LimitInterface/Create", unary(create))
        .route("/limit.LimitInterface/Delete", unary(delete))
        .route("/limit.LimitInterface/Rename", unary(rename))
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

async fn one(cuebot: &Cuebot, which: &'static str, key: &str) -> Result<Limit, CallError> {
    let found = list(cuebot, which, &[&key]).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "limit", name: key.to_owned() })
}

const NAMED: &str = "l.str_name = $1";

answers! { |cuebot, ask|
    "/limit.LimitInterface/GetAll": LimitGetAllRequest => LimitGetAllResponse {
        limits: list(&cuebot, "true", &[]).await?
    };
    "/limit.LimitInterface/Get": LimitGetRequest => LimitGetResponse {
        limit: Some(one(&cuebot, "l.pk_limit_record = $1", &ask.id).await?)
    };
    "/limit.LimitInterface/Find": LimitFindRequest => LimitFindResponse {
        limit: Some(one(&cuebot, NAMED, &ask.name).await?)
    };
}

async fn create(cuebot: Arc<Cuebot>, ask: LimitCreateRequest) -> Answer<LimitCreateResponse> {
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
    Ok(LimitCreateResponse { limit: Some(one(&cuebot, NAMED, &ask.name).await?) })
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

changes! { |cuebot, ask|
    "/limit.LimitInterface/SetMaxValue": LimitSetMaxValueRequest => {
        let statement = "UPDATE limit_record SET int_max_value = $2 WHERE str_name = $1";
        change(&cuebot, statement, &ask.name, &ask.max_value.max(0)).await
    };
    // Whether a limit counts frames, or hosts that run some.
    "/limit.LimitInterface/SetType": LimitSetTypeRequest => {
        let is_of_hosts = ask.r#type == i32::from(LimitType::Host);
        let statement = "UPDATE limit_record SET b_host_limit = $2 WHERE str_name = $1";
        change(&cuebot, statement, &ask.name, &is_of_hosts).await
    };
}

async fn rename(cuebot: Arc<Cuebot>, ask: LimitRenameRequest) -> Answer<()> {
    name("limit name", &ask.new_name, NAME_CHARS_MAX)?;
    let is_taken = !list(&cuebot, NAMED, &[&ask.new_name]).await?.is_empty();
    if is_taken {
        return Err(CallError::Exists { what: "limit", name: ask.new_name });
    }
    let statement = "UPDATE limit_record SET str_name = $2 WHERE str_name = $1";
    change(&cuebot, statement, &ask.old_name, &ask.new_name).await
}

/// Deletes a limit. Its layers run without it.
async fn delete(cuebot: Arc<Cuebot>, ask: LimitDeleteRequest) -> Answer<()> {
    let gone = cuebot
        .transact(ask.name.as_str(), |tx, limit| {
            Box::pin(async move {
                let held = "DELETE FROM layer_limit WHERE pk_limit_record IN (
                    SELECT pk_limit_record FROM limit_record WHERE str_name = $1)";
                tx.execute(held, &[limit]).await?;
                let own = "DELETE FROM limit_record WHERE str_name = $1";
                Ok(tx.execute(own, &[limit]).await?)
            })
        })
        .await?;
    CallError::unless_found(gone, "limit", &ask.name)
}
