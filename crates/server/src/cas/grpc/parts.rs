//! What all calls have in common.

use super::super::names::{BadName, InstanceName};
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use crate::auth::{Caller, Denied};
use tonic::{Request, Response, Status};
use windlass_cas::proto::re::digest_function::Value as Function;

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

/// Checks what stands in all messages. Blobs are named by SHA-256 alone, which old clients do not say.
pub(super) fn check(instance: &str, function: i32) -> Result<InstanceName, CacheTrouble> {
    if ![Function::Unknown as i32, Function::Sha256 as i32].contains(&function) {
        return Err(BadName::Function.into());
    }
    Ok(InstanceName::parse(instance)?)
}
