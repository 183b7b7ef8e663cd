//! Why a task is where it is: the same predicates as placement, counted instead of decided.

mod advice;
mod dry_run;
mod entitlement;
mod explanation;
mod failure;
mod forecast;
mod gangs;
mod job_end;
mod lengths;
mod parked;
mod place;
mod reasons;
mod remedy;
mod survey;
mod task;
mod trial;
mod waits;
mod words;
mod worker;

pub use dry_run::{DryRun, StepTrial, dry_run};
pub use entitlement::{Entitlement, Pool, entitlements, pool};
pub use explanation::{Advice, Change, Edit, Explanation, FirstForLimit, Reason, Starts, Turn, Who};
pub use failure::{Cause, FailedAttempt, SHORT_OF_MEMORY};
pub use forecast::start_error;
pub use job_end::expected_job_end;
pub use parked::parked_task;
pub use place::{held_place, request_reason, unknown_memory, waiting_place, waiting_request};
pub use reasons::Known;
pub use task::{brief, decision, expected_start, reason, task};
pub use waits::{wait_reason, waiting_tasks};
pub use words::Word;
pub use worker::{
    Lost, Passed, PassedVerdict, ReservedFor, WorkerExplanation, WorkerReason, vetoed_workers, worker,
};
