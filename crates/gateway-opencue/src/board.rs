//! The board of a farm: Windlass's pages for browsers, and what they read of OpenCue's tables.
//!
//! - Nothing is written: sessions of the board's connections are read-only.
//! - No statement counts frames. Counts are those that OpenCue keeps, lists have pages, and a page of frames is looked
//!   up by their names. So what an answer costs does not follow the number of frames.
//! - Cores are numbers of cores, memory is bytes, times are milliseconds of Unix time. What is not known is null.
//! - PostgreSQL makes the JSON of an answer. A statement says by name what its entries have, and no other form of them
//!   exists here.

mod data;
mod frames;
mod hosts;
mod jobs;
mod overview;
mod pages;
mod shows;
mod trouble;
mod whys;

pub use data::{Board, CONNECTIONS_MAX};
pub use pages::PAGE_MAX;

use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Serialize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use windlass_api::{BoardMe, Role, SignedInBy};

impl Board {
    /// The routes of its requests. All are GET. The server that serves them says among the extensions of each request
    /// how the caller is known.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/api/v1/board/me", get(me))
            .route("/api/v1/opencue/overview", get(overview::show))
            .route("/api/v1/opencue/shows", get(shows::list))
            .route("/api/v1/opencue/jobs", get(jobs::list))
            .route("/api/v1/opencue/jobs/{id}", get(jobs::show))
            .route("/api/v1/opencue/jobs/{id}/layers", get(jobs::layers))
            .route("/api/v1/opencue/jobs/{id}/frames", get(frames::list))
            .route("/api/v1/opencue/jobs/{id}/why", get(whys::show))
            .route("/api/v1/opencue/hosts", get(hosts::list))
            .route("/api/v1/opencue/hosts/{name}", get(hosts::show))
            .with_state(Arc::new(self))
    }
}

/// The caller, and the farm whose views the page shows.
#[derive(Serialize)]
struct GatewayMe {
    #[serde(flatten)]
    me: BoardMe,
    /// The page shows this farm's views in the place of a server's.
    farm: &'static str,
}

async fn me(Extension(by): Extension<SignedInBy>) -> Json<GatewayMe> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let me = BoardMe {
        // OpenCue has no users here: all look with the same right.
        name: "OpenCue".to_owned(),
        role: Role::Viewer,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_ms: now.as_millis() as u64,
        signed_in_by: by,
    };
    Json(GatewayMe { me, farm: "opencue" })
}
