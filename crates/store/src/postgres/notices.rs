//! Rows of notices that are owed. The commit that owes them adds them; see `attempt`.

use super::Postgres;
use super::column::{Column, text};
use super::trouble::Trouble;
use crate::codes::{int, time};
use crate::error::StoreError;
use crate::notices::{NewNotice, OwedNotice};
use crate::rows;

const ADD: &str = "INSERT INTO notices (job, submitter, target, body, at)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[])";

/// The statement that adds these notices, and its parameters; `None` if there are none.
pub fn added<'a>(notices: impl Iterator<Item = &'a NewNotice>) -> Option<(&'static str, Vec<Column<'a>>)> {
    let notices: Vec<&NewNotice> = notices.collect();
    if notices.is_empty() {
        return None;
    }
    let jobs: Vec<Option<i64>> = notices.iter().map(|notice| notice.job.map(|job| int(job.0))).collect();
    let users: Vec<_> = notices.iter().map(|notice| text(&notice.user)).collect();
    let to: Vec<_> = notices.iter().map(|notice| text(&notice.to)).collect();
    let bodies: Vec<_> = notices.iter().map(|notice| text(&notice.body)).collect();
    let at: Vec<i64> = notices.iter().map(|notice| time(notice.at)).collect();
    Some((ADD, vec![Box::new(jobs), Box::new(users), Box::new(to), Box::new(bodies), Box::new(at)]))
}

impl Postgres {
    pub(crate) async fn owed_notices(&self, after: u64, limit: usize) -> Result<Vec<OwedNotice>, StoreError> {
        let sql =
            "SELECT id, job, submitter, target, body, at FROM notices WHERE id > $1 ORDER BY id LIMIT $2";
        let client = self.client().await?;
        let found = client.query(sql, &[&int(after), &(limit as i64)]).await.map_err(Trouble::from)?;
        Ok(found.iter().map(rows::notice).collect::<Result<_, _>>().map_err(Trouble::from)?)
    }

    pub(crate) async fn forget_notices(&self, numbers: Vec<u64>) -> Result<(), StoreError> {
        let numbers: Vec<i64> = numbers.into_iter().map(int).collect();
        let deleted =
            self.client().await?.execute("DELETE FROM notices WHERE id = ANY($1)", &[&numbers]).await;
        deleted.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("deleted notices"))
    }
}
