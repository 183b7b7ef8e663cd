//! Bearer tokens in a store.

use crate::view::{TokenRecord, TokenWrite};
use crate::{Store, StoreError};
use windlass_core::Time;

impl Store {
    /// Stores a new token; false if its id is taken.
    pub async fn create_token(&self, token: TokenRecord) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.create_token(token)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Create(Box::new(token))).await,
            Store::Postgres(postgres) => postgres.write_token(TokenWrite::Create(Box::new(token))).await,
        }
    }

    /// All tokens by id, including expired and revoked ones.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.tokens()),
            Store::Sqlite(sqlite) => sqlite.read(|db| db.tokens()).await,
            Store::Postgres(postgres) => postgres.tokens().await,
        }
    }

    /// One token; `None` if there is none with that id.
    pub async fn token(&self, id: String) -> Result<Option<TokenRecord>, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.token(&id)),
            Store::Sqlite(sqlite) => sqlite.read(move |db| db.token(&id)).await,
            Store::Postgres(postgres) => postgres.token(&id).await,
        }
    }

    /// Revokes a token; false if there is none with that id, or if it is revoked already.
    pub async fn revoke_token(&self, id: String, at: Time) -> Result<bool, StoreError> {
        match self {
            Store::Memory(memory) => Ok(memory.revoke_token(&id, at)),
            Store::Sqlite(sqlite) => sqlite.write_token(TokenWrite::Revoke(id, at)).await,
            Store::Postgres(postgres) => postgres.write_token(TokenWrite::Revoke(id, at)).await,
        }
    }
}
