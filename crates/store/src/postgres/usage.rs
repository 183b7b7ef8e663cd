//! Sums of what attempts took, by day, user and queue. The commit that ends attempts adds to them; see `used`.

use super::Postgres;
use super::trouble::Trouble;
use crate::codes::int;
use crate::error::StoreError;
use crate::rows;
use crate::usage::UsageRows;

impl Postgres {
    pub(crate) async fn usage_since(&self, day: u64, limit: usize) -> Result<UsageRows, StoreError> {
        let client = self.client().await?;
        let first = client.query_one("SELECT min(day) FROM day_usage", &[]).await.map_err(Trouble::from)?;
        let first: Option<i64> = first.get(0);
        let sql = "SELECT day, submitter, queue, cpu_ms, tasks, failed FROM day_usage WHERE day >= $1
            ORDER BY day DESC, submitter, queue LIMIT $2";
        let found = client.query(sql, &[&int(day), &(limit as i64)]).await.map_err(Trouble::from)?;
        let rows = found.iter().map(rows::usage).collect::<Result<_, _>>().map_err(Trouble::from)?;
        Ok(UsageRows { first_day: first.map(|day| day as u64), rows })
    }

    pub(crate) async fn forget_usage(&self, before: u64) -> Result<usize, StoreError> {
        let oldest = "DELETE FROM day_usage WHERE day = (SELECT min(day) FROM day_usage) AND day < $1";
        let deleted = self.client().await?.execute(oldest, &[&int(before)]).await;
        deleted.map(|rows| rows as usize).map_err(|e| Trouble::Sql(e).while_it("deleted sums of days"))
    }
}
