//! Why frames wait: what `--why` says, for the board.

use super::data::{Board, WAIT_TIME};
use super::pages::{key, text};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Layers of a job that are answered for.
const LAYERS_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhyQuery {
    /// The name of a layer or of a frame; without it all layers are asked about.
    part: Option<String>,
}

/// Answers why a job, a layer or a frame waits. `left_out` is the number of layers that did not fit.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<WhyQuery>, QueryRejection>,
) -> Result<Json<Value>, BoardTrouble> {
    let (job, Query(asked)) = (key(id)?, query?);
    let part = text("part", asked.part)?;
    let turn = tokio::time::timeout(WAIT_TIME, board.explaining.acquire()).await;
    let _turn = turn.map_err(|_| BoardTrouble::Busy)?;
    let client = board.client().await?;
    let found = board.reasons.of(&client, &job, part.as_deref()).await?;
    if found.is_empty() {
        let what = match part {
            Some(part) => format!("layer or frame '{part}' of job '{job}'"),
            None => format!("job '{job}' with layers"),
        };
        return Err(BoardTrouble::Missing(what));
    }
    let mut layers = Vec::new();
    for why in found.iter().take(LAYERS_MAX) {
        layers.push(json!({ "name": why.layer, "frames": why.frames, "reasons": why.reasons }));
    }
    Ok(Json(json!({ "layers": layers, "left_out": found.len() - layers.len() })))
}
