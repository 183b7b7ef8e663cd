//! What classes were sized to, and by what.

use crate::class::Class;
use std::collections::BTreeMap;

/// What sizes a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizedPart {
    /// The number of its signature.
    pub profile: u64,
    /// Its cpus are what earlier tasks used.
    pub cpus_auto: bool,
}

/// The same, as far as it was known by a revision of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RevisedPart {
    pub(super) profile: u64,
    pub(super) revision: u64,
    pub(super) cpus_auto: bool,
}

/// A class as it is asked for, and what sizes each of its parts. The size follows from these and from the workers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sizing {
    pub(super) parts: Vec<RevisedPart>,
    pub(super) asked: Class,
}

/// What classes were sized to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SizedClasses {
    pub(super) known: BTreeMap<Sizing, Class>,
    /// The [`Workers::sizes_version`] that all of these follow.
    pub(super) version: u64,
    /// Some were dropped that steps may be of.
    pub(super) has_dropped: bool,
}
