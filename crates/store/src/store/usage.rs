//! Sums of what attempts took. [`Store::commit_with`] adds to them.

use crate::error::StoreError;
use crate::store::Store;
use crate::usage::UsageRows;

/// The sums since a day, counted from the Unix epoch in UTC: up to `limit` rows, newest day first.
///
/// # Errors
/// The store cannot be read.
pub async fn usage_since(store: &Store, day: u64, limit: usize) -> Result<UsageRows, StoreError> {
    dispatch!(store, read usage_since(day, limit))
}

/// Deletes the rows of the oldest day, if it is before this one. Returns how many there were; after 0 there are none.
///
/// # Errors
/// The store cannot be written.
pub async fn forget_usage(store: &Store, before_day: u64) -> Result<usize, StoreError> {
    dispatch!(store, write forget_usage(before_day))
}
