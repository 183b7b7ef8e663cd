//! Rows of notices that are owed. The commit that owes them adds them; see `owed`.

use super::Postgres;
use super::trouble::Trouble;
use crate::codes::int;
use crate::error::StoreError;
use crate::notices::OwedNotice;
use crate::rows;

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
