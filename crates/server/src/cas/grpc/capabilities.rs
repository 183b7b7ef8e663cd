//! What the cache can do, and what the caller may.

use super::super::access::CacheAccess;
use super::super::state::CacheState;
use super::content::BATCH_BYTES_MAX;
use super::parts::{caller_of, check, told};
use std::sync::Arc;
use tonic::{Request, Response, Status};
use windlass_cas::proto::re::capabilities_server::Capabilities;
use windlass_cas::proto::re::{
    ActionCacheUpdateCapabilities, CacheCapabilities, GetCapabilitiesRequest, ServerCapabilities, compressor,
    digest_function, symlink_absolute_path_strategy,
};
use windlass_cas::proto::semver::SemVer;

pub(super) struct CapabilitiesCalls(pub Arc<CacheState>);

/// What a caller with this access is told.
fn capabilities(access: CacheAccess) -> ServerCapabilities {
    let version = |minor| Some(SemVer { major: 2, minor, ..SemVer::default() });
    let zstd = vec![compressor::Value::Zstd as i32];
    let update_enabled = access >= CacheAccess::Write;
    let cache = CacheCapabilities {
        digest_functions: vec![digest_function::Value::Sha256 as i32],
        action_cache_update_capabilities: Some(ActionCacheUpdateCapabilities { update_enabled }),
        max_batch_total_size_bytes: BATCH_BYTES_MAX as i64,
        // What links lead to is of interest only to those who make files of them.
        symlink_absolute_path_strategy: symlink_absolute_path_strategy::Value::Allowed as i32,
        supported_compressors: zstd.clone(),
        supported_batch_update_compressors: zstd,
        max_cas_blob_size_bytes: 0,
    };
    ServerCapabilities {
        cache_capabilities: Some(cache),
        deprecated_api_version: None,
        // Clients refuse a server whose lowest version is above theirs.
        low_api_version: version(0),
        high_api_version: version(3),
    }
}

#[tonic::async_trait]
impl Capabilities for CapabilitiesCalls {
    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        let access = self.0.access(&caller_of(&request)?);
        let checked = check(&request.into_inner().instance_name, 0);
        told(&self.0, "GetCapabilities", checked.map(|_| capabilities(access)))
    }
}
