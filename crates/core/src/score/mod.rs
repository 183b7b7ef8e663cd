//! Who should run it: policies made of rules, and what they judge by.
//!
//! A [`policy`] sums the points of its rules over a [`Pair`](context::Pair) of a step and a worker,
//! unless one of them holds the pair back. Points only rank; nothing that must not happen is left to them.
//! What rules judge by is gathered by [`history`] (earlier tasks of the kind), [`windows`] (the farm of
//! late), [`Warmth`](crate::worker::Warmth) (what ran where), [`cache_keys`](crate::cache_keys) (what caches hold), [`speed`] (of disks and networks) and [`dependents`] (what waits).

pub mod context;
pub mod dependents;
pub mod history;
pub mod policy;
pub mod rule;
mod rules;
pub mod speed;
pub mod weights;
pub mod windows;
