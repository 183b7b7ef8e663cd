//! The settings of the engine, as the file has them.

use super::Config;
use windlass_core::engine::Settings;
use windlass_core::plan::{PlanSettings, ReservationSettings};

impl Config {
    /// What the engine has of these settings. A policy that is not known is warned of, and is the default.
    pub fn engine_settings(&self) -> Settings {
        let saturation = self.placement.saturation();
        let plan = PlanSettings {
            saturation,
            load: self.load.settings(),
            reserve: ReservationSettings {
                after_ns: self.reservation.after().as_nanos() as u64,
                holders_max: self.reservation.holders as usize,
                ..ReservationSettings::default()
            },
            policy: self.score.policy(saturation),
            wait_deadline_ms: self.score.wait_deadline_ms(),
            means_ns: self.score.means_ns(),
            turn: self.turn.settings(),
            ..PlanSettings::default()
        };
        Settings {
            plan,
            lease_ns: self.lease.duration().map(|lease| lease.as_nanos() as u64),
            cache_steps: self.cache.steps as usize,
            ..Settings::default()
        }
    }
}
