//! Paths that more than the table of requests names.

/// Where jobs are submitted.
pub const JOBS_PATH: &str = "/api/v1/jobs";
/// Where commands ask for their turn, and say how they ended.
pub const TURNS_PATH: &str = "/api/v1/turns";
/// Where the board asks who is signed in.
pub const ME_PATH: &str = "/api/v1/board/me";
/// The beginning of the paths by which files of jobs are uploaded.
pub const UPLOAD_PATHS: &str = "/api/v1/files/";
/// Where it is asked which files are missing.
pub const MISSING_PATH: &str = "/api/v1/files/missing";
/// The paths at which files of a job are given, as the router has them.
pub const GIVEN_PATTERNS: [&str; 2] = ["/api/v1/jobs/{id}/files/tar", "/api/v1/jobs/{id}/files/blob"];
/// Where the OpenAPI document is.
pub const OPENAPI_PATH: &str = "/openapi.json";

/// True of paths by which bytes of files come.
pub fn brings_files(path: &str) -> bool {
    path.starts_with(UPLOAD_PATHS) && path != MISSING_PATH
}
