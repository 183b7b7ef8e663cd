//! Results of actions over gRPC.

use super::super::results::digest_in;
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use super::parts::{check, told};
use std::sync::Arc;
use tonic::{Request, Response, Status};
use windlass_cas::proto::re::action_cache_server::ActionCache;
use windlass_cas::proto::re::{ActionResult, GetActionResultRequest, UpdateActionResultRequest};

pub(super) struct ActionCacheCalls(pub Arc<CacheState>);

impl ActionCacheCalls {
    async fn get(&self, asked: GetActionResultRequest) -> Result<ActionResult, CacheTrouble> {
        let instance = check(&asked.instance_name, asked.digest_function)?;
        let action = digest_in(asked.action_digest.as_ref())?;
        let found = self.0.results.get(&instance, action.hash).await?;
        self.0.counts.answered(found.is_some());
        found.ok_or(CacheTrouble::Nothing)
    }

    async fn update(&self, asked: UpdateActionResultRequest) -> Result<ActionResult, CacheTrouble> {
        let instance = check(&asked.instance_name, asked.digest_function)?;
        let action = digest_in(asked.action_digest.as_ref())?;
        let missing = || CacheTrouble::Bad("the result of the action is missing".to_owned());
        let result = asked.action_result.ok_or_else(missing)?;
        self.0.results.set(&instance, action.hash, &result).await?;
        Ok(result)
    }
}

#[tonic::async_trait]
impl ActionCache for ActionCacheCalls {
    async fn get_action_result(
        &self,
        request: Request<GetActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        told(&self.0, "GetActionResult", self.get(request.into_inner()).await)
    }

    async fn update_action_result(
        &self,
        request: Request<UpdateActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        told(&self.0, "UpdateActionResult", self.update(request.into_inner()).await)
    }
}
