//! Messages of OpenCue, one module for each of its packages: the generator refers from one to another by these names.
#![allow(missing_docs, clippy::module_inception)]

#[path = "generated/comment.rs"]
pub mod comment;
#[path = "generated/criterion.rs"]
pub mod criterion;
#[path = "generated/cue.rs"]
pub mod cue;
#[path = "generated/depend.rs"]
pub mod depend;
#[path = "generated/facility.rs"]
pub mod facility;
#[path = "generated/host.rs"]
pub mod host;
#[path = "generated/job.rs"]
pub mod job;
#[path = "generated/limit.rs"]
pub mod limit;
#[path = "generated/report.rs"]
pub mod report;
#[path = "generated/service.rs"]
pub mod service;
#[path = "generated/show.rs"]
pub mod show;
#[path = "generated/subscription.rs"]
pub mod subscription;
