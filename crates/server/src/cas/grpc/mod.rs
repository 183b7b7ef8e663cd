//! The cache over gRPC: the Remote Execution API without execution, in versions 2.0 and later.

mod action_cache;
mod byte_stream;
mod capabilities;
mod content;
mod gate;
mod parts;
mod tree;

use super::places::{MESSAGE_BYTES_MAX, WRITE_MESSAGE_BYTES_MAX};
use super::state::CacheState;
use action_cache::ActionCacheCalls;
use axum::Router;
use axum::middleware::from_fn_with_state;
use byte_stream::ByteStreamCalls;
use capabilities::CapabilitiesCalls;
use content::ContentCalls;
use std::sync::Arc;
use tonic::service::Routes;
use windlass_cas::proto::bytestream::byte_stream_server::ByteStreamServer;
use windlass_cas::proto::re::action_cache_server::ActionCacheServer;
use windlass_cas::proto::re::capabilities_server::CapabilitiesServer;
use windlass_cas::proto::re::content_addressable_storage_server::ContentAddressableStorageServer;

pub(super) use gate::is_call;

/// The calls as routes.
pub(super) fn routes(cache: &Arc<CacheState>) -> Router {
    let of = || cache.clone();
    let content =
        ContentAddressableStorageServer::new(ContentCalls(of())).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let results = ActionCacheServer::new(ActionCacheCalls(of())).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let streams =
        ByteStreamServer::new(ByteStreamCalls(of())).max_decoding_message_size(WRITE_MESSAGE_BYTES_MAX);
    // Without a router of its own it would bring an answer for all other paths, too.
    Routes::from(Router::new())
        .add_service(content)
        .add_service(results)
        .add_service(streams)
        .add_service(CapabilitiesServer::new(CapabilitiesCalls(of())))
        .into_axum_router()
        .route_layer(from_fn_with_state(of(), gate::admit))
}
