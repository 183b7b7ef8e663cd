//! Settings of how places are chosen: whose turn it is, what load does, which policy ranks workers, what is
//! kept free for
//! work that is hard to place.

use super::Config;
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;
use windlass_core::bounds;
use windlass_core::engine::Settings;
use windlass_core::load::formula::LoadSettings;
use windlass_core::plan::Policy;
use windlass_core::plan::ReservationSettings;
use windlass_core::queues::TurnSettings;
use windlass_core::score::policy::{self, DEFAULT_POLICY};
use windlass_core::worker::Saturation;

/// Nanoseconds of a millisecond.
const NS_PER_MS: u64 = 1_000_000;
/// Milliseconds between two reports.
const REPORT_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// Reports that may be missing.
const STALE_REPORTS: std::ops::RangeInclusive<u32> = 1..=60;
/// Steps that may be held in memory.
const CACHE_STEPS: std::ops::RangeInclusive<u32> = 1..=100_000_000;
/// Bytes of a policy's name.
const POLICY_BYTES_MAX: usize = 64;
/// Workers that may be reserved at a time.
const HOLDERS_MAX: u32 = 1_000;
/// Bookings of which one may be out of turn.
const EXPRESS_MAX: u32 = 1_000_000;

impl Config {
    /// What the engine has of these settings. A policy that is not known is warned of, and is the default.
    pub fn engine_settings(&self) -> Settings {
        let saturation = self.placement.saturation();
        Settings {
            saturation,
            lease_ns: self.lease.duration().map(|lease| lease.as_nanos() as u64),
            load: self.load.settings(),
            reserve: ReservationSettings {
                after_ns: self.reservation.after().as_nanos() as u64,
                holders_max: self.reservation.holders as usize,
                ..ReservationSettings::default()
            },
            policy: self.score.policy(saturation),
            wait_deadline_ms: self.score.wait_deadline_ms(),
            turn: self.turn.settings(),
            cache_steps: self.cache.steps as usize,
            ..Settings::default()
        }
    }
}

/// How turns are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// What bookings cost their queue.
    pub charge: Charge,
    /// One booking in this number may go to a queue that has work again, out of turn; 0: none.
    pub express: u32,
}

/// What a booking costs its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charge {
    /// The part of its worker that it holds, for as long as it does.
    Time,
    /// One, like every other.
    Task,
}

impl FromStr for Charge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "time" => Ok(Charge::Time),
            "task" => Ok(Charge::Task),
            _ => Err(format!("charge is time or task, not '{text}'")),
        }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Turn { charge: Charge::Time, express: 8 }
    }
}

impl Turn {
    /// The settings as the core has them.
    fn settings(self) -> TurnSettings {
        let charge = match self.charge {
            Charge::Time => windlass_core::queues::Charge::Time,
            Charge::Task => windlass_core::queues::Charge::Task,
        };
        TurnSettings { charge, express: Some(self.express).filter(|every| *every > 0) }
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        match self.express {
            0..=EXPRESS_MAX => Ok(()),
            every => Err(format!("turn.express must be from 0 to {EXPRESS_MAX}, not {every}")),
        }
    }
}

/// How much of what waits is held in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Steps of active jobs. Of jobs beyond that, that nothing happened to yet, the store keeps all but the
    /// first of each queue and class.
    pub steps: u32,
}

impl Default for Cache {
    fn default() -> Self {
        Cache { steps: bounds::CACHE_STEPS as u32 }
    }
}

impl Cache {
    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        if !CACHE_STEPS.contains(&self.steps) {
            return Err(format!("cache.steps must be from 1 to 100000000, not {}", self.steps));
        }
        Ok(())
    }
}

/// How places are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// Fill the worker with fewest free cpus first.
    pub core_saturation: bool,
    /// Fill the worker with least free memory first.
    pub memory_saturation: bool,
}

impl Placement {
    /// Which worker is filled first.
    fn saturation(self) -> Saturation {
        Saturation { cores: self.core_saturation, memory: self.memory_saturation }
    }
}

/// What the load of workers' machines does.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadConfig {
    /// Pressure and what else uses a machine's cpus count; otherwise bookings alone do.
    pub pressure: bool,
    /// Percent of cpu pressure from which a worker gets no work.
    pub max_cpu_pressure: f64,
    /// Percent of memory pressure from which a worker gets no work.
    pub max_memory_pressure: f64,
    /// Percent of io pressure from which a worker gets no work.
    pub max_io_pressure: f64,
    /// Percent of a link's speed in use from which a worker gets no network-bound work.
    pub max_network_use: f64,
    /// Free bytes of a worker's state and session directories below which it gets no work; 0 for none. Where it is not
    /// set, the size of the disk decides.
    pub min_free_bytes: Option<u64>,
    /// How much all of the time stalled for cpu adds to a worker's load, as a multiple of it.
    pub cpu_pressure_weight: f64,
    /// The same for memory.
    pub memory_pressure_weight: f64,
    /// The same for input and output.
    pub io_pressure_weight: f64,
    /// Part of a threshold below which a worker gets work again.
    pub release: f64,
    /// Milliseconds between two reports of a worker.
    pub report_ms: u64,
    /// Reports that are missing when a worker's pressure is unknown.
    pub stale_reports: u32,
}

impl Default for LoadConfig {
    fn default() -> Self {
        let core = LoadSettings::default();
        LoadConfig {
            pressure: core.pressure,
            max_cpu_pressure: core.max_cpu_pressure,
            max_memory_pressure: core.max_memory_pressure,
            max_io_pressure: core.max_io_pressure,
            max_network_use: core.max_network_use,
            min_free_bytes: core.min_free_bytes,
            cpu_pressure_weight: core.cpu_pressure_weight,
            memory_pressure_weight: core.memory_pressure_weight,
            io_pressure_weight: core.io_pressure_weight,
            release: core.release,
            report_ms: core.report_ns / NS_PER_MS,
            stale_reports: (core.stale_ns / core.report_ns) as u32,
        }
    }
}

impl LoadConfig {
    /// The settings as the core has them.
    pub fn settings(&self) -> LoadSettings {
        let report_ns = self.report_ms.saturating_mul(NS_PER_MS);
        LoadSettings {
            pressure: self.pressure,
            max_cpu_pressure: self.max_cpu_pressure,
            max_memory_pressure: self.max_memory_pressure,
            max_io_pressure: self.max_io_pressure,
            max_network_use: self.max_network_use,
            min_free_bytes: self.min_free_bytes,
            release: self.release,
            cpu_pressure_weight: self.cpu_pressure_weight,
            memory_pressure_weight: self.memory_pressure_weight,
            io_pressure_weight: self.io_pressure_weight,
            report_ns,
            stale_ns: report_ns.saturating_mul(u64::from(self.stale_reports)),
        }
    }

    /// Between two reports of a worker.
    pub fn report(&self) -> Duration {
        Duration::from_millis(self.report_ms)
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        if !REPORT_MS.contains(&self.report_ms) {
            return Err(format!("load.report_ms must be from 100 to 60000, not {}", self.report_ms));
        }
        if !STALE_REPORTS.contains(&self.stale_reports) {
            return Err(format!("load.stale_reports must be from 1 to 60, not {}", self.stale_reports));
        }
        self.settings().check().map_err(|bad| {
            let windlass_core::load::pressure::BadNumber { field, value, min, max } = bad;
            format!("load.{field} must be a number from {min} to {max}, not {value}")
        })
    }
}

/// How workers with room are ranked.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Score {
    /// The policy's name. One that is not known is said, and is the default.
    pub policy: String,
    /// Seconds after which a task that could start should have, where its step names no deadline.
    pub wait_deadline_s: f64,
}

impl Default for Score {
    fn default() -> Self {
        Score { policy: "resource-aware".to_owned(), wait_deadline_s: 60.0 }
    }
}

impl Score {
    /// The policy; of `packing`, the one that fills what is to be filled.
    fn policy(&self, saturation: Saturation) -> Policy {
        let (known, is_known) = policy::policy_by_name(&self.policy);
        if !is_known {
            tracing::warn!("there is no scoring policy '{}'; {DEFAULT_POLICY} is taken", self.policy);
        }
        Policy(if known.name() == "packing" { policy::packing(saturation) } else { known })
    }

    /// When a task that could start should have, in milliseconds.
    pub fn wait_deadline_ms(&self) -> u64 {
        (self.wait_deadline_s * 1000.0).round() as u64
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let seconds = self.wait_deadline_s;
        if !(1.0..=1e7).contains(&seconds) {
            return Err(format!("score.wait_deadline_s must be a number from 1 to 10000000, not {seconds}"));
        }
        if !(1..=POLICY_BYTES_MAX).contains(&self.policy.len()) {
            return Err(format!("score.policy must have from 1 to {POLICY_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

/// What is kept free for work that is hard to place.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reservation {
    /// Seconds for which smaller work may be placed where blocked work would fit.
    pub after_s: f64,
    /// Workers that may be reserved at a time; 0 for none.
    pub holders: u32,
}

impl Default for Reservation {
    fn default() -> Self {
        Reservation { after_s: 60.0, holders: 8 }
    }
}

impl Reservation {
    /// For how long smaller work may be placed where blocked work would fit.
    pub fn after(&self) -> Duration {
        Duration::from_secs_f64(self.after_s)
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=1e7).contains(&self.after_s) {
            return Err(format!(
                "reservation.after_s must be a number from 0 to 10000000, not {}",
                self.after_s
            ));
        }
        if self.holders > HOLDERS_MAX {
            return Err(format!("reservation.holders must be from 0 to {HOLDERS_MAX}, not {}", self.holders));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err()
    }

    #[test]
    fn defaults_are_those_of_the_core() {
        let config = Config::default();
        assert_eq!(config.load.settings(), LoadSettings::default());
        config.check().unwrap();
        assert_eq!((config.score.wait_deadline_ms(), config.reservation.after().as_secs()), (60_000, 60));
    }

    #[test]
    fn every_setting_reaches_the_core() {
        let config = Config::parse(
            "[load]\npressure = true\nmax_cpu_pressure = 1\nmax_memory_pressure = 2\nmax_io_pressure = 3\n\
             max_network_use = 8\nmin_free_bytes = 9\n\
             cpu_pressure_weight = 4\nmemory_pressure_weight = 5\nio_pressure_weight = 6\nrelease = 0.7\n\
             report_ms = 500\nstale_reports = 4\n[score]\npolicy = 'simple'\nwait_deadline_s = 1.5\n\
             [reservation]\nafter_s = 0.5\nholders = 0",
        )
        .unwrap();
        let expected = LoadSettings {
            pressure: true,
            max_cpu_pressure: 1.0,
            max_memory_pressure: 2.0,
            max_io_pressure: 3.0,
            max_network_use: 8.0,
            min_free_bytes: Some(9),
            cpu_pressure_weight: 4.0,
            memory_pressure_weight: 5.0,
            io_pressure_weight: 6.0,
            release: 0.7,
            report_ns: 500_000_000,
            stale_ns: 2_000_000_000,
        };
        assert_eq!(config.load.settings(), expected);
        assert_eq!((&*config.score.policy, config.score.wait_deadline_ms()), ("simple", 1_500));
        assert_eq!((config.reservation.after().as_millis(), config.reservation.holders), (500, 0));
    }

    #[test]
    fn the_engine_has_every_setting() {
        let settings = |text: &str| Config::parse(text).unwrap().engine_settings();
        assert_eq!(settings(""), Settings::default());
        let turn = |text: &str| settings(&format!("[turn]\n{text}")).turn;
        let by_task = TurnSettings { charge: windlass_core::queues::Charge::Task, express: Some(3) };
        assert_eq!(turn("charge = 'task'\nexpress = 3"), by_task);
        assert_eq!(
            turn("charge = 'time'\nexpress = 0"),
            TurnSettings { express: None, ..TurnSettings::default() }
        );
        let set = settings(
            "lease = 3\n[load]\nmax_io_pressure = 3\n[score]\npolicy = 'simple'\nwait_deadline_s = 1.5\n\
             [reservation]\nafter_s = 0.5\nholders = 7\n[cache]\nsteps = 21",
        );
        assert_eq!((set.lease_ns, set.load.max_io_pressure), (Some(3_000_000_000), 3.0));
        assert_eq!((set.policy.0.name(), set.wait_deadline_ms), ("simple", 1_500));
        assert_eq!(
            set.reserve,
            ReservationSettings { after_ns: 500_000_000, holders_max: 7, ..Default::default() }
        );
        assert_eq!(set.cache_steps, 21);
        assert_eq!(settings("[score]\npolicy = 'best'").policy.0.name(), "resource-aware");
    }

    #[test]
    fn packing_fills_what_is_to_be_filled() {
        let rules = |text: &str| {
            let settings = Config::parse(text).unwrap().engine_settings();
            (settings.saturation, settings.policy.0.rules().as_ptr())
        };
        let packing = "[score]\npolicy = 'packing'\n";
        let cores = Saturation { cores: true, memory: false };
        assert_eq!(
            rules(&format!("{packing}[placement]\ncore_saturation = true")),
            (cores, policy::packing(cores).rules().as_ptr())
        );
        let none = Saturation::default();
        assert_eq!(rules(packing), (none, policy::packing(none).rules().as_ptr()));
        assert_ne!(policy::packing(cores).rules().as_ptr(), policy::packing(none).rules().as_ptr());
    }

    #[test]
    fn mistakes_are_named_by_their_key() {
        for (table, line) in [
            ("load", "max_cpu_pressure = nan"),
            ("load", "max_memory_pressure = 101"),
            ("load", "max_io_pressure = 0"),
            ("load", "max_network_use = 100.5"),
            ("load", "cpu_pressure_weight = -1"),
            ("load", "memory_pressure_weight = inf"),
            ("load", "io_pressure_weight = 1e9"),
            ("load", "release = 1.1"),
            ("load", "report_ms = 99"),
            ("load", "report_ms = 9223372036854775807"),
            ("load", "stale_reports = 0"),
            ("score", "wait_deadline_s = 0"),
            ("score", "wait_deadline_s = nan"),
            ("score", "policy = ''"),
            ("reservation", "after_s = -1"),
            ("reservation", "holders = 1001"),
            ("turn", "express = 1000001"),
            ("cache", "steps = 0"),
            ("cache", "steps = 100000001"),
        ] {
            let key = format!("{table}.{}", line.split(' ').next().unwrap());
            let why = refused(&format!("[{table}]\n{line}"));
            assert!(why.starts_with(&key), "{line}: {why}");
        }
        assert!(refused("[turn]\ncharge = 'core'").contains("charge"));
        assert!(refused("[load]\nmax_pressure = 1").contains("max_pressure"));
        assert!(refused("[load]\nmin_free_bytes = -1").contains("min_free_bytes"));
        assert!(refused("[score]\nsaturation = 1").contains("saturation"));
    }
}
