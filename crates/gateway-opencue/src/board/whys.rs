//! Why frames wait: what `--why` says, for the board.

use super::jobs::key;
use super::trouble::BoardTrouble;
use super::{Board, WAIT_TIME, text};
use crate::scheduler::LayerReasons;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Layers of a job that are answered for.
const LAYERS_MAX: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhyQuery {
    /// The name of a layer or of a frame; without it all layers are asked about.
    part: Option<String>,
}

/// The reasons of a job's layers.
#[derive(Serialize)]
pub(super) struct WhyAnswer {
    layers: Vec<LayerAnswer>,
    /// Number of layers that did not fit.
    left_out: usize,
}

#[derive(Serialize)]
struct LayerAnswer {
    name: String,
    /// Its frames by state, in words.
    frames: String,
    /// Sentences, the most telling one first. None where nothing waits.
    reasons: Vec<String>,
}

/// Answers why a job, a layer or a frame waits.
pub(super) async fn show(
    State(board): State<Arc<Board>>,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<WhyQuery>, QueryRejection>,
) -> Result<Json<WhyAnswer>, BoardTrouble> {
    let (job, Query(asked)) = (key(id)?, query?);
    let part = text("part", asked.part)?;
    let turn = tokio::time::timeout(WAIT_TIME, board.explaining.acquire()).await;
    let _turn = turn.map_err(|_| BoardTrouble::Busy)?;
    let client = board.client().await?;
    let mut found = board.reasons.of(&client, &job, part.as_deref()).await?;
    if found.is_empty() {
        let what = match part {
            Some(part) => format!("layer or frame '{part}' of job '{job}'"),
            None => format!("job '{job}' with layers"),
        };
        return Err(BoardTrouble::Missing(what));
    }
    let left_out = found.len().saturating_sub(LAYERS_MAX);
    found.truncate(LAYERS_MAX);
    let layers = found
        .into_iter()
        .map(|LayerReasons { layer, frames, reasons }| LayerAnswer { name: layer, frames, reasons })
        .collect();
    Ok(Json(WhyAnswer { layers, left_out }))
}
