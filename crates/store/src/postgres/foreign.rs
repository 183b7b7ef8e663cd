//! Rows that the server keeps beside the engine's: documents of another system's jobs and hosts, series of the farm
//! over time, and numbers. The store never looks into them, and deletes the documents of a job with the job.

use super::trouble::Trouble;
use super::{Postgres, text};
use crate::codes::int;
use crate::error::StoreError;
use crate::rows::{self, StoredRow};
use crate::view::{ForeignDocs, ForeignWrite, SeriesRow};
use std::ops::Range;
use windlass_core::JobId;

impl Postgres {
    /// Applies changes in one transaction.
    pub(crate) async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        let mut client = self.client().await?;
        foreign(&mut client, &writes).await.map_err(|e| Trouble::Sql(e).while_it("kept what hosts said"))
    }

    pub(crate) async fn foreign_job(&self, id: JobId) -> Result<Option<String>, StoreError> {
        let sql = "SELECT doc FROM foreign_jobs WHERE job = $1";
        let row = self.client().await?.query_opt(sql, &[&int(id.0)]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| row.get(0)))
    }

    pub(crate) async fn foreign_docs(&self) -> Result<ForeignDocs, StoreError> {
        let client = self.client().await?;
        let hosts = "SELECT name, doc FROM foreign_hosts ORDER BY name";
        let hosts = client.query(hosts, &[]).await.map_err(Trouble::from)?;
        let open = "SELECT job, doc FROM foreign_jobs WHERE open ORDER BY job";
        let open = client.query(open, &[]).await.map_err(Trouble::from)?;
        let open = open.iter().map(|row| Ok((JobId(row.number(0)?), row.text(1)?)));
        Ok(ForeignDocs {
            hosts: hosts.iter().map(|row| (row.get(0), row.get(1))).collect(),
            open: open.collect::<Result<_, Trouble>>()?,
        })
    }

    pub(crate) async fn number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT value FROM meta WHERE key = $1";
        let row = self.client().await?.query_opt(sql, &[&name]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| row.number(0)).transpose().map_err(Trouble::from)?)
    }

    pub(crate) async fn keep_number(&self, name: &str, number: u64) -> Result<(), StoreError> {
        let sql = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        let kept = self.client().await?.execute(sql, &[&name, &int(number)]).await;
        kept.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("kept a number"))
    }

    /// Replaces these rows, and deletes rows of the given parts whose steps are outside their ranges.
    pub(crate) async fn keep_series(
        &self,
        rows: Vec<SeriesRow>,
        kept: Vec<(u8, Range<u64>)>,
    ) -> Result<(), StoreError> {
        let mut client = self.client().await?;
        series(&mut client, &rows, &kept).await.map_err(|e| Trouble::Sql(e).while_it("kept series"))
    }

    pub(crate) async fn series(&self) -> Result<Vec<SeriesRow>, StoreError> {
        let sql = "SELECT part, step, data FROM series ORDER BY step, part";
        let found = self.client().await?.query(sql, &[]).await.map_err(Trouble::from)?;
        Ok(found.iter().map(rows::series).collect::<Result<_, _>>().map_err(Trouble::from)?)
    }
}

async fn foreign(
    client: &mut deadpool_postgres::Object,
    writes: &[ForeignWrite],
) -> Result<(), tokio_postgres::Error> {
    let at = client.transaction().await?;
    let job = "INSERT INTO foreign_jobs (job, open, doc) VALUES ($1, $2, $3)
        ON CONFLICT (job) DO UPDATE SET open = excluded.open, doc = excluded.doc";
    let host = "INSERT INTO foreign_hosts (name, doc) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET doc = excluded.doc";
    let (set_job, set_host) = (at.prepare_cached(job).await?, at.prepare_cached(host).await?);
    for write in writes {
        match write {
            ForeignWrite::Job { job, open, doc } => {
                at.execute(&set_job, &[&int(job.0), open, &text(doc)]).await?;
            }
            ForeignWrite::Forget(job) => {
                at.execute("DELETE FROM foreign_jobs WHERE job = $1", &[&int(job.0)]).await?;
            }
            ForeignWrite::Host { name, doc } => {
                at.execute(&set_host, &[&text(name), &text(doc)]).await?;
            }
        }
    }
    at.commit().await
}

async fn series(
    client: &mut deadpool_postgres::Object,
    rows: &[SeriesRow],
    kept: &[(u8, Range<u64>)],
) -> Result<(), tokio_postgres::Error> {
    let at = client.transaction().await?;
    let set = "INSERT INTO series (part, step, data) VALUES ($1, $2, $3)
        ON CONFLICT (part, step) DO UPDATE SET data = excluded.data";
    let set = at.prepare_cached(set).await?;
    for SeriesRow { part, step, data } in rows {
        at.execute(&set, &[&i16::from(*part), &int(*step), data]).await?;
    }
    let delete = "DELETE FROM series WHERE part = $1 AND (step < $2 OR step >= $3)";
    for (part, steps) in kept {
        at.execute(delete, &[&i16::from(*part), &int(steps.start), &int(steps.end)]).await?;
    }
    at.commit().await
}
