//! The calls of clients.

mod farm;
mod frames;
mod jobs;
mod submit;
mod system;

use super::server::{Cuebot, unary};
use super::trouble::CallError;
use axum::Router;
use std::sync::Arc;

/// Rows that a list has at most.
const ROWS_MAX: i64 = 100_000;

/// Adds the paths of clients.
pub(crate) fn routes(router: Router<Arc<Cuebot>>) -> Router<Arc<Cuebot>> {
    router
        .route("/cue.CueInterface/GetSystemStats", unary(system::stats))
        .route("/job.JobInterface/LaunchSpec", unary(submit::launch))
        .route("/job.JobInterface/LaunchSpecAndWait", unary(submit::launch_and_wait))
        .route("/job.JobInterface/GetJobs", unary(jobs::list))
        .route("/job.JobInterface/GetJobNames", unary(jobs::names))
        .route("/job.JobInterface/GetJob", unary(jobs::get))
        .route("/job.JobInterface/FindJob", unary(jobs::find))
        .route("/job.JobInterface/IsJobPending", unary(jobs::is_pending))
        .route("/job.JobInterface/GetLayers", unary(jobs::layers))
        .route("/job.JobInterface/Pause", unary(jobs::pause))
        .route("/job.JobInterface/Resume", unary(jobs::resume))
        .route("/job.JobInterface/Kill", unary(frames::kill_job))
        .route("/job.JobInterface/SetPriority", unary(jobs::set_priority))
        .route("/job.JobInterface/SetMinCores", unary(jobs::set_min_cores))
        .route("/job.JobInterface/SetMaxCores", unary(jobs::set_max_cores))
        .route("/job.JobInterface/SetMaxRetries", unary(jobs::set_max_retries))
        .route("/job.JobInterface/SetAutoEat", unary(jobs::set_auto_eat))
        .route("/job.JobInterface/GetFrames", unary(frames::list))
        .route("/job.JobInterface/KillFrames", unary(frames::kill))
        .route("/job.JobInterface/RetryFrames", unary(frames::retry))
        .route("/job.JobInterface/EatFrames", unary(frames::eat))
        .route("/job.FrameInterface/GetFrame", unary(frames::get))
        .route("/show.ShowInterface/GetShows", unary(farm::all_shows))
        .route("/show.ShowInterface/GetActiveShows", unary(farm::active_shows))
        .route("/show.ShowInterface/FindShow", unary(farm::find_show))
        .route("/show.ShowInterface/SetSchedulerManaged", unary(farm::set_managed))
        .route("/show.ShowInterface/SetActive", unary(farm::set_active))
        .route("/show.ShowInterface/EnableBooking", unary(farm::enable_booking))
        .route("/host.HostInterface/GetHosts", unary(farm::all_hosts))
        .route("/host.HostInterface/FindHost", unary(farm::find_host))
        .route("/host.HostInterface/GetHost", unary(farm::get_host))
        .route("/host.HostInterface/Lock", unary(farm::lock))
        .route("/host.HostInterface/Unlock", unary(farm::unlock))
        .route("/facility.AllocationInterface/GetAll", unary(farm::all_allocs))
        .route("/facility.AllocationInterface/Find", unary(farm::find_alloc))
        .route("/service.ServiceInterface/GetDefaultServices", unary(farm::services))
}

/// The id of what a client hands back to name it.
fn id<'a>(what: &'static str, id: Option<&'a String>) -> Result<&'a str, CallError> {
    match id {
        Some(id) if !id.is_empty() => Ok(id),
        _ => Err(CallError::Value(format!("the call names no {what}"))),
    }
}

/// Hundredths of cores, as the tables have them.
fn hundredths(cores: f32) -> Result<i32, CallError> {
    if !cores.is_finite() || !(-1.0..=1e6).contains(&cores) {
        return Err(CallError::Value(format!("{cores} is not a valid number of cores")));
    }
    Ok((cores * 100.0).round() as i32)
}
