//! What may go wrong, and how often.

use crate::rng::Rng;

/// Rates of faults. A rate of 0 switches its fault off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Of a thousand messages, how many never arrive.
    pub lose_permille: u32,
    /// Of a thousand messages, how many come up to three seconds late, behind later ones.
    pub delay_permille: u32,
    /// Of a thousand messages, how many come twice.
    pub double_permille: u32,
    /// Of a thousand batches, how many have a booking that another scheduler made first.
    pub rival_permille: u32,
    /// Of a thousand disturbances, how many are the end of a keeper and of all that it ran.
    pub keeper_permille: u32,
    /// Of a thousand disturbances, how many cut a worker's link, seen by both ends or by the worker only.
    pub link_permille: u32,
    /// Of a thousand disturbances, how many take a worker's agent or machine away, for less or more than
    /// its lease.
    pub absence_permille: u32,
    /// Of a thousand disturbances, how many are another machine that claims a worker's name.
    pub claim_permille: u32,
    /// Of a thousand disturbances, how many kill the scheduler.
    pub scheduler_permille: u32,
    /// Of a thousand disturbances, how many fill the store's disk for a while.
    pub disk_permille: u32,
    /// Of a thousand disturbances, how many step the scheduler's clock, back or forth.
    pub clock_permille: u32,
    /// Of a thousand disturbances, how many are a sweep of jobs that ended.
    pub retention_permille: u32,
    /// Of a thousand machines, how many have a clock that is off by decades.
    pub absurd_clock_permille: u32,
    /// Of a thousand machines, how many lie about times and amounts of what they ran.
    pub liar_permille: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const fn none() -> Self {
        Faults {
            lose_permille: 0,
            delay_permille: 0,
            double_permille: 0,
            rival_permille: 0,
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

    /// Everything goes wrong.
    pub const fn all() -> Self {
        Faults {
            lose_permille: 30,
            delay_permille: 50,
            double_permille: 30,
            rival_permille: 10,
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

    /// These faults as one seed has them: each off, as given, or three times as frequent, so that
    /// seeds differ in character.
    pub(crate) fn vary(self, rng: &mut Rng) -> Self {
        let mut vary = |rate: u32| rate * [0, 1, 1, 3][rng.below(4) as usize];
        Faults {
            lose_permille: vary(self.lose_permille),
            delay_permille: vary(self.delay_permille),
            double_permille: vary(self.double_permille),
            rival_permille: vary(self.rival_permille),
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
