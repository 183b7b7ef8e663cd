//! How urgent a step is, on whichever worker it runs.

use super::{known, share};
use crate::job::Kind;
use crate::score::context::Pair;
use crate::score::rule::{Contribution, ScoreRule};
use crate::score::weights;
use crate::score::windows::Metric;

/// Points for what waits for the step. Gradient counts the step's own inputs here, which favours steps
/// that unblock nothing.
pub struct DependencyCount;

impl ScoreRule for DependencyCount {
    fn name(&self) -> &'static str {
        "DependencyCountRule"
    }

    fn description(&self) -> &'static str {
        "Prefers builds that many tasks wait for, most on the critical path, relative to the mean."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::DEPENDENTS)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        if pair.job.kind == Kind::Evaluation {
            return Contribution::none("an evaluation");
        }
        let mean = known(pair.instance.windows[Metric::Dependents].w1h).unwrap_or(weights::DEPENDENTS_MEAN);
        let value = weights::DEPENDENTS * share(pair.job.dependents, 2.0 * mean);
        let reason = if value > 0.0 { "tasks wait for it" } else { "nothing waits for it" };
        Contribution::points(value, reason)
    }
}

/// Points for waiting, against an absolute deadline. Gradient measures against the mean wait, which no
/// wait can be said to exceed on a farm that is late throughout.
pub struct WaitTime;

impl ScoreRule for WaitTime {
    fn name(&self) -> &'static str {
        "WaitTimeRule"
    }

    fn description(&self) -> &'static str {
        "Prefers what has been ready for long, measured by when it should have started."
    }

    fn range(&self) -> (f64, f64) {
        (0.0, weights::WAIT_MAX)
    }

    fn contribution(&self, pair: &Pair) -> Contribution {
        let waited_ms = pair.job.waited_ms as f64;
        let deadline_ms =
            pair.job.deadline_ms.or(pair.instance.deadline_ms).unwrap_or(weights::DEADLINE_MS) as f64;
        if waited_ms == 0.0 {
            return Contribution::none("ready just now");
        }
        // Where the deadline is at once, any wait is past all bounds.
        let value = (weights::WAIT_PER_DEADLINE * waited_ms / deadline_ms).min(weights::WAIT_MAX);
        let reason = if waited_ms < deadline_ms { "its deadline is ahead" } else { "past its deadline" };
        Contribution::points(value, reason)
    }
}
