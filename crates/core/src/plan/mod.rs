//! Which task goes where next: whose turn it is, which worker fits best, which workers are kept for work that was
//! passed over, and why the rest waits.
//!
//! [`round`] is the whole of it. It works on a [`Planner`] (workers, queues, classes, reservations) and on anything
//! that implements [`Work`] (what the steps are, what runs, how a booking is recorded). README.md lists its
//! properties.

mod attempt;
mod booking;
mod checked;
mod decision;
mod feasible;
mod forecast;
mod full_classes;
mod gang;
mod matching;
pub mod placement;
mod planner;
mod prefetch;
mod request;
mod reservations;
mod reserving;
mod rivals;
mod round;
mod settings;
mod vetoed;
mod work;

pub use booking::{Booking, HeldAmounts};
pub use decision::{BlockedWork, Decision, Judged};
pub use forecast::{ends_at, expected_end, starts_at};
pub use gang::{GangOutcome, could_start_all, part_request, place_gang, too_few_at_a_time};
pub use planner::{Planner, Searches};
pub use request::placement_request;
pub use reservations::{ReservationSettings, Reservations};
pub use round::round;
pub use settings::{PlanSettings, Policy};
pub use vetoed::VetoedStep;
pub use work::{GangBooking, GangPart, RunningTask, StepFacts, Work, within_limit};
