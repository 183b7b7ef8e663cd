//! The contract of a rule.

use super::context::Pair;

/// One reason to prefer one pair of step and worker to another, or to hold a pair back. A rule is a pure
/// function of the pair.
pub trait ScoreRule: Send + Sync {
    /// Its name. It is recorded with decisions and never changes.
    fn name(&self) -> &'static str;

    /// What it rewards or holds back, for people.
    fn description(&self) -> &'static str;

    /// The least and the most points that it gives.
    fn range(&self) -> (f64, f64);

    /// What it says of the pair.
    fn contribution(&self, pair: &Pair) -> Contribution;
}

/// The reason of the veto of a worker whose cores other programs use.
pub const CORES_IN_USE: &str = "something else uses the worker's processors";

/// The same for work of an outside client, where other such work runs.
pub const CORES_IN_USE_BESIDE_CLIENTS: &str =
    "something else uses the worker's processors, so turns and other work of clients go on one at a time";

/// The reason of the veto of a worker whose memory is in use.
pub const MEMORY_IN_USE: &str = "hardly any memory is free";

/// The same where earlier tasks held more than what is left.
pub const MEMORY_SHORT: &str = "it is predicted to hold more memory than is free";

/// What a rule says of a pair. Reasons are fixed texts, so that judging allocates nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Contribution {
    /// Points, finite and in the rule's range.
    Points { value: f64, reason: &'static str },
    /// The step must not go to the worker now, whatever other rules say.
    Veto { reason: &'static str },
}

impl Contribution {
    /// Adds `value` points, for this reason.
    pub const fn points(value: f64, reason: &'static str) -> Self {
        Contribution::Points { value, reason }
    }

    /// Adds no points, for this reason.
    pub const fn none(reason: &'static str) -> Self {
        Contribution::Points { value: 0.0, reason }
    }

    /// Vetoes the pair, for this reason.
    pub const fn hold(reason: &'static str) -> Self {
        Contribution::Veto { reason }
    }

    /// The points; none of a hold.
    pub fn value(&self) -> f64 {
        match self {
            Contribution::Points { value, .. } => *value,
            Contribution::Veto { .. } => 0.0,
        }
    }

    /// The reason that the rule gives.
    pub fn reason(&self) -> &'static str {
        match self {
            Contribution::Points { reason, .. } | Contribution::Veto { reason } => reason,
        }
    }
}
