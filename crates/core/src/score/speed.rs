//! The speed of a network or a disk, from transfers that took place.

/// Nanoseconds after which evidence counts half.
pub const SPEED_HALF_LIFE_NS: u64 = 600 * 1_000_000_000;

/// A mean of transfer rates in which each transfer weighs as many bytes as it had, halved with each
/// half-life since.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Speed {
    /// Sum of bytes, aged.
    weight: f64,
    /// Sum of bytes times bytes a second, aged alike.
    weighted_rate: f64,
    at_ns: u64,
}

impl Speed {
    /// Counts a transfer that ended at `now_ns`, on any clock. One without bytes or time says nothing.
    pub fn add(&mut self, now_ns: u64, bytes: u64, elapsed_ns: u64) {
        if bytes == 0 || elapsed_ns == 0 {
            return;
        }
        let kept = self.kept(now_ns);
        let rate = bytes as f64 / (elapsed_ns as f64 / 1e9);
        self.weight = self.weight * kept + bytes as f64;
        self.weighted_rate = self.weighted_rate * kept + bytes as f64 * rate;
        self.at_ns = self.at_ns.max(now_ns);
    }

    /// Bytes a second; `None` without evidence, and when less than a byte's weight of it is left.
    pub fn rate(&self, now_ns: u64) -> Option<f64> {
        (self.weight * self.kept(now_ns) >= 1.0).then(|| self.weighted_rate / self.weight)
    }

    /// What part of the evidence is left.
    fn kept(&self, now_ns: u64) -> f64 {
        libm::exp2(-(now_ns.saturating_sub(self.at_ns) as f64) / SPEED_HALF_LIFE_NS as f64)
    }
}
