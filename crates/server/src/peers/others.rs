//! What the owner of the first shard asks the other shards: figures of the whole farm, explanations, running
//! attempts, and cpus that tasks lend.
//!
//! It asks as it does for requests about one worker ([`across`]), and not by rows that each shard writes every second: so
//! nothing is written while nobody looks, and an answer is never older than its question. A shard whose engine is in this
//! process is asked without the database. Who does not answer in time is left out, and named.
//!
//! [`across`]: super::across

use super::forward::unanswered;
use super::packed::RequestHead;
use super::{FarmShards, Postbox};
use crate::auth::Role;
use crate::figures::{ShardFigures, WantedFigures};
use crate::http::ApiError;
use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Response};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use windlass_api::ErrorCode;
use windlass_core::ids::{ShardId, WHOLE_FARM};

/// Where a shard's owner tells figures. It answers there to servers alone.
pub(crate) const FIGURES_PATH: &str = "/api/v1/shard/figures";
/// Where a shard's owner tells the attempts of a job that run there. It answers there to servers alone.
pub(crate) const ATTEMPTS_PATH: &str = "/api/v1/shard/attempts";
/// Where a shard's owner is told that a task lends its cpus, or wants them back. It answers there to servers alone.
pub(crate) const LOANS_PATH: &str = "/api/v1/shard/loans";
/// Names the shards that are lacking in an answer, with commas.
const MISSING_HEADER: &str = "windlass-missing-shards";
/// How long another shard may take. Pages wait for that long at most.
pub(super) const FIGURES_PATIENCE: Duration = Duration::from_secs(1);
/// In whose name a server asks where no client does.
const ASKING_USER: &str = "windlass";

/// The other shards of a farm.
#[derive(Clone)]
pub struct OtherShards {
    postbox: Arc<Postbox>,
    shards: FarmShards,
}

/// What the other shards said.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Of those that answered, by number.
    pub figures: Vec<ShardFigures>,
    /// Those that did not.
    pub missing: Vec<ShardId>,
}

impl OtherShards {
    /// As the owner of the first shard sees them.
    pub fn new(postbox: Arc<Postbox>, shards: FarmShards) -> OtherShards {
        OtherShards { postbox, shards }
    }

    /// Asks all of them at once for their figures.
    pub async fn figures(&self, wanted: WantedFigures) -> Gathered {
        let others = self.shards.others();
        let told = join_all(others.iter().map(|shard| self.figures_of(*shard, wanted))).await;
        let mut gathered = Gathered::default();
        for (shard, told) in others.into_iter().zip(told) {
            match told {
                Some(figures) => gathered.figures.push(figures),
                None => gathered.missing.push(shard),
            }
        }
        gathered
    }

    async fn figures_of(&self, shard: ShardId, wanted: WantedFigures) -> Option<ShardFigures> {
        if let Some(handle) = self.shards.handle(shard) {
            return timeout(FIGURES_PATIENCE, ShardFigures::read(&handle, wanted)).await.ok()?.ok();
        }
        let WantedFigures { workers, queues } = wanted;
        self.ask(shard, format!("{FIGURES_PATH}?workers={workers}&queues={queues}")).await
    }

    /// What a shard answers to a path; `None` if it does not, or with an error.
    pub async fn ask<T: DeserializeOwned>(&self, shard: ShardId, path: String) -> Option<T> {
        // One that nobody owns cannot answer.
        self.shards.owner(shard)?;
        let head = head(Method::GET, path);
        let asked = self.postbox.ask_shard(shard, &head, b"", FIGURES_PATIENCE);
        let answer = timeout(FIGURES_PATIENCE, asked).await.ok()?.ok()?;
        read(shard, &answer)
    }

    /// Has the owner of a shard do something.
    ///
    /// # Errors
    ///
    /// It did not answer in time, or with an error.
    pub async fn order(&self, shard: ShardId, path: String, patience: Duration) -> Result<(), ApiError> {
        let head = head(Method::POST, path);
        let answer = self.postbox.ask_shard(shard, &head, b"", patience).await.map_err(unanswered)?;
        if answer.status().is_success() {
            return Ok(());
        }
        let why = format!("shard {shard} answered with {}", answer.status());
        Err(ApiError::new(ErrorCode::Unavailable, why))
    }
}

/// A request in the name of this server.
fn head(method: Method, path: String) -> RequestHead {
    RequestHead {
        method: method.to_string(),
        uri: path,
        content_type: None,
        user: ASKING_USER.to_owned(),
        role: Role::Viewer,
        worker: None,
        token: None,
        session: None,
        peer: String::new(),
        key: None,
        one_part: false,
    }
}

fn read<T: DeserializeOwned>(shard: ShardId, answer: &Response<Bytes>) -> Option<T> {
    if !answer.status().is_success() {
        return None;
    }
    match serde_json::from_slice(answer.body()) {
        Ok(told) => Some(told),
        Err(error) => {
            tracing::warn!("what shard {shard} says is not understood: {error}");
            None
        }
    }
}

/// The answer, with the shards that are lacking in it.
pub(crate) fn name_missing<B>(mut answer: Response<B>, missing: &[ShardId]) -> Response<B> {
    let names: Vec<String> = missing.iter().map(ShardId::to_string).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(","))
        && !missing.is_empty()
    {
        answer.headers_mut().insert(MISSING_HEADER, value);
    }
    answer
}

impl FarmShards {
    /// All shards but the first.
    pub(super) fn others(&self) -> Vec<ShardId> {
        self.shards().into_iter().filter(|shard| *shard != WHOLE_FARM).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_shards_that_are_lacking() {
        let missing = |shards: &[ShardId]| {
            let answer = name_missing(Response::new(()), shards);
            answer.headers().get(MISSING_HEADER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&[ShardId(3), ShardId(12)]).unwrap(), "3,12");
    }

    #[test]
    fn an_error_of_a_shard_is_no_answer() {
        let answer = |status: u16, body: &'static str| {
            let answer = Response::builder().status(status).body(Bytes::from(body)).unwrap();
            read::<Vec<u32>>(ShardId(2), &answer)
        };
        assert_eq!(answer(200, "[1]"), Some(vec![1]));
        assert_eq!((answer(404, "[1]"), answer(200, "{")), (None, None));
    }
}
