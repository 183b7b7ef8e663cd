//! The remote cache of build tools: blobs by their content, results of actions, values of keys. In the same store are files
//! of jobs, which workers read and write over the same calls.
//!
//! Bazel and Pants use it over gRPC ([`grpc`]), Bazel, ccache and sccache over plain HTTP ([`http`]). Both are on the
//! server's own port, and callers are known there as everywhere. The cache is a [`Gateway`] of the server itself.
//!
//! - A request's caller and what the caller may do is known before anything of its body is read.
//! - All memory is in budgets, of all users and of one ([`places`]).
//! - What waits for the disk runs on threads that may ([`blobs`]).
//! - Blobs of jobs are not seen in the cache. A worker names the attempt for which it asks for them.

mod access;
mod attempts;
mod blobs;
mod download;
mod grpc;
mod held;
mod http;
mod names;
mod packing;
mod partial;
mod places;
mod results;
mod spool;
mod state;
mod trouble;
mod upload;
mod webdav;

pub(crate) use attempts::BookedAttempt;
pub use blobs::default_cas_bytes;
pub(crate) use blobs::{BlobStore, SpaceBlobs, now_ms};
pub(crate) use download::{Cut, PART_PATIENCE, parts_of};
pub(crate) use names::Packing;
pub(crate) use places::{PART_BYTES, Payer};
pub use state::CacheOptions;
pub(crate) use state::CacheState;
pub(crate) use trouble::CacheTrouble;

use crate::gateway::{Counting, Front, Gateway, Starting};
use crate::metric_text::MetricFamily;
use axum::http::Method;
use axum::routing::any;
use http::CACHE_PATHS;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks whether the store is nearly full, and which uploads broke off long ago.
const UPKEEP: Duration = Duration::from_secs(60);

/// The store of files and the remote cache in it, as a gateway of the server. Clones share them.
#[derive(Clone)]
pub struct RemoteCache(Arc<CacheState>);

impl RemoteCache {
    /// Nothing is opened before its first use.
    pub fn new(options: CacheOptions) -> RemoteCache {
        RemoteCache(Arc::new(CacheState::new(options)))
    }

    pub(crate) fn state(&self) -> &Arc<CacheState> {
        &self.0
    }
}

impl Gateway for RemoteCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn start(&self, front: Front) -> Starting<'_> {
        tokio::spawn(keep_up(self.0.clone(), front.handle().closing()));
        // A gateway is started once.
        _ = self.0.handle.set(front.handle().clone());
        let mut routes = grpc::routes(&self.0);
        if self.0.is_open {
            let by_http = any(http::serve).with_state(self.0.clone());
            routes = routes.route(&format!("{CACHE_PATHS}{{*path}}"), by_http);
        }
        Box::pin(async move { Ok(routes) })
    }

    fn owns(&self, path: &str) -> bool {
        (path.starts_with(CACHE_PATHS) && self.0.is_open) || grpc::is_call(path)
    }

    /// All bodies are read as they come.
    fn body_bytes_max(&self) -> usize {
        0
    }

    fn reads_body(&self, _path: &str) -> bool {
        true
    }

    fn lasts(&self, _path: &str) -> bool {
        true
    }

    /// Ccache has a password in its URL and no other way over HTTP, and Bazel in `.netrc`.
    fn takes_password(&self, _method: &Method, path: &str) -> bool {
        path.starts_with(CACHE_PATHS)
    }

    /// A build makes thousands of requests.
    fn is_report(&self, _path: &str) -> bool {
        true
    }

    fn metrics(&self) -> Counting<'_> {
        Box::pin(std::future::ready(metrics(&self.0)))
    }
}

/// Evicts what is not used before the store is full, and drops uploads that broke off, until the server ends.
async fn keep_up(cache: Arc<CacheState>, mut closing: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(UPKEEP) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        cache.partials.drop_old();
        let Some(cas) = cache.store.opened() else { continue };
        let swept = blobs::in_background(move || Ok(cas.sweep(blobs::now_ms())?)).await;
        if let Err(trouble) = swept {
            cache.tell("the sweep of the cache", &trouble);
        }
    }
}

/// The lines of `/metrics`. Of a store that was never used there are counters alone.
fn metrics(cache: &CacheState) -> String {
    let mut text = String::new();
    let gauge = |text: &mut String, name, help, value: u64| {
        MetricFamily::gauge(name, help).write_one(text, value as f64);
    };
    let counter = |text: &mut String, name, help, value: u64| {
        MetricFamily::counter(name, help).write_one(text, value as f64);
    };
    if let Some(figures) = cache.store.figures() {
        gauge(&mut text, "windlass_cas_bytes", "Bytes of blobs in the store of files", figures.bytes);
        gauge(&mut text, "windlass_cas_blobs", "Blobs in the store of files", figures.blobs);
        gauge(&mut text, "windlass_cas_pinned_bytes", "Bytes of blobs that jobs need", figures.pinned_bytes);
        let uploads = cache.partials.count() as u64;
        gauge(&mut text, "windlass_cas_broken_uploads", "Uploads that broke off and may go on", uploads);
        counter(&mut text, "windlass_cas_evicted", "Blobs evicted to make room", figures.evicted);
        let refused = "Uploads refused because nothing could be evicted for them";
        counter(&mut text, "windlass_cas_refused", refused, figures.refused);
    }
    let counts = &cache.counts;
    let read = counts.read_bytes.load(Ordering::Relaxed);
    counter(&mut text, "windlass_cas_read_bytes", "Bytes of blobs that clients asked for", read);
    let uploaded = counts.upload_bytes.load(Ordering::Relaxed);
    counter(&mut text, "windlass_cas_upload_bytes", "Bytes of blobs that clients uploaded", uploaded);
    let answers = [("hit", &counts.hits), ("miss", &counts.misses)];
    let answers = answers.map(|(answer, count)| (answer, count.load(Ordering::Relaxed) as f64));
    MetricFamily::counter("windlass_cas_results", "Questions for results and values, by the answer")
        .write(&mut text, "answer", answers);
    let requests = counts.requests();
    MetricFamily::counter("windlass_cas_requests", "Requests to the cache, by the call").write(
        &mut text,
        "call",
        requests.iter().map(|(call, count)| (*call, *count as f64)),
    );
    text
}

#[cfg(test)]
mod tests;
