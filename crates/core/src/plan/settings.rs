//! How a planner is set up.

use super::ReservationSettings;
use crate::bounds;
use crate::load::formula::LoadSettings;
use crate::queues::TurnSettings;
use crate::score::policy::{DEFAULT_POLICY, ScoringPolicy, policy_by_name};
use crate::score::weights;
use crate::score::windows::RECOMPUTE_NS;
use crate::worker::Saturation;
use std::fmt;

/// How the planner is set up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanSettings {
    /// Which worker with room is filled first.
    pub saturation: Saturation,
    /// Nanoseconds that a worker may be silent before it gets no new work.
    pub suspect_ns: u64,
    /// How loads are judged.
    pub load: LoadSettings,
    /// How turns are taken.
    pub turn: TurnSettings,
    /// How reservations are given.
    pub reserve: ReservationSettings,
    /// How pairs of step and worker are judged.
    pub policy: Policy,
    /// Milliseconds after which a task that could start should have, where its step does not say.
    pub wait_deadline_ms: u64,
    /// Nanoseconds after which the means that rules compare with are computed again.
    pub means_ns: u64,
    /// [`bounds::STEP_MISSES_MAX`], or less for tests.
    pub step_misses_max: usize,
    /// [`bounds::CANDIDATES_MAX`], or less for tests.
    pub candidates_max: usize,
    /// [`bounds::PREFETCH_LOOKS_MAX`], or less for tests.
    pub prefetch_looks_max: usize,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings {
            saturation: Saturation::default(),
            suspect_ns: bounds::SUSPECT_NS,
            load: LoadSettings::default(),
            turn: TurnSettings::default(),
            reserve: ReservationSettings::default(),
            policy: Policy::default(),
            wait_deadline_ms: weights::DEADLINE_MS,
            means_ns: RECOMPUTE_NS,
            step_misses_max: bounds::STEP_MISSES_MAX,
            candidates_max: bounds::CANDIDATES_MAX,
            prefetch_looks_max: bounds::PREFETCH_LOOKS_MAX,
        }
    }
}

/// A scoring policy: equal to another of the same name.
#[derive(Clone, Copy)]
pub struct Policy(pub &'static dyn ScoringPolicy);

impl Default for Policy {
    fn default() -> Self {
        Policy(policy_by_name(DEFAULT_POLICY).0)
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
