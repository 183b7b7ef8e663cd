//! The rules, by what they look at. Names and formulas are Gradient's where it has the rule, repaired
//! where its formula does not do what its description says.

mod affinity;
mod cache;
mod fit;
mod room;
mod turn;

pub use affinity::{BuiltinDeprioritize, DiskAffinity, NetworkAffinity, ReserveFetchWorkers, Spread};
pub use cache::{
    CacheHits, CacheWarmth, LiveLocality, MissingNarSize, MissingPaths, PreferLocalBuild, RescoreWait,
};
pub use fit::{MemorySaturation, ResourceFit, ResourceSaturation};
pub use room::{FreeMemory, LowPressure, Packing};
pub use turn::{DependencyCount, WaitTime};

/// `part` of `whole`, from 0 to 1. Of nothing, everything positive is all; NaN is 0.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { unit(part / whole) } else { f64::from(u8::from(part > 0.0)) }
}

/// `x` held between 0 and 1; 0 if it is NaN. Without branches, which the processor would guess wrong.
#[expect(clippy::manual_clamp, reason = "clamp keeps NaN")]
fn unit(x: f64) -> f64 {
    x.max(0.0).min(1.0)
}

/// A number that a worker or a window gave, if it is one that can be reckoned with.
fn known(x: Option<f64>) -> Option<f64> {
    x.filter(|x| (0.0..=f64::MAX).contains(x))
}
