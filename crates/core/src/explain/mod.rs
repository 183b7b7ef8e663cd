//! Why a task is where it is: the same predicates as placement, counted instead of decided.

mod entitlement;
mod explanation;
mod gangs;
mod parked;
mod place;
mod survey;
mod task;
mod trial;
mod waits;
mod words;
mod worker;

pub use entitlement::{Entitlement, Pool, entitlements, pool};
pub use explanation::{Change, Explanation, Reason, Turn};
pub use parked::parked_task;
pub use place::{held_place, waiting_place};
pub use task::{decision, task};
pub use trial::{StepTrial, Trial, trial};
pub use waits::{BlockedReason, wait_reason, waiting_tasks};
pub use words::Word;
pub use worker::{Lost, Passed, PassedVerdict, ReservedFor, WorkerExplanation, WorkerReason, worker};
