//! Rates of the faults in a simulation. `world`, `scheduler` and `run` draw from them with the seed's random
//! numbers. The rates decide how often a fault strikes, never what it does.

use crate::rng::Rng;

/// A struct of numbers of one type.
macro_rules! numbers {
    ($(#[$about:meta])* $name:ident: $of:ty { $($(#[$doc:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: $of,)+
        }

        impl $name {
            /// What `join` makes of each number and the same one of another.
            fn zip(&self, other: &$name, mut join: impl FnMut($of, $of) -> $of) -> $name {
                $name { $($field: join(self.$field, other.$field),)+ }
            }
        }
    };
}
pub(crate) use numbers;

numbers! {
    /// Rates of faults, in thousandths. A rate of 0 disables its fault.
    Faults: u32 {
        /// Of messages: those that never arrive.
        lose_permille,
        /// Of messages: those that arrive up to three seconds late, and so out of order.
        delay_permille,
        /// Of messages: those that arrive twice.
        double_permille,
        /// Of batches: those of which another scheduler made one booking first.
        rival_permille,
        /// Of batches: those that are applied although the scheduler gets a failure.
        unknown_permille,
        /// Of disturbances: those after which a machine never comes back.
        retire_permille,
        /// Of disturbances: those that kill a keeper with everything that it runs.
        keeper_permille,
        /// Of disturbances: those that cut a worker's link, seen by both ends or by the worker only.
        link_permille,
        /// Of disturbances: those that take a worker's agent or machine away, for less or more than its lease.
        absence_permille,
        /// Of disturbances: those in which another machine claims a worker's name.
        claim_permille,
        /// Of disturbances: those that kill the scheduler.
        scheduler_permille,
        /// Of disturbances: those that fill the store's disk for a while.
        disk_permille,
        /// Of disturbances: those that step the clock that the next scheduler reads, back or forth.
        clock_permille,
        /// Of disturbances: those that delete ended jobs for their age.
        retention_permille,
        /// Of machines: those whose clock is off by decades.
        absurd_clock_permille,
        /// Of machines: those that lie about times and amounts of what they ran.
        liar_permille,
    }
}

impl Faults {
    /// No fault ever strikes.
    pub fn none() -> Self {
        Faults::default()
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
        self.zip(&self, |rate, _| rate * [0, 1, 1, 3][rng.below(4) as usize])
    }
}
