//! What a worker is, and what a step needs it to be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Attributes of a worker: each key with its values. A bare tag is a key without values.
pub type Attributes = BTreeMap<String, BTreeSet<String>>;

/// A worker with this attribute is the executor of another system, which its value names. It takes only steps that ask
/// for it. Windlass books no more memory there than it reports as free, because other schedulers use it too.
pub const EXECUTOR: &str = "executor";

/// A worker with this attribute gives places to the outside clients of the system that its value names, and runs no
/// tasks.
pub const EXCLUSIVE: &str = "exclusive";

/// A worker with this attribute takes only the work of the queues that its values name.
pub const FOR_QUEUE: &str = "for_queue";

/// This attribute of a worker is the speed of one of its cores as an operator gives it, in place of what its agent
/// measures: 1000 is the reference core.
pub const CORE_SCORE: &str = "core_score";

/// A worker with this attribute has not heard yet which GPUs it has: it declares none, and may have any number.
pub const GPUS_LATE: &str = "gpus_late";

/// The class of machines that a worker is of, as an operator names it for scaling.
pub const MACHINE_CLASS: &str = "class";

/// A worker with this attribute gives places to the outside clients of the system that its value names. Unless it is
/// [`EXCLUSIVE`], it runs tasks as well.
pub const SERVES: &str = "serves";

/// One requirement: the worker has `key`, and, where `any_of` names values, one of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Need {
    /// The name of the attribute.
    pub key: String,
    /// Values of which one is enough; empty asks only for the key.
    pub any_of: BTreeSet<String>,
}

/// True if a step with these requirements is for the executors of another system.
pub fn asks_executor(needs: &[Need]) -> bool {
    needs.iter().any(|need| need.key == EXECUTOR)
}

impl Need {
    /// Reads `key`, `key=value` or `key=a|b`.
    pub fn parse(text: &str) -> Need {
        let (key, values) = text.split_once('=').unwrap_or((text, ""));
        Need {
            key: key.to_owned(),
            any_of: values.split('|').filter(|v| !v.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// True if a worker with these attributes meets the requirement.
    pub fn met_by(&self, attributes: &Attributes) -> bool {
        attributes
            .get(&self.key)
            .is_some_and(|values| self.any_of.is_empty() || !self.any_of.is_disjoint(values))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        for (i, value) in self.any_of.iter().enumerate() {
            write!(f, "{}{value}", if i == 0 { "=" } else { "|" })?;
        }
        Ok(())
    }
}
