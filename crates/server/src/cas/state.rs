//! What all requests to the cache share.

use super::access::CacheAccess;
use super::blobs::BlobStore;
use super::names::Packing;
use super::partial::PartialUploads;
use super::places::{CachePlaces, DayQuota};
use super::results::ActionResults;
use super::trouble::CacheTrouble;
use super::upload::Upload;
use crate::auth::{Caller, Denied};
use crate::refusals::Refusals;
use axum::http::Extensions;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_cas::Digest;

pub(super) struct CacheState {
    pub store: BlobStore,
    pub results: ActionResults,
    pub places: CachePlaces,
    pub quota: DayQuota,
    pub partials: PartialUploads,
    pub counts: CacheCounts,
    /// Users write results without a right of their tokens.
    pub users_write: bool,
    troubles: Refusals,
}

/// What was asked since the server started.
#[derive(Default)]
pub(super) struct CacheCounts {
    /// Bytes of blobs that were asked for, and that came, as they are without compression.
    pub read_bytes: AtomicU64,
    pub upload_bytes: AtomicU64,
    /// Questions for results and values that found one, and that found none.
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    /// Requests by the names of their calls.
    requests: Mutex<BTreeMap<&'static str, u64>>,
}

impl CacheCounts {
    pub fn request(&self, call: &'static str) {
        *self.requests.lock().entry(call).or_default() += 1;
    }

    pub fn answered(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.requests.lock().clone()
    }
}

impl CacheState {
    pub fn new(store: BlobStore, upload_bytes_per_day: u64, users_write: bool) -> CacheState {
        CacheState {
            results: ActionResults::new(store.clone()),
            store,
            places: CachePlaces::default(),
            quota: DayQuota::new(upload_bytes_per_day),
            partials: PartialUploads::default(),
            counts: CacheCounts::default(),
            users_write,
            troubles: Refusals::new(Counter::default()),
        }
    }

    pub fn access(&self, caller: &Caller) -> CacheAccess {
        CacheAccess::of(caller, self.users_write)
    }

    /// The caller of a request, if it may do that much. The guard has put the caller among the extensions.
    pub fn let_in(&self, extensions: &Extensions, takes: CacheAccess) -> Result<Caller, CacheTrouble> {
        let caller = extensions.get::<Caller>().ok_or(Denied::Missing)?;
        let has = self.access(caller);
        if has < takes {
            return Err(CacheTrouble::Access { has, takes });
        }
        Ok(caller.clone())
    }

    /// Begins an upload, which counts for its user's day.
    pub async fn begin_upload(
        &self,
        caller: &Caller,
        digest: Digest,
        packing: Packing,
    ) -> Result<Upload, CacheTrouble> {
        self.quota.charge(caller, digest.size, super::blobs::now_ms())?;
        Upload::begin(&self.store, digest, packing).await
    }

    /// Tells the log of what an administrator has to see to, but not of every request that meets it.
    pub fn tell(&self, call: &str, trouble: &CacheTrouble) {
        if trouble.is_own() {
            let source = std::error::Error::source(trouble).map(|source| format!(": {source}"));
            self.troubles.tell(call, format_args!("{trouble}{}", source.unwrap_or_default()));
        }
    }
}
