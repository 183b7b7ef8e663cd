//! Rates of the faults in a simulation. `world`, `scheduler` and `run` draw from them with the seed's random
//! numbers. The rates decide how often a fault strikes, never what it does.

use crate::rng::Rng;

/// Rates of faults, in thousandths. A rate of 0 disables its fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Of messages: those that never arrive.
    pub lose_permille: u32,
    /// Of messages: those that arrive up to three seconds late, and so out of order.
    pub delay_permille: u32,
    /// Of messages: those that arrive twice.
    pub double_permille: u32,
    /// Of batches: those of which another scheduler made one booking first.
    pub rival_permille: u32,
    /// Of batches: those that are applied although the scheduler gets a failure.
    pub unknown_permille: u32,
    /// Of disturbances: those after which a machine never comes back.
    pub retire_permille: u32,
    /// Of disturbances: those that kill a keeper with everything that it runs.
    pub keeper_permille: u32,
    /// Of disturbances: those that cut a worker's link, seen by both ends or by the worker only.
    pub link_permille: u32,
    /// Of disturbances: those that take a worker's agent or machine away, for less or more than its lease.
    pub absence_permille: u32,
    /// Of disturbances: those in which another machine claims a worker's name.
    pub claim_permille: u32,
    /// Of disturbances: those that kill the scheduler.
    pub scheduler_permille: u32,
    /// Of disturbances: those that fill the store's disk for a while.
    pub disk_permille: u32,
    /// Of disturbances: those that step the clock that the next scheduler reads, back or forth.
    pub clock_permille: u32,
    /// Of disturbances: those that delete ended jobs for their age.
    pub retention_permille: u32,
    /// Of machines: those whose clock is off by decades.
    pub absurd_clock_permille: u32,
    /// Of machines: those that lie about times and amounts of what they ran.
    pub liar_permille: u32,
}

impl Faults {
    /// No faults.
    pub const fn none() -> Self {
        Faults {
            lose_permille: 0,
            delay_permille: 0,
            double_permille: 0,
            rival_permille: 0,
            unknown_permille: 0,
            retire_permille: 0,
            keeper_permille: 0,
            link_permille: 0,
            absence_permille: 0,
            claim_permille: 0,
            scheduler_permille: 0,
            disk_permille: 0,
            clock_permille: 0,
            retention_permille: 0,
            absurd_clock_permille: 0,
            liar_permille: 0,
        }
    }

    /// Every fault, at the rates of the seeds.
    pub const fn all() -> Self {
        Faults {
            lose_permille: 30,
            delay_permille: 50,
            double_permille: 30,
            rival_permille: 10,
            unknown_permille: 3,
            retire_permille: 15,
            keeper_permille: 50,
            link_permille: 60,
            absence_permille: 30,
            claim_permille: 10,
            scheduler_permille: 40,
            disk_permille: 30,
            clock_permille: 30,
            retention_permille: 40,
            absurd_clock_permille: 80,
            liar_permille: 80,
        }
    }

    /// The faults of one seed: each disabled, as given, or three times as frequent, so that seeds differ in character.
    pub(crate) fn vary(self, rng: &mut Rng) -> Self {
        let mut vary = |rate: u32| rate * [0, 1, 1, 3][rng.below(4) as usize];
        Faults {
            lose_permille: vary(self.lose_permille),
            delay_permille: vary(self.delay_permille),
            double_permille: vary(self.double_permille),
            rival_permille: vary(self.rival_permille),
            unknown_permille: vary(self.unknown_permille),
            retire_permille: vary(self.retire_permille),
            keeper_permille: vary(self.keeper_permille),
            link_permille: vary(self.link_permille),
            absence_permille: vary(self.absence_permille),
            claim_permille: vary(self.claim_permille),
            scheduler_permille: vary(self.scheduler_permille),
            disk_permille: vary(self.disk_permille),
            clock_permille: vary(self.clock_permille),
            retention_permille: vary(self.retention_permille),
            absurd_clock_permille: vary(self.absurd_clock_permille),
            liar_permille: vary(self.liar_permille),
        }
    }
}
