//! Bearer tokens in a store.

use crate::error::StoreError;
use crate::store::Store;
use crate::view::{TokenRecord, TokenWrite};
use windlass_core::Time;

impl Store {
    /// Stores a new token; false if its id is taken.
    pub async fn create_token(&self, token: TokenRecord) -> Result<bool, StoreError> {
        dispatch!(self, write write_token(TokenWrite::Create(Box::new(token))))
    }

    /// All tokens by id, including expired and revoked ones.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        dispatch!(self, read tokens())
    }

    /// One token; `None` if there is none with that id.
    pub async fn token(&self, id: String) -> Result<Option<TokenRecord>, StoreError> {
        dispatch!(self, read token(&id))
    }

    /// Revokes a token; false if there is none with that id, or if it is revoked already.
    pub async fn revoke_token(&self, id: String, at: Time) -> Result<bool, StoreError> {
        dispatch!(self, write write_token(TokenWrite::Revoke(id, at)))
    }
}
