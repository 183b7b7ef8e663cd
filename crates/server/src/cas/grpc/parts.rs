//! What all calls have in common.

use super::super::attempts::BookedAttempt;
use super::super::blobs::BlobStore;
use super::super::names::{BadName, InstanceName};
use super::super::partial::PartialKey;
use super::super::places::Payer;
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use crate::auth::{Caller, Denied};
use tonic::{Request, Response, Status};
use windlass_api::JOB_FILES_INSTANCE;
use windlass_cas::Digest;
use windlass_cas::proto::re::digest_function::Value as Function;

/// Which blobs a call is about, and for whom its uploads count.
#[derive(Clone)]
pub(super) struct CallScope {
    is_of_jobs: bool,
    pub store: BlobStore,
    pub payer: Payer,
}

impl CallScope {
    /// That of a caller whom the gate has let in.
    pub fn of<T>(cache: &CacheState, request: &Request<T>) -> Result<CallScope, Status> {
        if let Some(attempt) = request.extensions().get::<BookedAttempt>() {
            let payer = cache.payer_of(attempt);
            return Ok(CallScope { is_of_jobs: true, store: cache.store.of_jobs(), payer });
        }
        let payer = Payer::of(&caller_of(request)?);
        Ok(CallScope { is_of_jobs: false, store: cache.store.clone(), payer })
    }

    /// By what an upload is known that breaks off. One of a job is none of the cache, though its user is the same.
    pub fn key(&self, upload: String, digest: Digest) -> PartialKey {
        let space = if self.is_of_jobs { "jobs" } else { "cache" };
        (self.payer.user.clone(), format!("{space}/{upload}"), digest)
    }

    /// Checks what stands in all messages.
    pub fn check(&self, instance: &str, function: i32) -> Result<(), CacheTrouble> {
        if self.is_of_jobs && instance == JOB_FILES_INSTANCE {
            return check_function(function);
        }
        check(instance, function)?;
        self.check_names(false)
    }

    /// Checks that a name of a resource is one of these blobs.
    pub fn check_names(&self, is_of_jobs: bool) -> Result<(), CacheTrouble> {
        match (self.is_of_jobs, is_of_jobs) {
            (true, false) => Err(BadName::NotOfJobs.into()),
            (false, true) => Err(BadName::Reserved.into()),
            _ => Ok(()),
        }
    }
}

/// The caller, whom the gate has let in.
pub(super) fn caller_of<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| CacheTrouble::from(Denied::Missing).into_status())
}

/// An answer, or its trouble in the words of gRPC.
pub(super) fn told<T>(
    cache: &CacheState,
    call: &str,
    answer: Result<T, CacheTrouble>,
) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|trouble| {
        cache.tell(call, &trouble);
        trouble.into_status()
    })
}

/// Checks what stands in all messages of clients of the cache.
pub(super) fn check(instance: &str, function: i32) -> Result<InstanceName, CacheTrouble> {
    check_function(function)?;
    Ok(InstanceName::parse(instance)?)
}

/// Blobs are named by SHA-256 alone, which old clients do not say.
fn check_function(function: i32) -> Result<(), CacheTrouble> {
    match [Function::Unknown as i32, Function::Sha256 as i32].contains(&function) {
        true => Ok(()),
        false => Err(BadName::Function.into()),
    }
}
