//! What all requests to the cache share.

use super::access::CacheAccess;
use super::attempts::BookedAttempt;
use super::blobs::BlobStore;
use super::names::Packing;
use super::partial::PartialUploads;
use super::places::{CachePlaces, DayQuota, Payer};
use super::results::ActionResults;
use super::trouble::CacheTrouble;
use super::upload::Upload;
use crate::auth::{Caller, Denied};
use crate::handle::Handle;
use crate::refusals::Refusals;
use axum::http::Extensions;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_cas::Digest;
use windlass_core::JobId;

/// How the store of files is made, and who has the remote cache in it.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The directory of the store, which is made at the first use.
    pub dir: PathBuf,
    /// Bytes that the store keeps; `None` is [`default_cas_bytes`](crate::default_cas_bytes).
    pub bytes_max: Option<u64>,
    /// Bytes that one user may upload in a day.
    pub upload_bytes_per_day: u64,
    /// Whether build tools may use the cache. Otherwise the store has files of jobs alone.
    pub is_open: bool,
    /// Whether users write results without a right of their tokens.
    pub users_write: bool,
    /// Whether a file of jobs that one user has uploaded is there for all.
    pub users_share: bool,
}

pub(crate) struct CacheState {
    pub store: BlobStore,
    pub(super) results: ActionResults,
    pub places: CachePlaces,
    pub quota: DayQuota,
    pub(super) partials: PartialUploads,
    pub counts: CacheCounts,
    /// Build tools may use the cache. Otherwise the store has files of jobs alone.
    pub is_open: bool,
    /// Users write results without a right of their tokens.
    users_write: bool,
    /// A blob that is there for one user is there for all.
    pub users_share: bool,
    /// The jobs of administrators that have files, whose outputs count for nobody's day.
    pub exempt_jobs: Mutex<BTreeSet<JobId>>,
    /// The way to the engine, from the start on.
    pub(super) handle: OnceLock<Handle>,
    troubles: Refusals,
}

/// What was asked since the server started.
#[derive(Default)]
pub(crate) struct CacheCounts {
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
    pub fn new(options: CacheOptions) -> CacheState {
        let CacheOptions { dir, bytes_max, upload_bytes_per_day, is_open, users_write, users_share } =
            options;
        let store = BlobStore::new(dir, bytes_max);
        CacheState {
            results: ActionResults::new(store.clone()),
            store,
            places: CachePlaces::default(),
            quota: DayQuota::new(upload_bytes_per_day),
            partials: PartialUploads::default(),
            counts: CacheCounts::default(),
            is_open,
            users_write,
            users_share,
            exempt_jobs: Mutex::default(),
            handle: OnceLock::new(),
            troubles: Refusals::new(Counter::default()),
        }
    }

    pub fn access(&self, caller: &Caller) -> CacheAccess {
        CacheAccess::of(caller, self.users_write)
    }

    /// The caller of a request, if it may do that much. The guard has put the caller among the extensions.
    pub fn let_in(&self, extensions: &Extensions, takes: CacheAccess) -> Result<Caller, CacheTrouble> {
        if !self.is_open {
            return Err(CacheTrouble::Off);
        }
        let caller = extensions.get::<Caller>().ok_or(Denied::Missing)?;
        let has = self.access(caller);
        if has < takes {
            return Err(CacheTrouble::Access { has, takes });
        }
        Ok(caller.clone())
    }

    /// Begins an upload to the cache or to the files of jobs, which counts for its user's day.
    pub async fn begin_upload(
        &self,
        store: &BlobStore,
        payer: &Payer,
        (digest, packing): (Digest, Packing),
    ) -> Result<Upload, CacheTrouble> {
        self.quota.charge(payer, digest.size, super::blobs::now_ms())?;
        Upload::begin(store, digest, packing).await
    }

    /// For whom the files of an attempt count.
    pub fn payer_of(&self, attempt: &BookedAttempt) -> Payer {
        let is_exempt = self.exempt_jobs.lock().contains(&attempt.task.job);
        Payer { user: attempt.spec.user.clone(), is_exempt }
    }

    /// Tells the log of what an administrator has to see to, but not of every request that meets it.
    pub fn tell(&self, call: &str, trouble: &CacheTrouble) {
        if trouble.is_own() {
            let source = std::error::Error::source(trouble).map(|source| format!(": {source}"));
            self.troubles.tell(call, format_args!("{trouble}{}", source.unwrap_or_default()));
        }
    }
}
