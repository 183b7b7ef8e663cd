//! Rows of tokens. A row has the hash of the secret, never the secret.

use super::trouble::Trouble;
use super::{Postgres, text};
use crate::codes::time;
use crate::error::StoreError;
use crate::view::{TokenRecord, TokenWrite};
use crate::{rows, spec};
use std::collections::BTreeSet;

const TOKEN: &str =
    "id, hash, role, submitter, worker, note, created, expires, revoked, serves, for_users, queue, cache";

impl Postgres {
    /// Adds or revokes a token. False if the new id is taken, or if the token to revoke does not exist.
    pub(crate) async fn write_token(&self, write: TokenWrite) -> Result<bool, StoreError> {
        let client = self.client().await?;
        let done = match &write {
            TokenWrite::Create(token) => {
                let sql = format!(
                    "INSERT INTO tokens ({TOKEN}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                     ON CONFLICT DO NOTHING"
                );
                let names = |names: &BTreeSet<String>| (!names.is_empty()).then(|| spec::to_json(names));
                let (serves, for_users) = (names(&token.serves), names(&token.for_users));
                client
                    .execute(
                        &sql,
                        &[
                            &token.id,
                            &&token.hash[..],
                            &token.role,
                            &text(&token.user),
                            &token.worker.as_deref().map(text),
                            &text(&token.note),
                            &time(token.created),
                            &token.expires.map(time),
                            &token.revoked.map(time),
                            &serves,
                            &for_users,
                            &token.queue.as_deref().map(text),
                            &token.cache,
                        ],
                    )
                    .await
            }
            TokenWrite::Revoke(id, at) => {
                let sql = "UPDATE tokens SET revoked = $2 WHERE id = $1 AND revoked IS NULL";
                client.execute(sql, &[id, &time(*at)]).await
            }
        };
        done.map(|rows| rows > 0).map_err(|e| Trouble::Sql(e).while_it("changed tokens"))
    }

    pub(crate) async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let sql = format!("SELECT {TOKEN} FROM tokens ORDER BY id");
        let found = self.client().await?.query(&sql, &[]).await.map_err(Trouble::from)?;
        Ok(found.iter().map(rows::token).collect::<Result<_, _>>().map_err(Trouble::from)?)
    }
}
