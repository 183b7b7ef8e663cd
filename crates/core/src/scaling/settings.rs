//! What an operator says of scaling.

use crate::bounds::WORKERS_MAX;
use crate::resources::Resources;
use crate::tags::Attributes;

/// Classes of machines that are told apart. Further workers are of the class [`OTHER_CLASS`].
pub const MACHINE_CLASSES_MAX: usize = 32;

/// The class under which work is told that no worker could run. No worker is of it.
pub const NO_CLASS: &str = "none";

/// The class of the workers beyond [`MACHINE_CLASSES_MAX`] classes. It never wants more workers than it has.
pub const OTHER_CLASS: &str = "other";

/// By what the number of workers is worked out.
#[derive(Clone, PartialEq, Debug)]
pub struct ScalingSettings {
    /// Milliseconds within which all tasks that wait should have started. More than 0.
    pub target_wait_ms: u64,
    /// Classes of machines that can be started. If there are any, no other class wants more workers than it has.
    pub declared: Vec<DeclaredClass>,
}

impl Default for ScalingSettings {
    fn default() -> Self {
        ScalingSettings { target_wait_ms: 300_000, declared: Vec::new() }
    }
}

/// A class of machines that can be started, also while none of them runs. Its workers have the attribute
/// [`MACHINE_CLASS`](crate::tags::MACHINE_CLASS) with its name.
#[derive(Clone, PartialEq, Debug)]
pub struct DeclaredClass {
    /// Its name, which no other declared class has.
    pub name: String,
    /// The amounts that one such worker declares.
    pub capacity: Resources,
    /// What tasks may require of one such worker, besides what all workers of the class have in common.
    pub attributes: Attributes,
    /// Workers that are wanted although nothing waits.
    pub min: u32,
    /// Workers that are wanted at most, unless more run something.
    pub max: u32,
}

impl Default for DeclaredClass {
    fn default() -> Self {
        DeclaredClass {
            name: String::new(),
            capacity: Resources::default(),
            attributes: Attributes::new(),
            min: 0,
            max: WORKERS_MAX as u32,
        }
    }
}
