//! Where ready tasks go: which worker a task gets, and which workers are kept for work that was passed over.

pub mod placement;
mod reservations;

pub use reservations::{ReservationSettings, Reservations};
