//! What the administrator of a shared store can have tried out.

use super::Store;
use crate::error::StoreError;
use crate::mailbox::Notice;
use std::time::Duration;

/// The channel on which it is tried whether notifications arrive.
const CHECKED: &str = "windlass_checked";

/// Whether a notification comes back within `patience`. A pooler that shares connections between transactions
/// swallows them. True for a store of one server, which needs none.
pub async fn notices_arrive(store: &Store, patience: Duration) -> Result<bool, StoreError> {
    let mut listener = match store {
        Store::Memory(_) | Store::Sqlite(_) => return Ok(true),
        Store::Postgres(_) => store.listen(&[CHECKED]),
    };
    let payload = format!("{:x}", store.id() ^ i64::from(std::process::id()));
    let heard = async {
        loop {
            match listener.next().await {
                Notice::Listens => store.notify(CHECKED, &payload).await?,
                Notice::Said { payload: said, .. } if said == payload => return Ok(()),
                Notice::Said { .. } => {}
            }
        }
    };
    match tokio::time::timeout(patience, heard).await {
        Ok(heard) => heard.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// How far the database's clock is from this machine's, in milliseconds; positive if it is ahead. `None` for a
/// store on this machine.
pub async fn clock_ahead_ms(store: &Store) -> Result<Option<i64>, StoreError> {
    match store {
        Store::Memory(_) | Store::Sqlite(_) => Ok(None),
        Store::Postgres(postgres) => postgres.clock_ahead_ms().await.map(Some),
    }
}
