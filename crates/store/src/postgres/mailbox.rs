//! Rows of requests between servers.

use super::ownership::REQUESTS_KEPT;
use super::trouble::Trouble;
use super::{Postgres, text};
use crate::done::DoneRow;
use crate::error::StoreError;
use crate::mailbox::{ANSWERED, ASKED, Answered, Answers, AskId, Asked, RELAYED};
use crate::ownership::ServerId;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// A server without a heartbeat for this long is taken to wait for no answer.
const ASKER_GONE_AFTER: &str = "20 seconds";

impl Postgres {
    pub(crate) async fn ask(
        &self,
        by: ServerId,
        kind: &str,
        body: Vec<u8>,
        sign: impl FnOnce(AskId, &[u8]) -> Vec<u8> + Send,
    ) -> Result<AskId, StoreError> {
        let failed = |e| Trouble::Sql(e).while_it("asked another server");
        let client = self.client().await?;
        // The number is signed, so it is drawn first.
        let row = client.query_one("SELECT nextval('requests_id_seq')", &[]).await.map_err(failed)?;
        let id = AskId(row.get(0));
        let signature = sign(id, &body);
        // The notification leaves with the row's commit.
        let sql = "WITH made AS (INSERT INTO requests (id, asked_by, kind, body, signature)
                VALUES ($1, $2, $3, $4, $5) RETURNING id)
            SELECT pg_notify($6, id::text) FROM made";
        let made = client.query_one(sql, &[&id.0, &by.0, &kind, &body, &signature, &ASKED]).await;
        made.map(|_| id).map_err(failed)
    }

    pub(crate) async fn asked(&self, after: AskId, limit: usize) -> Result<Vec<Asked>, StoreError> {
        let sql = format!(
            "SELECT r.id, r.asked_by, s.name, r.kind, r.body, r.signature, s.verify_key FROM requests AS r
                JOIN servers AS s ON s.id = r.asked_by
                    AND s.beat > clock_timestamp() - interval '{ASKER_GONE_AFTER}' AND s.left_at IS NULL
            WHERE r.answered IS NULL AND r.id > $1
                AND r.created > clock_timestamp() - interval '{REQUESTS_KEPT}'
            ORDER BY r.id LIMIT $2"
        );
        let rows = self.client().await?.query(&sql, &[&after.0, &(limit as i64)]).await;
        let asked = |row: &tokio_postgres::Row| Asked {
            id: AskId(row.get(0)),
            by: ServerId(row.get(1)),
            server: row.get(2),
            kind: row.get(3),
            // A row that no server wrote may lack it.
            body: row.get::<_, Option<Vec<u8>>>(4).unwrap_or_default(),
            signature: row.get(5),
            verify_key: row.get(6),
        };
        Ok(rows.map_err(Trouble::from)?.iter().map(asked).collect())
    }

    pub(crate) async fn answer(&self, id: AskId, status: i32, body: Vec<u8>) -> Result<bool, StoreError> {
        let sql =
            "WITH answered AS (UPDATE requests SET answered = clock_timestamp(), status = $2, answer = $3,
                    body = NULL, signature = NULL
                WHERE id = $1 AND answered IS NULL RETURNING id)
            SELECT pg_notify($4, id::text) FROM answered";
        let rows = self.client().await?.query(sql, &[&id.0, &status, &body, &ANSWERED]).await;
        Ok(!rows.map_err(|e| Trouble::Sql(e).while_it("answered another server"))?.is_empty())
    }

    pub(crate) async fn answers(&self, by: ServerId, ids: Vec<AskId>) -> Result<Answers, StoreError> {
        // One statement sees all of them as of one moment: a request that is answered meanwhile is not lost.
        let sql = "SELECT id, answered IS NOT NULL, status, answer FROM requests
            WHERE id = ANY($1) AND asked_by = $2 ORDER BY id";
        let mut lost: BTreeSet<AskId> = ids.iter().copied().collect();
        let rows = self.client().await?.query(sql, &[&numbers(ids), &by.0]).await.map_err(Trouble::from)?;
        let mut answered = Vec::new();
        for row in &rows {
            let id = AskId(row.get(0));
            lost.remove(&id);
            if row.get(1) {
                // A row that no server wrote may lack both.
                let status = row.get::<_, Option<i32>>(2).unwrap_or_default();
                let body = row.get::<_, Option<Vec<u8>>>(3).unwrap_or_default();
                answered.push(Answered { id, status, body });
            }
        }
        Ok(Answers { answered, lost: lost.into_iter().collect() })
    }

    pub(crate) async fn withdraw(&self, ids: Vec<AskId>) -> Result<(), StoreError> {
        let sql = "DELETE FROM requests WHERE id = ANY($1) AND answered IS NULL";
        let done = self.client().await?.execute(sql, &[&numbers(ids)]).await;
        done.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("took back a request to another server"))
    }

    pub(crate) async fn drop_answered(&self, read: Vec<(AskId, Option<String>)>) -> Result<(), StoreError> {
        let (ids, keys): (Vec<i64>, Vec<Option<String>>) =
            read.into_iter().map(|(id, key)| (id.0, key)).unzip();
        let sql = "WITH gone AS (DELETE FROM requests WHERE id = ANY($1::bigint[]) AND answered IS NOT NULL RETURNING id)
            DELETE FROM done_requests USING gone, unnest($1::bigint[], $2::text[]) AS pair(id, key)
            WHERE pair.id = gone.id AND done_requests.key = pair.key";
        let done = self.client().await?.execute(sql, &[&ids, &keys]).await;
        done.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("deleted answers of other servers"))
    }

    pub(crate) async fn done_request(&self, key: &str) -> Result<Option<DoneRow>, StoreError> {
        self.settle().await?;
        let sql = "SELECT d.answer, d.done_by, d.signature, s.verify_key FROM done_requests AS d
                LEFT JOIN servers AS s ON s.id = d.done_by
            WHERE d.key = $1";
        let row = self.client().await?.query_opt(sql, &[&text(key)]).await.map_err(Trouble::from)?;
        Ok(row.map(|row| DoneRow {
            answer: row.get(0),
            by: ServerId(row.get(1)),
            signature: row.get(2),
            verify_key: row.get(3),
        }))
    }

    pub(crate) async fn still_asked(&self, ids: Vec<AskId>) -> Result<Vec<AskId>, StoreError> {
        let sql = "SELECT id FROM requests WHERE id = ANY($1) AND answered IS NULL";
        let rows = self.client().await?.query(sql, &[&numbers(ids)]).await.map_err(Trouble::from)?;
        Ok(rows.iter().map(|row| AskId(row.get(0))).collect())
    }

    pub(crate) async fn relay_events(&self, events: &str) -> Result<(), StoreError> {
        let sql = "WITH made AS (INSERT INTO relayed_events (events) VALUES ($1) RETURNING id)
            SELECT pg_notify($2, id::text) FROM made";
        let done = self.client().await?.query(sql, &[&events, &RELAYED]).await;
        done.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("told other servers what happened"))
    }

    pub(crate) async fn relayed_events(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        let sql = "SELECT id, events FROM relayed_events WHERE id > $1 ORDER BY id LIMIT $2";
        let rows = self.client().await?.query(sql, &[&after, &(limit as i64)]).await;
        Ok(rows.map_err(Trouble::from)?.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    pub(crate) async fn last_relayed_event(&self) -> Result<i64, StoreError> {
        let sql = "SELECT coalesce(max(id), 0) FROM relayed_events";
        Ok(self.client().await?.query_one(sql, &[]).await.map_err(Trouble::from)?.get(0))
    }

    pub(crate) async fn clock_ahead_ms(&self) -> Result<i64, StoreError> {
        let now_ms = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_millis() as i64)
        };
        let (client, before) = (self.client().await?, now_ms());
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let there: i64 = client.query_one(sql, &[]).await.map_err(Trouble::from)?.get(0);
        Ok(there - (before + now_ms()) / 2)
    }

    pub(crate) async fn notify(&self, channel: &str, payload: &str) -> Result<(), StoreError> {
        let said = self.client().await?.execute("SELECT pg_notify($1, $2)", &[&channel, &payload]).await;
        said.map(|_| ()).map_err(|e| Trouble::Sql(e).while_it("told other servers"))
    }
}

fn numbers(ids: Vec<AskId>) -> Vec<i64> {
    ids.into_iter().map(|id| id.0).collect()
}
