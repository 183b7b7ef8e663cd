//! Bearer tokens in a store.

use crate::error::StoreError;
use crate::store::Store;
use crate::view::{TokenRecord, TokenWrite};

impl Store {
    /// Stores a new token, or revokes one. False if the id of the new token is taken, or if no token with that id is in
    /// force.
    pub async fn write_token(&self, write: TokenWrite) -> Result<bool, StoreError> {
        dispatch!(self, write write_token(write))
    }

    /// All tokens by id, including expired and revoked ones.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        dispatch!(self, read tokens())
    }
}
