//! Notices that are owed to people outside of the farm. [`Store::commit_with`] adds them.

use crate::error::StoreError;
use crate::notices::OwedNotice;
use crate::store::Store;

/// Up to `limit` notices that are owed and have a higher number than `after`, by number. The notices of a later commit
/// have higher numbers.
///
/// # Errors
/// The store cannot be read.
pub async fn owed_notices(store: &Store, after: u64, limit: usize) -> Result<Vec<OwedNotice>, StoreError> {
    dispatch!(store, read owed_notices(after, limit))
}

/// Deletes the rows of notices that were delivered or given up. Rows that are gone already are passed over.
///
/// # Errors
/// The store cannot be written.
pub async fn forget_notices(store: &Store, numbers: Vec<u64>) -> Result<(), StoreError> {
    dispatch!(store, write forget_notices(numbers))
}
