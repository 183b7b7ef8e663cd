//! How a server that stands by asks the owner for one part of a task's output.

/// The path of a task's output.
pub(super) const LOG_PATTERN: &str = "/api/v1/tasks/{id}/log";
/// Where the next part begins. Without it, this part was the last one.
pub(crate) const PART_NEXT_HEADER: &str = "windlass-log-next";
/// The attempt whose output it is.
pub(crate) const PART_ATTEMPT_HEADER: &str = "windlass-log-attempt";

/// One part of the output is wanted. In the extensions of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnePart;
