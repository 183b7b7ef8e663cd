//! Rows that placement uses besides jobs and workers: samples of task profiles, queues and limits. Nothing here checks a
//! setting; the engine did.

use super::trouble::Trouble;
use crate::rows::{self, LIMIT, QUEUE};
use deadpool_postgres::Transaction;
use std::collections::BTreeMap;
use windlass_core::licences::Limit;
use windlass_core::queues::QueueRecord;
use windlass_core::score::history::Sample;

/// Up to `limit` task profiles with their samples, last used first.
pub async fn history(at: &Transaction<'_>, limit: usize) -> Result<Vec<(String, Vec<Sample>)>, Trouble> {
    let sql = "SELECT signature, samples FROM history ORDER BY at DESC, signature DESC LIMIT $1";
    let found = at.query(sql, &[&(limit as i64)]).await?;
    Ok(found.iter().map(rows::history).collect::<Result<_, _>>()?)
}

pub async fn queues(at: &Transaction<'_>) -> Result<Vec<QueueRecord>, Trouble> {
    let found = at.query(&format!("SELECT {QUEUE} FROM queues ORDER BY name"), &[]).await?;
    Ok(found.iter().map(rows::queue).collect::<Result<_, _>>()?)
}

pub async fn limits(at: &Transaction<'_>) -> Result<BTreeMap<String, Limit>, Trouble> {
    let found = at.query(&format!("SELECT {LIMIT} FROM limits"), &[]).await?;
    Ok(found.iter().map(rows::limit).collect::<Result<_, _>>()?)
}
