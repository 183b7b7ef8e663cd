//! Paths that more than the table of requests names.

/// Where jobs are submitted.
pub const JOBS_PATH: &str = "/api/v1/jobs";
/// Where commands ask for their turn, and say how they ended.
pub const TURNS_PATH: &str = "/api/v1/turns";
/// Where the board asks who is signed in.
pub const ME_PATH: &str = "/api/v1/board/me";
/// Where the OpenAPI document is.
pub const OPENAPI_PATH: &str = "/openapi.json";
