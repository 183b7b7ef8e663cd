//! Which worker suits a step best: policies made of rules, and what these judge by.
//!
//! A [`policy`] sums the points of its rules over a [`Pair`](context::Pair) of a step and a worker,
//! unless one of them vetoes the pair. Points only rank. What must not happen is a requirement or a veto.
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
